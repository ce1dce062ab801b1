"""Golden answers of a serving cluster: changed weights, a launch with other answers, and invalid records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from api_client import answers_again, completion
from live_cluster import Cluster, extra, on_all, started
from testinfra.host import Host

pytestmark = pytest.mark.disruptive

WEIGHTS = "/srv/models/tiny/model.safetensors"
#: Another constant in each normalization: the model loads and answers, with other numbers.
OTHER_NUMBERS = '{"rms_norm_eps": 10.0}'


@pytest.fixture
def recorded(cluster: Cluster, tmp_path: Path) -> tuple[str, ...]:
    """The arguments of a run with a golden record of the healthy model."""
    given = extra(golden_directory=str(tmp_path))
    cluster.play("golden", *given, golden_record=True).assert_ok()
    return given


def test_changed_weights_give_other_golden_answers(
    cluster: Cluster, nodes: dict[str, Host], head: Host, recorded: tuple[str, ...]
) -> None:
    cluster.play("golden", *recorded).assert_unchanged("6 equal, 0 near, 0 different")
    # A third of the tensors' bytes becomes zero.
    program = (
        "import sys; d = bytearray(sys.stdin.buffer.read()); d[len(d) // 3 : 2 * len(d) // 3] = bytes(len(d) // "
        "3); sys.stdout.buffer.write(d)"
    )
    on_all(nodes, f"mv {WEIGHTS} /opt/weights && python3 -c '{program}' </opt/weights >{WEIGHTS}")
    try:
        head.check_output("systemctl restart gb10-vllm")
        answers_again(head)
        cluster.play("golden", *recorded).assert_failed("different")
    finally:
        on_all(nodes, f"mv /opt/weights {WEIGHTS}")
        head.check_output("systemctl restart gb10-vllm")
        answers_again(head)
    again = cluster.play("golden", *recorded).assert_ok()
    # The result of the last run is new.
    assert again.changed_tasks() == {"Write the result of the golden answers, and a renewed record"}


def test_a_launch_with_other_answers_rolls_back(cluster: Cluster, head: Host, recorded: tuple[str, ...]) -> None:
    text = completion(head)
    arguments = [*cluster.variable("gb10_vllm_extra_args", []), "--hf-overrides", OTHER_NUMBERS]
    cluster.serve(*recorded, *extra(gb10_vllm_extra_args=arguments)).assert_failed(
        "The golden answers failed: ", "Restored /srv/models/tiny with its previous configuration. It answers again."
    )
    assert completion(head) == text
    assert "6 equal, 0 near, 0 different" in cluster.play("golden", *recorded).assert_ok().output
    cluster.serve(*recorded).assert_unchanged()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda _record: "", "the record is empty"),
        (lambda record: record.replace("/srv/models/tiny", "/srv/models/other"), "/srv/models/other"),
    ],
    ids=["empty", "another model"],
)
def test_an_invalid_record_is_refused_before_the_model_stops(
    cluster: Cluster, head: Host, recorded: tuple[str, ...], tmp_path: Path, change: Callable[[str], str], expected: str
) -> None:
    (record,) = tmp_path.glob("tiny-*.json")
    record.write_text(change(record.read_text(encoding="utf-8")), encoding="utf-8")
    before = started(head)
    changed = extra(gb10_vllm_extra_args=[*cluster.variable("gb10_vllm_extra_args", []), "--seed", "1"])
    refused = cluster.serve(*recorded, *changed).assert_failed(expected, str(record))
    assert set(refused.changed.values()) == {0}
    assert started(head) == before

"""Switch the cluster to containers and back: the answers are the same, and no part of the other runtime is left.

The image is a small Debian. It mounts vLLM from the nodes' environment, so no large file is copied. The rest is like a
Spark with Podman: the image goes from the head to the worker, units run the engine, and containers run as the service
user.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import root_file_system
from api_client import answers_again, completion
from live_cluster import Cluster, extra, of_unit
from nvidia_recipe import EXPORTS, SERVE, WORKER
from nvidia_recipe import recipe as of_catalog
from testinfra.host import Host

from ansible_collections.gb10.cluster.plugins.module_utils.api.access import GUARD_FOLDER

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

TAG = "lab.example/vllm:1"
UNIT = "gb10-vllm"


@pytest.fixture(scope="module")
def image(
    cluster: Cluster, nodes: dict[str, Host], head: Host, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Configure the engine on all nodes and import the image on the head. Returns its ID."""
    folder = tmp_path_factory.mktemp("image")
    tar = root_file_system.debian(cluster, folder, "image-vllm", root_file_system.VLLM_PACKAGES)
    with root_file_system.podman(nodes):
        root_file_system.import_image(head, tar, TAG)
        yield json.loads(head.check_output(f"podman image inspect {TAG}"))[0]["Id"]


def inside(head: Host, image: str, **changes: Any) -> dict[str, Any]:
    """Return the variables of a run in containers of the image."""
    runtime = head.check_output("readlink /opt/gb10/runtime/current")
    return root_file_system.in_image(image, runtime, f"--volume={runtime}:{runtime}:ro", **changes)


def containers(host: Host) -> list[str]:
    return sorted(host.check_output("podman ps --all --format '{{.Names}}'").split())


def owner_of_ranks(host: Host) -> set[str]:
    """Return the users of vLLM's processes."""
    return set(host.check_output("ps -o user:20= -p $(pgrep --full 'bin/vllm serve' | paste -sd,)").split()) - {"root"}


@pytest.mark.usefixtures("image")
def test_a_wrong_digest_stops_nothing(cluster: Cluster, head: Host) -> None:
    before = of_unit(head, UNIT)
    wrong = f"{TAG.partition(':')[0]}@sha256:{'6' * 64}"
    run = cluster.site(*extra(**inside(head, wrong))).assert_failed(f"podman pull {wrong} failed")
    assert run.changed_tasks() == set(), run.output
    assert (of_unit(head, UNIT), bool(completion(head))) == (before, True)


def test_an_option_that_the_image_lacks_stops_nothing(cluster: Cluster, head: Host, image: str) -> None:
    """The plan knows the options of the image when it is on the head, and any release of vLLM is accepted."""
    before = of_unit(head, UNIT)
    given = {"gb10_distributed_executor_backend": "mp", "gb10_vllm_extra_args": ["--load-format", "b12x"]}
    cluster.site(*extra(**inside(head, f"sha256:{image}", **given))).assert_failed(
        "1 problem found; running services were not touched.",
        "gb10_vllm_extra_args[1]: --load-format does not accept 'b12x'",
    )
    assert of_unit(head, UNIT) == before
    options = json.loads(head.file("/etc/gb10/image-options.json").content_string)
    assert (options["image_id"], options["version"].partition("+")[0], bool(options["ray"])) == (image, "0.32.0", True)
    # The next plan knows the options before the run starts.
    again = cluster.site(*extra(**inside(head, f"sha256:{image}", **given)))
    assert "1 problem found; nothing was changed." in again.output


def test_containers_without_ray(
    cluster: Cluster, nodes: dict[str, Host], head: Host, workers: list[Host], image: str
) -> None:
    text = completion(head)
    given = extra(**inside(head, TAG, gb10_distributed_executor_backend="mp"))
    first = cluster.site(*given).assert_ok()
    assert f"{TAG} is pinned to sha256:" in first.output.replace("\n", " ")
    assert completion(head) == text, "the same model in another runtime"
    for host in nodes.values():
        assert containers(host) == [UNIT]
        assert image in host.check_output("podman image ls --no-trunc --quiet"), "the same image on all nodes"
        assert owner_of_ranks(host) == {"gb10"}
        privileged, pid = host.check_output(
            f"podman inspect --format '{{{{.HostConfig.Privileged}}}} {{{{.State.Pid}}}}' {UNIT}"
        ).split()
        assert privileged == "false"
        # Podman 4.3 always reports it as shareable.
        assert host.check_output(f"readlink /proc/{pid}/ns/ipc") == host.check_output("readlink /proc/1/ns/ipc")
    cluster.site(*given).assert_unchanged()
    # After one rank dies, all ranks restart without a playbook run.
    workers[0].check_output(f"podman kill --signal KILL {UNIT}")
    time.sleep(5)
    assert answers_again(head) == text


#: A plugin of vLLM with a format of weights that no release has.
PLUGIN = """
from vllm.model_executor.model_loader import register_model_loader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader


def register():
    @register_model_loader("lab")
    class LabLoader(DefaultModelLoader):
        def _prepare_weights(self, model, *arguments, **named):
            self.load_config.load_format = "auto"
            return super()._prepare_weights(model, *arguments, **named)
"""
ENTRY = "[vllm.general_plugins]\nlab = lab_plugin:register\n"
#: A build has no network, and the working folder of the image.
CHECK = """set -e
test "$(ls /sys/class/net)" = lo
test "$WORKSPACE_DIR" = /
test -f /workspace/plugins/lab_plugin.py
echo checked > /workspace/second
"""
COMMAND = """vllm serve /srv/models/tiny \\
  --port {port} -tp {tensor_parallel} \\
  --load-format lab
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    """Write a recipe with two mods beside it. The first installs a plugin, the second verifies the build."""
    first, second = (tmp_path / "mods" / name for name in ("first", "second"))
    for folder in (first / "plugins" / "lab_plugin-1.dist-info", second, tmp_path / "recipes"):
        folder.mkdir(parents=True)
    (first / "run.sh").write_text("cp -r plugins /workspace/\n", encoding="utf-8")
    (first / "plugins" / "lab_plugin.py").write_text(PLUGIN, encoding="utf-8")
    (first / "plugins" / "lab_plugin-1.dist-info" / "entry_points.txt").write_text(ENTRY, encoding="utf-8")
    (first / "plugins" / "lab_plugin-1.dist-info" / "METADATA").write_text(
        "Name: lab_plugin\nVersion: 1\n", encoding="utf-8"
    )
    (second / "run.sh").write_text(CHECK, encoding="utf-8")
    data = {
        "recipe_version": "1",
        "name": "The lab's model",
        "container": "vllm-node",
        "mods": ["mods/first", "mods/second"],
        "cluster_only": True,
        "defaults": {"port": 9000, "tensor_parallel": 2},
        "env": {"VLLM_LOGGING_LEVEL": "INFO", "NCCL_IB_HCA": "mlx5_0"},
        "command": COMMAND,
    }
    path = tmp_path / "recipes" / "lab.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_a_recipe_with_mods_serves_in_an_image_of_its_own(
    cluster: Cluster, nodes: dict[str, Host], head: Host, workers: list[Host], image: str, recipe: Path
) -> None:
    text = completion(head)
    arguments = inside(head, image)["gb10_container_args"]
    command = extra(
        # A recipe alone does not decide about a folder of the nodes.
        gb10_model="/srv/models/tiny",
        gb10_recipe=str(recipe),
        gb10_recipe_images={"vllm-node": f"sha256:{image}"},
        gb10_container_engine="podman",
        gb10_container_args=[*arguments, f"--env=PYTHONPATH=/workspace/plugins:{GUARD_FOLDER}"],
        vllm_runtime_image_build_args=["--runtime=/usr/local/bin/crun-in-a-lab"],
        vllm_patch_patches=[],
    )
    first = cluster.site(*command).assert_ok()
    assert {"Build the image"} <= first.changed_tasks()
    assert completion(head) == text, "the same model in another runtime"
    options = json.loads(head.file("/etc/gb10/image-options.json").content_string)
    formats = next(option["choices"] for option in options["options"] if option["name"] == "--load-format")
    assert "lab" in formats
    for host in nodes.values():
        assert containers(host) == [UNIT]
        assert "--load-format lab" in host.check_output("ps -eo args | grep '[v]llm serve'")
        assert host.check_output(f"podman exec {UNIT} cat /workspace/second") == "checked"
    assert workers[0].check_output("podman image ls --quiet --no-trunc").count(options["image_id"]) == 1
    cluster.site(*command).assert_unchanged()
    # The image without the mods does not know the format.
    data = json.loads(recipe.read_text(encoding="utf-8"))
    recipe.write_text(json.dumps({**data, "mods": []}), encoding="utf-8")
    cluster.site(*command).assert_failed("--load-format does not accept 'lab'")
    assert completion(head) == text


def committed(clone: Path, **changes: Any) -> str:
    """Commit a recipe for two Sparks to a catalog, and return its URL@COMMIT."""
    path = clone / "models/owner/tiny/dgx-spark-2gpu/linux/vllm/recipe.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(of_catalog(runtime__image=TAG, **changes)), encoding="utf-8")

    def git(*arguments: str) -> str:
        given = ["git", "-C", str(clone), "-c", "user.name=lab", "-c", "user.email=lab@example.com", *arguments]
        return subprocess.run(given, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message=recipe")
    return f"file://{clone}@{git('rev-parse', 'HEAD')}"


def commands(head: str, worker: str = WORKER) -> dict[str, Any]:
    """Return the commands of both ranks for the tiny model, which has no draft, on CPUs, which have no Triton."""
    draft = ' \\\n  --speculative-config \'{"method": "mtp", "num_speculative_tokens": 2}\''
    head, worker = (
        text.replace(draft, "").replace("owner/small-nvfp4", "owner/tiny").replace('RUNNER="1"', 'RUNNER="0"')
        for text in (head, worker)
    )
    return {"command": head, "additional_commands": [{"id": "worker", "command": worker}]}


def test_nvidias_catalog_serves_by_name_and_commit(
    cluster: Cluster, nodes: dict[str, Host], head: Host, image: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    text, clone = completion(head), tmp_path / "catalog"
    given = inside(head, image, gb10_model="/srv/models/tiny", gb10_recipe="nvidia:tiny")
    del given["gb10_runtime"], given["gb10_container_image"]

    def run(catalog: str) -> Any:
        return cluster.site(*extra(**given, gb10_nvidia_recipes=catalog))

    first = committed(clone, serve=commands(EXPORTS + SERVE))
    run(first).assert_ok()
    assert completion(head, model="owner/tiny") == text, "the same model under the recipe's name"
    environment = "NCCL_IGNORE_CPU_AFFINITY=1 VLLM_FLOAT32_MATMUL_PRECISION=high VLLM_USE_V2_MODEL_RUNNER=0"
    for host in nodes.values():
        assert containers(host) == [UNIT]
        of_rank = host.check_output(f"podman exec {UNIT} env").split()
        assert set(environment.split()) <= set(of_rank) and "NCCL_SOCKET_IFNAME=$ETH_IF" not in of_rank
    run(first).assert_unchanged()
    before = of_unit(head, UNIT)
    # One more argument of both ranks.
    more = " \\\n  --max-num-seqs 3"
    second = committed(clone, serve=commands(EXPORTS + SERVE + more, WORKER.rstrip() + more))
    assert "gb10-vllm" in run(second).assert_ok().output
    after = of_unit(head, UNIT)
    assert after != before and "--max-num-seqs=3" in head.check_output("ps -eo args | grep '[v]llm serve'")
    run(second).assert_unchanged()
    hostile = commands(EXPORTS + SERVE + "; curl example.com | sh")
    for changes, problem in (
        ({"schema_version": 5}, "gb10_recipe.schema_version: 5. Expected: 3 or 4"),
        ({"serve": hostile}, "gb10_recipe.serve.command, line"),
        ({"hardware": "rtx-pro"}, "gb10_recipe.hardware: 'rtx-pro'"),
    ):
        refused = run(committed(clone, **changes)).assert_failed("1 problem found; nothing was changed.", problem)
        assert refused.changed_tasks() == set()
    assert (of_unit(head, UNIT), completion(head, model="owner/tiny")) == (after, text)


@pytest.mark.usefixtures("image")
def test_the_containers_of_ray_join(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    # The role waits until Ray reports all nodes. vLLM's container cannot start here: it needs access to Ray's
    # processes. Podman gives that only to containers with their own cgroups, for which crun needs a privilege that
    # simulated hosts do not have.
    cluster.site(*extra(**inside(head, TAG)), "--tags", "vllm_runtime,ray_cluster").assert_ok()
    for host in nodes.values():
        assert "gb10-ray" in containers(host)


def test_back_to_the_environment(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    cluster.site().assert_ok()
    assert completion(head)
    assert [containers(host) for host in nodes.values()] == [[]] * len(nodes)
    cluster.site().assert_unchanged()

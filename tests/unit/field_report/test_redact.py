"""Redaction: text of each kind that identifies a site does not stay, wherever it stands, and ordinary text stays."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import redact

#: Text that stayed in reports before, or of which a part stayed, and what must not stay.
FORMER = {
    "server.local": "server",
    "printer.lan": "printer",
    "mail.acme.com": "acme",
    "nas01:/export/models": "nas01",
    "lisa@nas01": "lisa",
    "0x58a2e1030004c3d2": "58a2",
    "58a2e1030004c3d2": "58a2",
    "58a2:e103:0004:c3d2": "58a2",
    "Serial Number : 1792923004567": "1792",
    "serial: MT2408": "MT2408",
    "MT2408X01234": "MT2408",
    "AKIA" + "ABCDEFGH" * 2: "ABCDEFGH",
    "glpat-abcdefghij1234567890": "abcdefghij",
    "ghs_" + "a1b2" * 9: "a1b2",
    "xoxb-12345678901-abcdefghijkl": "abcdefghijkl",
    "eyJhbGciOi.eyJzdWIiOiIx.c2lnbmF0dXJl": "c2lnbmF0dXJl",
    "password: hunter2": "hunter2",
    "HF_TOKEN=hunter2": "hunter2",
    "/opt/gb10/models/acme--secret-model/config.json": "acme",
    "/etc/netplan/50-acme.yaml": "acme",
    "/run/user/1000": "1000",
    "/proc/self/root/home/lisa": "lisa",
    "~lisa/models": "lisa",
    "/mnt/acme/models": "acme",
    "/dev/disk/by-id/nvme-acme": "acme",
    "48-b0-2d-aa-bb-cc": "48-b0",
    "48b0.2daa.bbcc": "48b0",
    "80:00:02:08:fe:80:00:00:00:00:00:00:58:a2:e1:03:00:04:c3:d2": "58:a2",
    "wlx48b02daabbcc": "48b0",
    "2001:db8::1": ":1",
    "::1": ":1",
    "fe80::1%enp1s0f0np0": "fe80",
    "2001:db8::/32": "/32",
}


@pytest.mark.parametrize("text", FORMER)
def test_text_that_stayed_before_does_not_stay(text: str) -> None:
    assert redact.leaks([f"see {text} now"], {})
    found = redact.redacted([f"see {text} now"], {})
    assert FORMER[text] not in found[0]
    assert (found[0].startswith("see "), found[0].endswith(" now")) == (True, True)
    assert redact.leaks(found, {}) == []


def test_a_bare_name_is_replaced_if_it_is_known() -> None:
    known = {"nas01": "HOST", "1792923004567": "SERIAL", "48b02daabbcc": "MAC", "acme--secret-model": "MODEL"}
    assert (
        redact.redacted("nas01: 48b02daabbcc and x48B02DAABBCCx, acme--secret-model", known)
        == "HOST: MAC and xMACx, MODEL"
    )
    assert redact.leaks("x1792923004567x", known) == ["NAME"]


@pytest.mark.parametrize(
    "text",
    [
        "12:31:05 INFO [core.py:93] Initializing",
        "0000:01:00.0 and 000f:01:00.1",
        "at::native and c10::Error, std::string",
        "user@1000.service and getty@tty1.service",
        "hmac:0123456789abcdef",
        "/etc/netplan/60-gb10-qsfp.yaml and /etc/netplan/01-network-manager-all.yaml",
        "/opt/gb10/runtime/0123456789ab/lib/python3.12/site-packages/vllm/v1/engine/core.py",
        "/opt/gb10/models, /run/reboot-required, /var/lib/dpkg/lock-frontend, /dev/infiniband/uverbs0, /proc/cmdline",
        "/usr/local/cuda -> /usr/local/cuda-13.0, /usr/lib/aarch64-linux-gnu/libcuda.so.1",
        "/etc/netplan/50-NAME.yaml 0600, /etc/netplan/90-NM-UUID.yaml 0600, netplan.io 0.106-2",
        "GET /v1/chat/completions and /health",
        "--max-num-batched-tokens=8192 VLLM_USE_FLASHINFER_SAMPLER=0",
        "65977450496 bytes, 5.36_0ACUM018, NVIDIA_DGX_Spark",
        "torch.nn.Module, vllm.model_executor, io.netty",
        "6.17.0-1031-nvidia, vllm==0.32.0, CUDA 13.0, NCCL 2.30.7, decode: at most 54.6 tokens/s",
        "--kv-cache-memory-bytes=67108864 VLLM_USE_FLASHINFER_MOE_MXFP4_MXFP8=1",
        "qwen3-next-80b-a3b-instruct-fp8-dynamic at 2026-11-22T21:30:00Z",
        "enp1s0f1np1, roceP2p1s0f1, /etc/gb10/cluster.env and /opt/gb10/runtime/current",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact.redacted(text, {}) == text
    assert redact.leaks(text, {}) == []


HEX = st.integers(0, 255).map("{:02x}".format)
WORD = st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=10)
ALNUM = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=20, max_size=40)
#: Each kind: what a report may meet, and its part that must not stay.
KINDS: dict[str, st.SearchStrategy[str]] = {
    "IPv4": st.ip_addresses(v=4).map(str),
    "IPv6": st.ip_addresses(v=6).map(str),
    "IPv6 in full": st.ip_addresses(v=6).map(lambda address: address.exploded),
    "MAC": st.tuples(st.sampled_from(":-"), st.lists(HEX, min_size=6, max_size=6)).map(
        lambda pair: pair[0].join(pair[1])
    ),
    "GUID": st.lists(HEX, min_size=8, max_size=8)
    .map("".join)
    .filter(lambda text: any(char.isdigit() for char in text))
    .map("0x{}".format),
    "UUID": st.uuids().map(str),
    "key": st.tuples(
        st.sampled_from(("hf_", "sk-", "nvapi-", "ghp_", "ghs_", "glpat-", "xoxb-", "github_pat_")), ALNUM
    ).map("".join),
    "home": st.tuples(st.sampled_from(("/home/", "/mnt/", "/srv/", "/run/user/", "/opt/gb10/models/")), WORD, WORD).map(
        lambda parts: f"{parts[0]}{parts[1]}/{parts[2]}"
    ),
    "local host": st.tuples(WORD, st.sampled_from(("local", "lan", "internal", "home", "corp"))).map(".".join),
    "user and host": st.tuples(WORD, WORD).map("@".join),
    "serial": st.tuples(st.text("ABCDEFGHJKLMNPQRSTUVWXYZ", min_size=2, max_size=3), st.integers(10**8, 10**12)).map(
        lambda pair: f"{pair[0]}{pair[1]}"
    ),
    "URL": st.tuples(WORD, WORD).map(lambda pair: f"https://{pair[0]}.example:5000/{pair[1]}?token=1"),
}
AROUND = st.sampled_from(("", " ", '"', "'", "(", "[", "=", ", ", "address ", "\n", "found: "))
AFTER = st.sampled_from(("", " ", '"', "'", ")", "]", ", ", ".", ". Fix: correct it", "\n", "; see"))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_no_text_of_a_kind_stays(kind: str, data: st.DataObject) -> None:
    planted = [data.draw(KINDS[kind]) for _ in range(2)]
    text = "".join(data.draw(AROUND) + each + data.draw(AFTER) + " " for each in planted)
    found = redact.redacted({"a": [text]}, {})
    assert not [each for each in planted if each in found["a"][0]], found
    assert redact.leaks(found, {}) == []
    # A second time changes nothing, so a text that was recorded redacted stays.
    assert redact.redacted(found, {}) == found


@given(name=WORD, text=st.text(max_size=40), word=st.sampled_from(("HOST", "MODEL", "USER")))
def test_no_known_name_stays(name: str, text: str, word: str) -> None:
    if name.upper() == word:
        return
    found = redact.redacted(f"{text} {name} {text}.{name}", {name: word})
    assert redact.leaks(found, {name: word}) == []


@given(st.text(max_size=200))
def test_any_text_is_redacted_completely(text: str) -> None:
    assert redact.leaks(redact.redacted(text, {}), {}) == []


def test_a_long_line_is_cut_after_a_whole_word() -> None:
    key = "hf_" + "AbCd1234" * 4
    for length in range(4050, 4100):
        (found,) = redact.redacted(
            [f"a\n{'x' * (length - 5)} lisa {key} spark one\nb"], {"lisa": "USER", "spark one": "HOST"}
        )
        first, line, last = found.split("\n")
        assert (first, last) == ("a", "b")
        assert len(line) <= 4096 and set(line.split()[1:]) <= {"USER", "KEY", "HOST", "..."}, line[-60:]


@pytest.mark.parametrize("part", ["a", "a.", "aa:", "1.", "serial ", "serial" + " " * 3900])
def test_the_time_is_no_square_of_the_length(part: str) -> None:
    text = "\n".join([part * (4000 // len(part)) + "-"] * 50)
    begin = time.process_time()
    redact.redacted(text + part * (400_000 // len(part)), {})
    assert time.process_time() - begin < 1.0

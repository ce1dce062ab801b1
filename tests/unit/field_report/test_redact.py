"""Redaction: only public words and typed values stay. Text that identifies a site does not, wherever it stands."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.gb10.cluster.plugins.module_utils.field_report import io_words, redact

PUBLIC = io_words.public()
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
    "acme/secret-merger-llm": "merger",
    "intranet.acme.ai": "acme",
    "build.acme.xyz": "acme",
    "db.prod.acme.consulting": "prod",
    "buildbox": "buildbox",
    "Bearer abcdefgh1234": "abcdefgh",
    "Authorization: Basic YWxpY2U6aHVudGVyMg==": "YWxp",
    "password is hunter2": "hunter2",
    "sk_live_" + "abcdefgh": "abcdefgh",
    "gsk_" + "abcdefgh": "abcdefgh",
    "pplx-" + "abcdefgh": "abcdefgh",
    "npm_" + "abcdefgh": "abcdefgh",
    r"C:\Users\alison": "alison",
    "11.77.168.192.in-addr.arpa": "77.168",
    "192-168-77-11": "168",
    "192_168_77_11": "168",
    "192.168.1.5:8000-x": "192",
    "/dev/nvidia-acme": "acme",
    "ray.acme.com": "acme",
    "vllm/secret-merger": "merger",
    "1.0-acme": "acme",
    "https://nvidia:hunter2@huggingface.co/x": "hunter2",
    "{'prompt':'merger'}": "merger",
}


def stays(value: Any, known: Mapping[str, str] | None = None) -> bool:
    """Return whether a value is redacted already."""
    return bool(redact.redacted(value, known or {}, PUBLIC) == value)


@pytest.mark.parametrize("text", FORMER)
def test_text_that_stayed_before_does_not_stay(text: str) -> None:
    found = redact.redacted([f"see {text} now"], {}, PUBLIC)
    assert FORMER[text] not in found[0]
    assert (found[0].startswith("see "), found[0].endswith(" now")) == (True, True)
    assert stays(found)


def test_a_name_of_the_site_is_replaced_although_it_is_a_public_word() -> None:
    known = {"memory": "node1", "1792923004567": "SERIAL", "acme--model": "MODEL"}
    assert "memory" in PUBLIC
    assert (
        redact.redacted("memory: x1792923004567x, acme--model/x, spark9 and memory.", known, PUBLIC)
        == "node1: REDACTED and node1."
    )
    assert not stays({"b": "memory"}, known)


def test_no_example_of_a_name_is_public() -> None:
    assert not PUBLIC & {"lisa", "nas01", "hunter2", "acme", "spark-lisa", "merger"}


@pytest.mark.parametrize(
    "text",
    [
        "12:31:05 INFO Initializing",
        "0000:01:00.0 and 000f:01:00.1",
        "hmac:0123456789abcdef",
        "/etc/netplan/60-gb10-qsfp.yaml and /etc/netplan/PATH",
        "/run/reboot-required, /var/lib/dpkg/lock-frontend, /proc/cmdline, /dev/infiniband/PATH",
        "netplan.io 0.106-2, 580.95.05-0ubuntu1, 0.32.1.dev12+g1a2b3c4d5.cu130, 1:6.17.0-1031.31",
        "GET /v1/chat/completions and /health",
        "--max-num-batched-tokens=8192 VLLM_USE_FLASHINFER_SAMPLER=0",
        "65977450496 bytes, 5.36_0ACUM018, NVIDIA_DGX_Spark, 101.52/121.69 GiB, 3003MHz",
        "torch.OutOfMemoryError: CUDA out of memory",
        "6.17.0-1031-nvidia, vllm==0.32.0, CUDA 13.0, NCCL 2.30.7, decode: at most 54.6 tokens/s",
        "qwen3-next-80b-a3b-instruct-fp8-dynamic at 2026-11-22T21:30:00Z",
        "enp1s0f1np1, roceP2p1s0f1, wlP9s9, /etc/gb10/cluster.env and /opt/gb10/runtime/current",
        "vllm/v1/engine/core.py:1482:run_engine_core",
        "No such file or directory, Permission denied, Connection refused",
    ],
)
def test_public_text_and_typed_values_stay(text: str) -> None:
    assert redact.redacted(text, {}, PUBLIC) == text
    assert stays(text)


def test_a_build_under_another_name_keeps_its_number() -> None:
    assert redact.redacted("6.17.0-acme vllm 0.32.0+acme", {}, PUBLIC) == "6.17.0-REDACTED vllm 0.32.0+REDACTED"


def test_a_file_of_a_public_package_is_named_below_the_packages() -> None:
    path = "/opt/gb10/runtime/0123456789ab/lib/python3.12/site-packages/vllm/v1/engine/core.py"
    assert redact.redacted(path, {}, PUBLIC) == "vllm/v1/engine/core.py"
    assert redact.redacted(path.replace("vllm", "acme"), {}, PUBLIC) == "/opt/gb10/runtime/PATH"


HEX = st.integers(0, 255).map("{:02x}".format)
WORD = st.text("abcdefghijklmnopqrstuvwxyz", min_size=3, max_size=10)
ALNUM = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", min_size=20, max_size=40)
#: Each kind: a text of a report, and its part that must not stay.
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
    found = redact.redacted({"a": [text]}, {}, PUBLIC)
    assert not [each for each in planted if each in found["a"][0]], found
    assert stays(found)
    # A second time changes nothing, so a text that was recorded redacted stays.
    assert redact.redacted(found, {}, PUBLIC) == found


@given(name=WORD, text=st.text(max_size=40), word=st.sampled_from(("HOST", "MODEL", "USER")))
def test_no_known_name_stays(name: str, text: str, word: str) -> None:
    if name.upper() == word:
        return
    found = redact.redacted(f"{text} {name} {text}.{name}", {name: word}, PUBLIC)
    assert stays(found, {name: word})


@given(st.text(max_size=200))
def test_any_text_is_redacted_completely(text: str) -> None:
    assert stays(redact.redacted(text, {}, PUBLIC))


@given(st.lists(WORD.map(str.title), min_size=1, max_size=20))
def test_only_public_words_stay_in_free_text(parts: list[str]) -> None:
    found = redact.redacted(" ".join(parts), {}, PUBLIC).split()
    assert {word for word in found if word != redact.GONE} <= {part for part in parts if part.casefold() in PUBLIC}


@pytest.mark.parametrize("part", ["a", "a.", "aa:", "1.", "/a", "serial ", "1-", "0x", "REDACTED ", "=:"])
def test_the_time_is_no_square_of_the_length(part: str) -> None:
    text = "\n".join([part * (4000 // len(part)) + "-"] * 50)
    begin = time.process_time()
    redact.redacted(text + part * (400_000 // len(part)), {}, PUBLIC)
    assert time.process_time() - begin < 2.0


def test_a_problem_keeps_its_node_and_its_variable() -> None:
    text = "spark-lisa.gb10_api_port: 'many'. Expected: a port. spark-lisa.hunter2"
    shown = redact.redacted(text, {"spark-lisa": "node1"}, PUBLIC)
    assert shown == "node1.gb10_api_port: 'many'. Expected: a port. node1.REDACTED"
    assert stays(shown, {"spark-lisa": "node1"})


@pytest.mark.parametrize(
    "word",
    [
        "10.0.0.5-10.0.0.9",
        "203.0.113.7_24",
        "v203.0.113.7",
        "1:203.0.113.7",
        "203.0.113.7x",
        "4111-1111-1111-1111",
        "203.0.113.7.8000",
        "8000.203.0.113.7",
        "203.000.113.007-rc1",
        "v203.0.113.7.1",
        "203.0.113.7.nvidia",
    ],
)
def test_an_address_in_the_form_of_a_release_is_none(word: str) -> None:
    found = redact._bare_word(word, frozenset())
    assert "203" not in found and "10.0" not in found and "4111" not in found


def test_keys_and_large_numbers_are_redacted_too() -> None:
    planted = {
        "evidence": {"hf_AbCd1234AbCd1234 password hunter2 at 10.1.2.3": 1},
        "nodes": [4111111111111111, 128526000000],
    }
    shown = redact.redacted(planted, {}, PUBLIC)
    assert "hunter2" not in str(shown) and "10.1.2.3" not in str(shown) and "4111" not in str(shown)
    assert 128526000000 in shown["nodes"]
    assert stays(shown)


@pytest.mark.parametrize(
    "text", ["3782 822463 10005", "4111, 1111, 1111, 1111", "4111\t1111\t1111\t1111", "4111+1111+1111+1111"]
)
def test_the_number_of_a_card_is_replaced_in_any_groups(text: str) -> None:
    assert not re.search(r"\d{4}", redact.redacted(text, {}, PUBLIC))

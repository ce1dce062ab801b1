"""The model's answers to a client, and the nodes of its ranks."""

from __future__ import annotations

from api_client import ask, completion, ranks
from testinfra.host import Host


def test_one_rank_sits_on_each_node(head: Host, nodes: dict[str, Host]) -> None:
    pinned = [
        line.split("=", 1)[1]
        for host in nodes.values()
        for line in host.file("/etc/gb10/cluster.env").content_string.splitlines()
        if line.startswith("VLLM_HOST_IP=")
    ]
    assert ranks(head) == sorted(pinned)


def test_completion_and_chat_answer(head: Host) -> None:
    assert completion(head).strip()
    chat = ask(
        head,
        "/v1/chat/completions",
        {"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 8},
    )
    assert chat["choices"][0]["message"]["content"].strip()
    assert chat["usage"]["completion_tokens"] == 8


def test_the_same_question_gets_the_same_answer(head: Host) -> None:
    assert completion(head) == completion(head)


def test_the_ranks_talk_over_the_fabric(head: Host) -> None:
    counters = "/sys/class/net/{}/statistics/tx_bytes"

    def sent(interface: str) -> int:
        return int(head.check_output(f"cat {counters.format(interface)}"))

    fabric, management = sent("enp1s0f1np1"), sent("enP7s7")
    completion(head, tokens=64)
    # 64 tokens with tensor parallelism. The management network carries this test's own SSH.
    assert sent("enp1s0f1np1") - fabric > 300_000
    assert sent("enP7s7") - management < 100_000

"""The prompts of a benchmark, and the program that gives them to vLLM's client."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import io_prompts


def words(text: str) -> int:
    return len(text.split())


def texts(tokens: int, seed: str, number: int = 4) -> list[str]:
    return list(itertools.islice(io_prompts.texts(tokens, 200, seed, words), number))


@pytest.mark.parametrize("tokens", [100, 1000, 8192])
def test_prompts_have_the_wanted_length_and_end_with_a_question(tokens: int) -> None:
    for text in texts(tokens, "7"):
        assert 0.9 * tokens - 20 < words(text) <= tokens
        assert text.endswith("in at least 200 words.") and "{" not in text


def test_code_is_valid() -> None:
    code = [text.rpartition("\n\n")[0] for text in texts(400, "7") if text.startswith("#")]
    assert len(code) == 2
    for text in code:
        compile(text, "prompt", "exec")


def test_no_two_prompts_start_alike_and_a_seed_repeats_them() -> None:
    found = [*texts(100, "7"), *texts(100, "8"), *texts(200, "9")]
    assert len({text[:20] for text in found}) == len(found)
    assert texts(100, "7") == found[:4]


def row(content: Any) -> str:
    return json.dumps({"category": "mixed", "messages": [{"role": "user", "content": content}]})


def test_rows_of_speed_bench_are_chosen_by_the_seed(tmp_path: Path) -> None:
    file = tmp_path / "throughput_8k.jsonl"
    file.write_text("".join(f"{row(f'prompt {number}')}\n" for number in range(50)), encoding="utf-8")
    first, second = (io_prompts.rows(str(file), 10, seed) for seed in ("7", "8"))
    assert len(set(first)) == 10 and set(first) != set(second)
    assert all(text.startswith("prompt ") for text in first)
    assert len(io_prompts.rows(str(file), 99, "7")) == 50


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("secret", "row 1 of {} has no messages"),
        ('{"messages": []}', "row 1 of {} has no messages"),
        (row(7), "row 1 of {} has no messages"),
        (row("x" * io_prompts.MOST), f"row 1 of {{}} is longer than {io_prompts.MOST} bytes"),
    ],
)
def test_another_file_is_refused_without_its_content(tmp_path: Path, line: str, expected: str) -> None:
    file = tmp_path / "rows"
    file.write_text(f"{line}\n", encoding="utf-8")
    with pytest.raises(ValueError) as error:
        io_prompts.rows(str(file), 1, "7")
    assert str(error.value) == expected.format(file)


#: A stand-in with vLLM's names: the dataset needs a reader of files, and the client prints its samples.
VLLM = {
    "benchmarks/datasets.py": """
class CustomDataset:
    def __init__(self):
        self.load_data()

    def load_data(self):
        raise ImportError("pandas")

    def sample(self, tokenizer, num_requests, output_len):
        return [(each["prompt"], output_len) for each in self.data]
""",
    "entrypoints/cli/main.py": """
import json, sys
from types import SimpleNamespace
from vllm.benchmarks import datasets

def tokenizer(text, add_special_tokens):
    assert not add_special_tokens
    return SimpleNamespace(input_ids=text.split())

def main():
    print(json.dumps([sys.argv, datasets.CustomDataset().sample(tokenizer=tokenizer, num_requests=3, output_len=5)]))
""",
}


def test_the_program_gives_vllms_client_its_prompts(tmp_path: Path) -> None:
    for name, text in VLLM.items():
        (tmp_path / "vllm" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "vllm" / name).write_text(text, encoding="utf-8")
    (tmp_path / "rows").write_text(f"{row('one prompt')}\n", encoding="utf-8")

    def run(file: str) -> Any:
        source = json.dumps({"tokens": 100, "words": 200, "seed": "7", "file": file})
        command = [sys.executable, "-c", io_prompts.program(), source, "bench", "serve"]
        return json.loads(subprocess.run(command, cwd=tmp_path, check=True, stdout=subprocess.PIPE).stdout)

    assert run("") == [["vllm", "bench", "serve"], [[text, 5] for text in texts(100, "7", 3)]]
    assert run(str(tmp_path / "rows"))[1] == [["one prompt", 5]]

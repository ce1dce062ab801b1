"""Stand-ins for a benchmark without a node: vLLM's client, systemd-run, and a result.

The keys of a result are those of vLLM 0.32.0, benchmarks/serve.py; the numbers are made up, and consistent.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from run_module import program

#: systemd-run: options, then the command. systemd replaces $$ in a command, and gives a unit its credentials.
_SYSTEMD_RUN = """
import json, os, sys
folder, words = {folder!r}, sys.argv[1:]
with open(folder + "/systemd-run.json", "w", encoding="utf-8") as file:
    json.dump(words, file)
environment = dict(os.environ, CREDENTIALS_DIRECTORY=folder + "/credentials", TMPDIR=folder + "/private")
while words[0].startswith("--"):
    words.pop(0)
os.execvpe(words[0], [word.replace("$$", "$") for word in words], environment)
"""
#: vllm bench serve: prints lines, and writes the result that the test prepared.
_VLLM = """
import json, os, shutil, sys
folder = {folder!r}
with open(folder + "/vllm.json", "w", encoding="utf-8") as file:
    json.dump({{"argv": sys.argv[1:], "environment": dict(os.environ)}}, file)
print("Starting main benchmark run...")
if os.path.exists(folder + "/error"):
    print("Traceback (most recent call last):", "ValueError: key is", os.environ.get("OPENAI_API_KEY"), sep="\\n", file=sys.stderr)
    sys.exit(1)
target = next(word.partition("=")[2] for word in sys.argv if word.startswith("--result-dir="))
shutil.copy(folder + "/result.json", target)
"""


def install(folder: Path, result: Any, key: str = "") -> Path:
    """Write the programs and the result into a folder, and return the folder with systemd-run for PATH."""
    for name in ("credentials", "private", "runtime/bin"):
        (folder / name).mkdir(parents=True)
    (folder / "credentials/key").write_text(f"{key}\n", encoding="utf-8")
    (folder / "result.json").write_text(result if isinstance(result, str) else json.dumps(result), encoding="utf-8")
    for name, code, place in (
        ("systemd-run", _SYSTEMD_RUN, folder / "bin"),
        ("vllm", _VLLM, folder / "runtime/bin"),
        # It gets the program of io_prompts.
        ("python3", _VLLM, folder / "runtime/bin"),
    ):
        (folder / f"{name}.py").write_text(code.format(folder=str(folder)), encoding="utf-8")
        program(place, name, f'exec {sys.executable} {folder}/{name}.py "$@"')
    return folder / "bin"


def result(requests: int = 6, output_tokens: int = 128, **changes: Any) -> dict[str, Any]:
    """Return a result of one request at a time with 50 tokens per second."""
    latencies = {"ttft": 210.5, "tpot": 20.0, "itl": 20.1}
    statistics = {
        f"{kind}_{name}_ms": value for name, value in latencies.items() for kind in ("mean", "median", "std", "p99")
    }
    seconds = requests * (0.2105 + 0.02 * (output_tokens - 1))
    return {
        "date": "20261122-213000",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "tiny",
        "tokenizer_id": "/srv/models/tiny",
        "num_prompts": requests,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 1,
        "duration": seconds,
        "completed": requests,
        "failed": 0,
        "total_input_tokens": requests * 1024,
        "total_output_tokens": requests * output_tokens,
        "request_throughput": requests / seconds,
        "request_goodput": None,
        "output_throughput": requests * output_tokens / seconds,
        "total_token_throughput": requests * (1024 + output_tokens) / seconds,
        "latencies": [2.75] * requests,
        "queue_times": [0.0] * requests,
        "max_output_tokens_per_s": 51.0,
        "max_concurrent_requests": 2,
        "rtfx": 0.0,
        **statistics,
        **changes,
    }

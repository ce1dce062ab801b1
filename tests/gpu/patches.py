"""Compare on a real GPU: vLLM patched by vllm_patch, the same vLLM unpatched, and with flags and variables only.

    .venv/bin/python tests/gpu/patches.py --python /opt/vllm/bin/python --folder /var/tmp/moe [--capability 12.1]

Needs some GB of GPU memory and an environment with a CUDA build of vLLM 0.20 or newer, which no other process may use
meanwhile. Ansible patches its package and restores it; after a killed run, restore it with `state: absent`. A small
model was trained to recite passages of a text (moe.py). In each kind of FP8, it is served in three variants: as
shipped; with the flags and variables that mechanism auto returns for the capability; patched by mechanism source. Each
server gets the opening of a passage at temperature 0 and has to return the rest of the passage. Afterwards FOLDER
contains report.json with every token and logprob, report.md, and vLLM's logs. The
exit status is 1 if a check fails. A model that does not come up as shipped is a finding, not a failure.

Standard library only. Run it with a Python that has ansible-core, such as that of .venv.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from adhoc import conclude, module, parsed, parser, running, until_healthy
from client import complete

PATCHES = ["w8a8", "w8a8_torch", "fp8_moe_oracle"]
VARIANTS = ("shipped", "auto", "source")
PAIRS = (("auto", "source"), ("shipped", "auto"), ("shipped", "source"))


@dataclass(frozen=True)
class Model:
    """A folder from moe.py, its launch arguments, and whether patches and flags lead to the same kernels and
    numbers."""

    folder: str
    arguments: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    same: bool = True


MODELS = {
    # CUTLASS determines the kernel, and whether activations are scaled per token. Only the patch changes the latter.
    "per-tensor, online": Model("bf16", ("--quantization", "fp8"), same=False),
    "per-tensor, static": Model("static"),
    "per-channel": Model("channel"),
    # DeepGEMM has priority over CUTLASS, and no patch changes it.
    "block-wise": Model("block", environment={"VLLM_USE_DEEP_GEMM": "0"}),
}
SERVE = (
    "--served-model-name moe --enforce-eager --no-enable-prefix-caching --max-model-len 1024 --max-num-seqs 4 --seed 0"
).split()
#: Bytes of KV cache, and the free share of GPU memory: several servers start at once.
MEMORY = "--kv-cache-memory-bytes 268435456 --gpu-memory-utilization 0.05".split()
#: Lines of vLLM's log that name the chosen kernels.
SELECTED = re.compile(r"Selected \w+ for \w+|Using \w+ Fp8 MoE backend")
OURS = re.compile(r".+ \(gb10\.cluster\)")
#: Parts of vLLM's log lines, apart from the message, that differ between runs. The process's name is kept.
_PLACE = re.compile(
    r" pid=\d+(?=\) )|(?<=\) )[A-Z]+ [\d-]+ [\d:]+ \[[^]]*\] |^[A-Z]+ [\d-]+ [\d:]+ \[[^]]*\] ", re.MULTILINE
)
#: Calls the patched functions. Arguments: names of modules and functions.
ASK = """
import importlib, json, sys
answers = {}
for name in sys.argv[1:]:
    module, _, rest = name.partition(":")
    found = importlib.import_module("vllm." + module)
    for part in rest.split("."):
        found = getattr(found, part)
    answer = found()
    answers[rest] = answer[0] if isinstance(answer, tuple) else answer
print("ANSWERS " + json.dumps(answers))
"""
FUNCTIONS = (
    "model_executor.layers.quantization.utils.w8a8_utils:cutlass_fp8_supported",
    "model_executor.layers.quantization.utils.w8a8_utils:cutlass_block_fp8_supported",
    "model_executor.kernels.linear.scaled_mm.cutlass:CutlassFP8ScaledMMLinearKernel.is_supported",
    "model_executor.kernels.linear.scaled_mm.cutlass:CutlassFp8BlockScaledMMKernel.is_supported",
    "model_executor.kernels.linear.scaled_mm.flashinfer:FlashInferFP8ScaledMMLinearKernel.is_supported",
)


@dataclass
class Case:
    """One server: its inputs and its result.

    ``answers``: one {tokens, logprobs, margins} per passage, empty if it failed.
    """

    model: str
    variant: str
    command: list[str]
    environment: dict[str, str]
    log: Path
    port: int
    seconds: float = 0.0
    failure: str = ""
    answers: list[dict[str, Any]] = field(default_factory=list)

    @property
    def url(self) -> str:
        """The server's address."""
        return f"http://127.0.0.1:{self.port}"

    def lines(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the pattern's matches in the log, each once, in order."""
        return list(
            dict.fromkeys(
                match[0]
                for match in pattern.finditer(_PLACE.sub("", self.log.read_text(encoding="utf-8", errors="replace")))
            )
        )


def digests(package: Path) -> dict[str, str]:
    """Return the digest of every file in the package's folder, except bytecode, which vLLM itself creates."""
    paths = [path for path in sorted(package.rglob("*")) if path.is_file() and path.parent.name != "__pycache__"]
    return {str(path.relative_to(package)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def ask_functions(python: str) -> dict[str, bool]:
    """Return the results of the functions to patch, from a new process. Exits if it fails."""
    result = subprocess.run([python, "-c", ASK, *FUNCTIONS], capture_output=True, text=True, check=False)
    answers = [line.removeprefix("ANSWERS ") for line in result.stdout.splitlines() if line.startswith("ANSWERS ")]
    if result.returncode != 0 or not answers:
        sys.exit(f"calling vLLM's functions failed:\n{result.stdout}{result.stderr}")
    return dict(json.loads(answers[0]))


def serve(case: Case, passages: Sequence[Mapping[str, list[int]]], limit: int) -> Case:
    """Start a server, query it, stop it. ``limit``: seconds until it must be up."""
    with running(case.command, case.environment, case.log) as process:
        try:
            case.seconds = until_healthy(case.url, [process], limit)
            case.answers = [complete(case.url, passage["opening"], len(passage["answer"])) for passage in passages]
        except (OSError, RuntimeError) as error:
            case.failure = str(error)
    return case


def cases(options: argparse.Namespace, variants: Iterable[str], auto: Mapping[str, Any]) -> list[Case]:
    """Return the servers of these variants, each with its own port and cache."""
    result = []
    for variant in variants:
        flags, variables = (auto["flags"], auto["environment"]) if variant == "auto" else ([], {})
        for name in options.models:
            model = MODELS[name]
            label, port = (
                f"{model.folder}-{variant}",
                options.port + 10 * VARIANTS.index(variant) + list(MODELS).index(name),
            )
            command = [
                options.python,
                "-m",
                "vllm.entrypoints.cli.main",
                "serve",
                str(options.folder / "models" / model.folder),
                *SERVE,
                *MEMORY,
            ]
            command += ["--host", "127.0.0.1", "--port", str(port), *model.arguments, *flags]
            own = {
                "VLLM_CACHE_ROOT": str(options.folder / "cache" / label),
                "HF_HUB_OFFLINE": "1",
                "VLLM_NO_USAGE_STATS": "1",
            }
            environment = os.environ | own | dict(model.environment) | variables
            result.append(Case(name, variant, command, environment, options.folder / f"{label}.log", port))
    return result


def difference(one: Sequence[Mapping[str, Any]], other: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Compare answers. ``logprob``, ``margin``: the largest difference over tokens that follow the same tokens.

    ``parted``: for each passage with different tokens, the index of the first one, and both margins there.
    """
    parted, largest = [], {"logprob": 0.0, "margin": 0.0}
    for number, (a, b) in enumerate(zip(one, other, strict=True)):
        same = next(
            (index for index, pair in enumerate(zip(a["tokens"], b["tokens"], strict=True)) if pair[0] != pair[1]),
            len(a["tokens"]),
        )
        for what, value in largest.items():
            largest[what] = max(
                [value, *(abs(x - y) for x, y in zip(a[f"{what}s"][:same], b[f"{what}s"][:same], strict=True))]
            )
        if same < len(a["tokens"]):
            parted.append({"passage": number, "token": same, "margins": [a["margins"][same], b["margins"][same]]})
    return {**largest, "parted": parted}


def main() -> None:
    given = parser(__doc__, "for the models, logs and reports")
    given.add_argument("--python", required=True, help="the interpreter of an environment with a CUDA build of vLLM")
    given.add_argument("--capability", help="capability to patch for (default: that of the GPU)")
    given.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    given.add_argument("--port", type=int, default=8400)
    given.add_argument(
        "--start-seconds", type=int, default=900, help="limit for a server to come up, including compilation"
    )
    options = parsed(given)
    conclude(options.folder, "Patches of vLLM", measure(options))


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Return the report: GPU, patches, servers, answers and checks."""
    gpus = module("gpu_info", {})
    if not gpus["gpus"]:
        sys.exit(f"no GPU: {gpus['reason']}")
    capability = (
        options.capability
        or gpus["gpus"][0]["capability"]
        or sys.exit("the GPU's capability is unknown. Fix: set --capability")
    )
    arguments = {"python": options.python, "capability": capability, "patches": PATCHES}
    auto = module("vllm_patch", arguments, check=True)
    if auto["changed"]:
        sys.exit(
            f"vLLM {auto['vllm_version']}: mechanism auto patches files, or they were patched before. "
            "Expected: an unpatched vLLM for which flags suffice."
        )
    package = Path(auto["package_dir"])
    before = digests(package)
    subprocess.run(
        [options.python, str(Path(__file__).with_name("moe.py")), str(options.folder / "models")], check=True
    )
    passages, training = (
        json.loads((options.folder / "models" / name).read_text(encoding="utf-8"))
        for name in ("passages.json", "training.json")
    )
    ask = partial(serve, passages=passages, limit=options.start_seconds)
    with ThreadPoolExecutor(len(VARIANTS) * len(MODELS)) as pool:
        functions = {"shipped": pool.submit(ask_functions, options.python)}
        served = list(pool.map(ask, cases(options, ("shipped", "auto"), auto)))
        functions["shipped"].result()  # must end before the patch
        try:
            source = module("vllm_patch", {**arguments, "mechanism": "source"})
            again = module("vllm_patch", {**arguments, "mechanism": "source"})
            functions["source"] = pool.submit(ask_functions, options.python)
            served += pool.map(ask, cases(options, ("source",), auto))
            functions["source"].result()  # must end before the files are restored
        finally:
            absent = module("vllm_patch", {**arguments, "state": "absent"})
    after = digests(package)
    report = {
        "gpu": gpus,
        "capability": capability,
        "vllm_version": auto["vllm_version"],
        "cuda_build": auto["cuda_build"],
        "training": training,
        "passages": passages,
        "auto": {key: auto[key] for key in ("flags", "environment", "patches")},
        "source": {"changed": [source["changed"], again["changed"]], "patches": source["patches"]},
        "absent": absent["patches"],
        "functions": {variant: asked.result() for variant, asked in functions.items()},
        "files": {
            "all": len(before),
            "changed": sorted(path for path in before.keys() | after.keys() if before.get(path) != after.get(path)),
        },
        "servers": [
            {"model": case.model, "variant": case.variant, "seconds": case.seconds, "failure": case.failure}
            | {
                "recited": [
                    answer["tokens"] == passage["answer"]
                    for answer, passage in zip(case.answers, passages, strict=False)
                ]
            }
            | {"least_margin": min((margin for answer in case.answers for margin in answer["margins"]), default=None)}
            | {"selected": sorted(case.lines(SELECTED)), "ours": case.lines(OURS), "answers": case.answers}
            for case in served
        ],
    }
    by = {(case.model, case.variant): case.answers for case in served if case.answers}
    report["differences"] = {
        model: {
            f"{one} and {other}": difference(by[model, one], by[model, other])
            for one, other in PAIRS
            if {(model, one), (model, other)} <= by.keys()
        }
        for model in options.models
    }
    return report | {"checks": checks(report)}


def linear(server: Mapping[str, Any]) -> list[str]:
    """Return the kernels of the linear layers."""
    return [line for line in server["selected"] if line.startswith("Selected ")]


def moe(server: Mapping[str, Any]) -> str:
    """Return the backend of the experts from vLLM's log, or from the patch's line, which comes before it."""
    found = {line.split()[1] for line in server["selected"] if line.startswith("Using ")}
    found |= {"TRITON" for line in server["ours"] if "Triton is the FP8 MoE backend" in line}
    return ", ".join(sorted(found))


def checks(report: Mapping[str, Any]) -> dict[str, bool]:
    """Return the checks, each with its result."""
    of = {(server["model"], server["variant"]): server for server in report["servers"]}
    models = list(report["differences"])
    # A build for CUDA 13 has code for 12.x; for these, auto leaves CUTLASS on.
    disabled = "VLLM_DISABLED_KERNELS" in report["auto"]["environment"]
    without = [
        server
        for server in report["servers"]
        if server["variant"] == "source" or (server["variant"] == "auto" and disabled)
    ]
    alike = [model for model in models if MODELS[model].same and disabled]
    up = {variant: [model for model in models if not of[model, variant]["failure"]] for variant in VARIANTS}
    result = {
        "gpu_info reports the capability that vLLM was patched for": report["gpu"]["gpus"][0]["capability"]
        == report["capability"],
        "a second run changes nothing": report["source"]["changed"] == [True, False],
        "patched functions return False": not any(report["functions"]["source"].values()),
        "each server's log confirms this": all(
            any(
                line.endswith(f"{name}() is False on {report['capability']} (gb10.cluster)")
                for line in of[model, "source"]["ours"]
            )
            for model in models
            for name in ("cutlass_fp8_supported", "cutlass_block_fp8_supported")
        ),
        "the log of the process that runs the model confirms that the patch chose Triton": all(
            f"(EngineCore) Triton is the FP8 MoE backend on {report['capability']} (gb10.cluster)"
            in of[model, "source"]["ours"]
            for model in models
        ),
        "no other log mentions a patch": not any(
            server["ours"] for server in report["servers"] if server["variant"] != "source"
        ),
        "linear layers do not use CUTLASS or FlashInfer, patched or by flags that disable them": all(
            linear(server) and not re.search("Cutlass|FlashInfer", "".join(linear(server))) for server in without
        ),
        "Triton runs the experts, patched and by flags": {
            moe(server) for server in report["servers"] if server["variant"] != "shipped"
        }
        == {"TRITON"},
        "every model comes up, patched and by flags": up["auto"] == up["source"] == models,
        **{
            f"{variant}: every token of every answer is right: {'; '.join(up[variant])}": all(
                all(of[model, variant]["recited"]) for model in up[variant]
            )
            for variant in VARIANTS
            if up[variant]
        },
        "all servers that came up return the same tokens": not any(
            found["parted"] for pairs in report["differences"].values() for found in pairs.values()
        ),
        f"the package's {report['files']['all']} files are unchanged afterwards": report["files"]["changed"] == [],
    }
    if alike:
        result[f"same linear kernels patched and by flags: {'; '.join(alike)}"] = all(
            linear(of[model, "source"]) == linear(of[model, "auto"]) for model in alike
        )
        result[f"same tokens, logprobs and margins patched and by flags: {'; '.join(alike)}"] = all(
            report["differences"][model].get("auto and source") == {"logprob": 0.0, "margin": 0.0, "parted": []}
            for model in alike
        )
    return result


if __name__ == "__main__":
    main()

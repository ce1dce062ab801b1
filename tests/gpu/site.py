# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Run site.yml unchanged on one or two lab hosts with a real GPU each, connected by simulated QSFP cables.

    .venv/bin/python tests/gpu/site.py pack --folder F --pins tests/gpu/vllm-0.33.0-cu130-x86_64-py313.txt [--there
    FREEZE] python3 tests/gpu/site.py unpack --folder F [--python PYTHON]
    python3 tests/gpu/site.py train up check site recite rerun … down --folder F --out O

`pack` needs root, Debian and a network. It collects the root file system of the hosts, Ansible and the pinned
wheels, as F/parts. The other commands run as root on the machine with the GPUs, which needs no network, no systemd and
only Python 3.12 or newer, tar and the programs of util-linux. Copy the parts into the F/parts there. FREEZE is that
machine's `PYTHON -m pip freeze`: NVIDIA's libraries in it do not travel. README.md has the steps and the
purpose of each.

Each step writes STEP.json and STEP.log into O, prints a line, and ends the program with 1 if it fails. Its JSON has the
compilers that ran in the hosts with their units, the lowest MemAvailable, and the choices and times that vLLM
logged.

Standard library only.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import adhoc
import parts
from client import complete, recited, request
from root import CHECKOUT, DRIVER, TOOLKIT, Result, Root

from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices, start
from ansible_collections.gb10.cluster.plugins.module_utils.serve import backends

LAB, PREFIX = "gpu", parts.PREFIX
#: Bytes of a host's journals in STEP.log.
MOST_LOG = 2_000_000
UNITS = ("gb10-vllm", "gb10-ray", "gb10-watchdog")
COMPILERS = {"ninja", "nvcc", "cicc", "ptxas", "cc1plus", "fatbinary", "cudafe++"}
#: Seconds between two samples.
SAMPLE = 0.5
#: Variables of the steps of the same name: the plan's choices on 12.1 for this model, and FlashInfer.
DEFAULT121: dict[str, Any] = {
    "gpu_args": ["--attention-backend=TRITON_ATTN", "--moe-backend=triton", "--no-enable-flashinfer-autotune"],
    "gpu_env": backends.environment("fp8", flashinfer=False),
}
FLASHINFER = {"gpu_args": ["--attention-backend=FLASHINFER"], "gpu_env": backends.environment("fp8", flashinfer=True)}
MODEL, BROKEN, DRAFT, LARGE = "/srv/models/moe", "/srv/models/broken", "/srv/models/draft", "/srv/models/large"
#: The recipe of the step of this name, in the schema of NVIDIA's catalog, and its variables. No host has a container.
IMAGE = "lab.example/vllm:1"
COMMAND = f"""export VLLM_USE_V2_MODEL_RUNNER="0"

vllm serve lab/text --host 0.0.0.0 --port 8000 \\
  --max-num-batched-tokens 4096 \\
  --speculative-config '{{"method": "draft_model", "model": "{DRAFT}", "num_speculative_tokens": 4}}'"""
SETUP = f"docker run -e NCCL_IGNORE_CPU_AFFINITY=1 -e VLLM_FLOAT32_MATMUL_PRECISION=high {IMAGE}\n"
RECIPE = {
    "gb10_recipe": "nvidia:text",
    "gb10_model": "/srv/models/text",
    "gb10_served_model_name": "text",
    "gb10_recipe_images": {IMAGE: "native"},
}
#: The conditions of the steps text and random: within the positions of the trained models.
SWEEP = {
    "benchmark_model_mode": "sweep",
    "benchmark_model_concurrencies": [1, 4],
    "benchmark_model_input_tokens": [512],
    "benchmark_model_output_tokens": 256,
}
#: The newest sample of the flight recorder.
SAMPLE_FILE = "/run/gb10-flight-recorder/sample.json"
#: The guard of the memory, and a process that pins host memory by CUDA's driver until it acts: from the outside, or as a
#: process of the ranks' service. Source of the constants: cuda.h.
GUARD_UNIT, GUARD_STARTS = "gb10-memory-guard", "/var/lib/gb10-memory-guard/starts.json"
PIN = f"""
import ctypes, sys, time
def acted():
    return "restarted" in open("{GUARD_STARTS}").read()
def available():
    return int(next(line for line in open("/proc/meminfo") if line.startswith("MemAvailable")).split()[1]) / 2**20
if sys.argv[2] == "ranks":
    open("/sys/fs/cgroup/system.slice/gb10-vllm.service/cgroup.procs", "w").write("0")
cuda, context, device = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_int()
for code in (cuda.cuInit(0), cuda.cuDeviceGet(ctypes.byref(device), 0),
             cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), cuda.cuCtxSetCurrent(context)):
    assert code == 0, code
until, pinned = time.monotonic() + 120, 0
while not acted() and time.monotonic() < until:
    if available() > float(sys.argv[1]) - 2:
        code = cuda.cuMemHostAlloc(ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(1 << 30), 1)
        assert code == 0, code
        pinned += 1
        print(round(time.time(), 2), pinned, "GiB pinned", round(available(), 1), "available", flush=True)
    else:
        time.sleep(0.05)
"""
#: Lines of vLLM's log about the steps of a start, and about compilation.
TIMES = re.compile(
    r"(?:init engine|Loading weights took|Model loading took|torch\.compile t|Compiling a graph|Dynamo "
    r"bytecode|Directly load|Graph capturing|GPU KV cache size|Application startup complete|Triton kernel "
    r"JIT|[^\n]{0,60}(?:JIT comp|jit comp|FlashInfer|autotun(?:e|ing) ))[^\n]{0,160}"
)


class Failed(Exception):
    """A step's expectation does not hold."""


@dataclass
class Step:
    """A running step: its evidence and its log."""

    name: str
    log: Path
    evidence: dict[str, Any] = field(default_factory=dict)


class Site:
    """The hosts, and the steps. A step returns nothing, fills the evidence, and raises Failed."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.folder, self.gpus = options.folder.resolve(), not options.without_gpu
        self.root = Root(self.folder)
        self.names = [f"spark{number + 1}" for number in range(options.hosts)]
        self.devices = options.gpus or options.hosts
        self.python, self.extra = options.python, [*options.extra_vars]
        self.arguments = {"flashinfer": options.flashinfer, "default121": options.default121}
        self.limit = options.limit
        self.inventory = self.folder / "inventory"
        self.step = Step("", Path(os.devnull))

    # -- the machine ----------------------------------------

    def prepare(self) -> None:
        """Mount the root, and write the inventory next to the records that earlier playbooks wrote."""
        self.root.mount()
        machine = {
            "gpu_folder": str(self.folder),
            "gpu_binds": self.binds(),
            "gpu_files": self.files(),
            "gpu_args": [],
            "gpu_env": {},
        }
        parts.write_inventory(self.inventory, self.names, machine)

    def binds(self) -> list[dict[str, Any]]:
        """Return the hosts' shared folders: the models, the driver and the toolkit for all, and a GPU for each."""
        shared = {
            str(self.folder / "models/block"): MODEL,
            str(self.folder / "models/broken"): BROKEN,
            str(TOOLKIT): str(TOOLKIT),
        }
        if (self.folder / "pair").exists():
            shared |= {str(self.folder / "pair/model"): "/srv/models/text", str(self.folder / "pair/draft"): DRAFT}
        if (self.folder / "large").exists():
            shared[str(self.folder / "large")] = LARGE
        if self.gpus:
            shared |= {
                path: path for path in (str(DRIVER), "/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
            }
        result: list[dict[str, Any]] = [{"src": source, "dest": place} for source, place in shared.items()]
        for number, name in enumerate(self.names if self.gpus else ()):
            device = f"/dev/nvidia{number % self.devices}"
            result.append({"src": device, "dest": device, "nodes": [name]})
        return result

    def files(self) -> list[dict[str, str]]:
        """Return the copied files. The libraries of the driver are found by the linker's cache, as on a Spark."""
        if not self.gpus:
            return []
        libraries, smi = self.folder / "nvidia.conf", self.folder / "nvidia-smi"
        libraries.write_text(f"{DRIVER}/lib64\n", encoding="ascii")
        shutil.copy(
            shutil.which("nvidia-smi", path=f"{DRIVER}/bin:{os.environ['PATH']}") or sys.exit("nvidia-smi is missing"),
            smi,
        )
        return [
            {"src": str(smi), "dest": "/usr/bin/nvidia-smi"},
            {"src": str(libraries), "dest": "/etc/ld.so.conf.d/nvidia.conf"},
        ]

    def play(self, playbook: str, *arguments: str, fails: bool = False, limit: float = 0) -> Result:
        """Run a playbook. Its seconds, recap and error become evidence."""
        self.write(f"\n== ansible-playbook {playbook} {' '.join(arguments)}\n")
        extra = [word for each in self.extra for word in ("-e", each)]
        done = self.root.run(
            ["ansible-playbook", playbook, "-i", str(self.inventory), *extra, *arguments],
            limit or self.limit,
            self.step.log,
        )
        recap = re.findall(r"^(\w+) +: (ok=.*?) *$", done.output, re.MULTILINE)
        entry = {
            "playbook": playbook,
            "arguments": arguments,
            "status": done.status,
            "seconds": round(done.seconds, 1),
            "recap": dict(recap),
        }
        if done.status:
            entry["error"] = done.output.rpartition("FAILED ****")[2][-3000:] or done.output[-3000:]
        self.step.evidence.setdefault("playbooks", []).append(entry)
        if bool(done.status) != fails:
            raise Failed(f"{playbook} ended with {done.status} after {done.seconds:.0f} s, see the error in the log")
        return done

    def ssh(self, name: str, command: str, limit: float = 60) -> Result:
        """Run a shell command on a host as root."""
        keys = f"/var/lib/gb10-lab/{LAB}/ssh"
        options = [
            f"UserKnownHostsFile={keys}/known_hosts",
            "ControlPath=none",
            "ConnectTimeout=5",
            "BatchMode=yes",
            "LogLevel=ERROR",
        ]
        words = [word for option in options for word in ("-o", option)]
        address = f"nvidia@{PREFIX}.{11 + self.names.index(name)}"
        return self.root.run(
            ["ssh", "-i", f"{keys}/id_ed25519", *words, address, f"sudo sh -c {shlex.quote(command)}"], limit
        )

    def write(self, text: str) -> None:
        with self.step.log.open("a", encoding="utf-8") as file:
            file.write(text)

    # -- the API ----------------------------------------

    @property
    def url(self) -> str:
        return f"http://{PREFIX}.11:8000"

    def key(self) -> str:
        return self.ssh(self.names[0], "cat /etc/gb10/api.key").output.strip()

    def passages(self) -> list[dict[str, list[int]]]:
        return adhoc.passages(self.folder / "models")

    def answers(self, key: str, seconds: float = 10) -> bool:
        """Return whether a completion of one token succeeds."""
        body = {"model": "moe", "prompt": [1, 2, 3], "max_tokens": 1, "temperature": 0}
        try:
            request(self.url, "/v1/completions", body, seconds, key)
        except OSError:
            return False
        return True

    def answers_again(self, key: str, limit: float) -> float:
        """Return the seconds until the API answers."""
        began = time.monotonic()
        while not self.answers(key):
            if time.monotonic() - began > limit:
                raise Failed(f"no answer within {limit:.0f} s")
            time.sleep(1)
        return round(time.monotonic() - began, 1)

    def recite(self) -> None:
        """Verify that every token of every passage is right."""
        passages = self.passages()
        right = recited(self.url, passages, self.key())
        self.step.evidence["recited"] = f"{right} of {len(passages)}"
        if right < len(passages):
            raise Failed(f"{right} of {len(passages)} passages are right")

    # -- steps ----------------------------------------

    def train(self) -> None:
        """Train the model, and make a copy of it that vLLM cannot load."""
        models = self.folder / "models"
        if self.gpus and not (models / "training.json").exists():
            self.trained("moe.py", models)
        elif not self.gpus:
            # Without the passages, which only the trained model recites.
            script = str(Path(CHECKOUT) / "tests/lab/roles/lab/files/make_model.py")
            shutil.rmtree(models, ignore_errors=True)
            models.mkdir()
            self.root.run(["python3", script, str(models / "block"), "moe"], self.limit, self.step.log)
        shutil.rmtree(models / "broken", ignore_errors=True)
        shutil.copytree(models / "block", models / "broken")
        config = models / "broken/config.json"
        document = json.loads(config.read_text(encoding="utf-8"))
        # The weights have another shape. Their names and bytes, which the planner reads, are right.
        document["head_dim"] = 2 * document.get("head_dim", document["hidden_size"] // document["num_attention_heads"])
        config.write_text(json.dumps(document), encoding="utf-8")
        readable(models)

    def pair(self) -> None:
        """Train a model and its draft on text like the benchmark's, before the hosts boot."""
        self.trained("draft.py", self.folder / "pair")
        readable(self.folder / "pair")

    def trained(self, program: str, folder: Path) -> None:
        """Train the models of a program into a folder."""
        command = [self.python, str(Path(__file__).with_name(program)), str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=self.limit)
        self.write(done.stdout + done.stderr)
        if done.returncode:
            raise Failed(done.stderr[-1000:])
        self.step.evidence |= json.loads((folder / "training.json").read_text(encoding="utf-8"))

    def up(self) -> None:
        """Boot the hosts, with their GPUs."""
        self.play("tests/lab/playbooks/lab_up.yml")
        for name in self.names:
            facts = {
                "system": self.ssh(
                    name, "systemctl is-system-running --wait; uname -r; python3 -V; command -v ninja || echo no ninja"
                ).output
            }
            if self.gpus:
                # As the package of a driver does.
                query = "nvidia-smi --query-gpu=name,compute_cap,driver_version --format=csv,noheader"
                facts["gpu"] = self.ssh(name, f"ldconfig; nvidia-smi -L && {query}").output
                if len(re.findall(r"^GPU \d", facts["gpu"], re.MULTILINE)) != 1:
                    raise Failed(f"{name}: expected one GPU; found {facts['gpu']}")
            self.step.evidence[name] = facts
            if "no ninja" not in facts["system"]:
                raise Failed(f"{name} has /usr/bin/ninja")

    def site(self) -> None:
        """site.yml, with Ray."""
        self.play("site.yml")
        self.started()

    def rerun(self) -> None:
        """The rerun changes nothing."""
        done = self.play("site.yml")
        if re.search(r"changed=[1-9]", done.output):
            tasks = re.split(r"^TASK \[", done.output, flags=re.MULTILINE)
            raise Failed(
                f"changed: {'; '.join(task.partition(']')[0] for task in tasks if re.search('^changed: ', task, re.MULTILINE))}"
            )

    def restart(self) -> None:
        """The second start, by systemctl."""
        key, began = self.key(), time.time()
        for name in self.names:
            self.ssh(name, "systemctl --no-block restart gb10-vllm.service 2>/dev/null; true")
        time.sleep(3)
        self.answers_again(key, self.limit)
        self.step.evidence["second_start_seconds"] = round(time.time() - began, 1)
        self.started()

    def starts(self, executor: str) -> None:
        """Measure a start with the kernels that exist, with each way in which vLLM makes its processes."""
        for method in ("spawn", "fork"):
            began = time.time()
            self.play("site.yml", "-e", self.with_default121({"VLLM_WORKER_MULTIPROC_METHOD": method}, executor))
            self.started()
            if self.head["started"] < began:
                self.restart()
            found = {"answers_after": self.head["start_seconds"], "parts": self.head["parts"]}
            self.step.evidence.setdefault("starts", {})[f"{executor}-{method}"] = found
            sys.stdout.write(f"{executor}, {method}: {found}\n")

    def with_default121(self, environment: Mapping[str, str], executor: str = "ray", *args: str, **more: str) -> str:
        """Return variables for a step: those of default121, and these."""
        return json.dumps(
            {
                "gb10_distributed_executor_backend": executor,
                "gpu_args": [*DEFAULT121["gpu_args"], *args],
                "gpu_env": {**DEFAULT121["gpu_env"], **environment},
                **more,
            }
        )

    def large(self) -> None:
        """Make a model of 10 GB for the steps loaders, mapped and instanttensor, before `up`."""
        (self.folder / "large_answer.json").unlink(missing_ok=True)
        script = Path(__file__).with_name("loaders.py")
        command = [self.python, script, "write", self.folder / "large", "--like", self.folder / "models/block"]
        subprocess.run(command, check=True, timeout=self.limit)
        readable(self.folder / "large")

    def loaders(self) -> None:
        """Read that model with each loader, from the disk."""
        source = Path(__file__).with_name("loaders.py").read_text(encoding="utf-8")
        python = "$(ls -d /opt/gb10/runtime/*/ | head -1)bin/python"
        command = f"cat >/run/loaders.py <<'END'\n{source}\nEND\ncd /run && {python} loaders.py read {LARGE} 2>&1"
        output = self.ssh(self.names[0], command, self.limit).output
        self.write(output)
        found = [json.loads(line) for line in output.splitlines() if line.startswith('{"loader"')]
        self.step.evidence["loaders"] = found
        sys.stdout.write("".join(f"{each}\n" for each in found))
        if not found or any("error" in each for each in found):
            raise Failed(f"{found or output[-2000:]}")

    def load(self, loader: str, executor: str) -> None:
        """Serve that model on both ranks by a loader. Its answer has to be that of the first loader."""
        environment = {"INSTANTTENSOR_IO_DEPTH": "16", "INSTANTTENSOR_BACKEND": "AIO,MMAP", "INSTANTTENSOR_DEBUG": "1"}
        arguments = [f"--load-format={loader}"]
        self.play("site.yml", "-e", self.with_default121(environment, executor, *arguments, gb10_model=LARGE))
        self.started()
        sys.stdout.write(f"{loader}, {executor}: {self.head['parts']}\n")
        answer = complete(self.url, [*range(100, 116)], 8, self.key())
        first = self.folder / "large_answer.json"
        if not first.exists():
            first.write_text(json.dumps(answer), encoding="utf-8")
        expected = json.loads(first.read_text(encoding="utf-8"))
        self.step.evidence["answers"] = [expected, answer]
        # Equal weights give equal logprobs, apart from the order of sums.
        apart = max(abs(one - other) for one, other in zip(answer["logprobs"], expected["logprobs"], strict=True))
        if answer["tokens"] != expected["tokens"] or apart > 0.05:
            raise Failed(f"the first loader answers {expected}, {loader} {answer}")

    def shown(self, playbook: str, *arguments: str) -> None:
        """Run a playbook. The end of its output becomes evidence."""
        self.step.evidence["screen"] = self.play(playbook, *arguments).output[-8000:]

    def other(self, variables: str) -> None:
        """Serve with other variables, and recite."""
        self.play("site.yml", "-e", self.arguments.get(variables, variables))
        self.started()
        self.recite()

    def recipe(self) -> None:
        """site.yml with a recipe in the schema of NVIDIA's catalog, whose draft the trained one is."""
        hardware, ranks = ("dgx-spark", "") if len(self.names) == 1 else ("dgx-spark-2gpu", " --tensor-parallel-size 2")
        workers = [{"id": "worker", "command": f"{COMMAND}{ranks} --headless"}] if ranks else []
        document = {
            "schema_version": 4,
            "title": "A trained model with its draft",
            "hardware": hardware,
            "backend": "vllm",
            "topology": {"node_count": len(self.names)},
            "runtime": {"kind": "container", "image": IMAGE, "setup_command": SETUP},
            "serve": {"command": f"{COMMAND}{ranks}", "additional_commands": workers},
        }
        path = self.folder / f"catalog/models/lab/text/{hardware}/linux/vllm/recipe.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document), encoding="utf-8")
        self.play("site.yml", "-e", json.dumps(self.served))
        self.started()

    @property
    def served(self) -> dict[str, Any]:
        return {**RECIPE, "gb10_nvidia_recipes": str(self.folder / "catalog")}

    def text(self) -> None:
        """Measure with text: the draft foresees a part of the answers."""
        self.measure("text")

    def random(self) -> None:
        """Measure with random tokens: it foresees less than half of that."""
        text = json.loads((self.folder / "accepted-text.json").read_text(encoding="utf-8"))
        random = self.measure("random")
        if not max(random) < min(text) / 2:
            raise Failed(f"accepted: {text} % with text, {random} % with random tokens")

    def measure(self, data: str) -> list[float]:
        """Run the benchmark, and return the percentage of accepted tokens of each run."""
        done = self.play(
            "playbooks/benchmark_model.yml", "-e", json.dumps({**self.served, **SWEEP, "benchmark_model_data": data})
        )
        self.step.evidence["screen"] = done.output[-4000:]
        newest = max((self.inventory / ".gb10/benchmarks").glob("*.json"), key=lambda path: path.stat().st_mtime)
        runs = json.loads(newest.read_text(encoding="utf-8"))["runs"]
        self.step.evidence["runs"] = runs
        shares = [run["acceptance_percent"] for run in runs]
        (self.folder / f"accepted-{data}.json").write_text(json.dumps(shares), encoding="utf-8")
        return shares

    def stopped(self) -> None:
        """Stop a rank by SIGSTOP. The watchdog restarts all, and the API answers again."""
        key = self.key()
        rank = self.rank(self.names[-1])
        os.kill(rank, signal.SIGSTOP)
        began = time.monotonic()
        try:
            while self.answers(key, 5):
                if time.monotonic() - began > 60:
                    raise Failed("the API still answers with a stopped rank")
            self.step.evidence |= {"rank": rank, "silent_after": round(time.monotonic() - began, 1)}
            self.answers_again(key, self.limit - 90)
        except Failed:
            if Path(f"/proc/{rank}").exists():
                os.kill(rank, signal.SIGCONT)
            raise
        self.step.evidence["answers_after"] = round(time.monotonic() - began, 1)
        self.started()

    def pinned(self) -> None:
        """Pin host memory, outside of the ranks and as one of their processes. The guard ends the ranks, and the API
        answers again each time."""
        key, name = self.key(), self.names[0]
        folder = f"/run/systemd/system/{GUARD_UNIT}.service.d"
        for place in ("outside", "ranks"):
            self.answers_again(key, 60)
            memory = self.ssh(name, "awk '/^MemAvailable/ {print $2}' /proc/meminfo").output
            floor = round(int(memory) / (1 << 20) - 12, 1)
            self.ssh(
                name,
                f"mkdir -p {folder} && {{ echo '[Service]'; echo ExecStart=; sed -n '/^ExecStart=/s/--floor=[^ ]*/"
                f"--floor={floor}/p' /etc/systemd/system/{GUARD_UNIT}.service; }} >{folder}/floor.conf && "
                f"echo '[]' >{GUARD_STARTS} && systemctl daemon-reload && systemctl restart {GUARD_UNIT} && "
                f"cat >/run/pin.py <<'END'\n{PIN}\nEND",
            )
            time.sleep(4)
            self.ssh(name, f"systemd-run --unit=pin-{place} python3 /run/pin.py {floor} {place}")
            began, gap = time.monotonic(), 0.0
            records: list[dict[str, Any]] = []
            while not records:
                asked = time.monotonic()
                records = [each for each in self.guarded(name) if each["end"] == "restarted"]
                gap = max(gap, time.monotonic() - asked)
                if asked - began > 120:
                    raise Failed(
                        f"the guard did not act: {self.ssh(name, f'journalctl -u pin-{place}').output[-2000:]}"
                    )
            found = {"floor": floor, "record": records[0], "acted_after": round(time.monotonic() - began, 1)}
            found["answers_after"] = self.answers_again(key, 240)
            found |= {"longest_ssh": round(gap, 2), "log": self.ssh(name, f"journalctl -o cat -u pin-{place}").output}
            self.step.evidence[place] = found
        self.ssh(name, f"rm -r {folder} && systemctl daemon-reload && systemctl restart {GUARD_UNIT}")

    def samples(self) -> None:
        """Compare the flight recorder's samples with nvidia-smi, idle and while the model answers."""
        key, name = self.key(), self.names[0]
        fields = "temperature.gpu,power.draw,clocks.sm,utilization.gpu,clocks_event_reasons.active"
        query = f"nvidia-smi --query-gpu={fields} --format=csv,noheader,nounits"
        found: list[dict[str, Any]] = []
        load, passage = threading.Event(), self.passages()[0]

        def ask() -> None:
            while not load.is_set():
                complete(self.url, passage["opening"], len(passage["answer"]), key)

        for state in ("idle", "busy"):
            workers = [threading.Thread(target=ask, daemon=True) for _number in range(4 if state == "busy" else 0)]
            for worker in workers:
                worker.start()
            time.sleep(6 if workers else 0)
            for _number in range(6):
                shown, text = self.ssh(name, f"{query}; cat {SAMPLE_FILE}").output.split("\n", 1)
                sample = json.loads(text)
                gpu = sample["gpus"][0]
                values = [gpu[each] for each in ("temperature", "power", "clock", "utilization", "reasons")]
                age = round(time.time() - sample["time"], 1)
                found.append({"state": state, "smi": shown, "sample": values, "age": age, "engine": sample["engine"]})
                time.sleep(2)
        load.set()
        self.step.evidence["samples"] = found
        unit = "systemctl show --property=CPUUsageNSec --property=MemoryCurrent --property=MainPID gb10-flight-recorder"
        self.step.evidence["unit"] = self.ssh(
            name,
            f"{unit}; sleep 60; {unit}; grep VmRSS /proc/$(systemctl show -P MainPID gb10-flight-recorder)/status",
            90,
        ).output
        busy = [each["sample"] for each in found if each["state"] == "busy"]
        idle = [each["sample"] for each in found if each["state"] == "idle"]
        if not min(each[1] for each in busy) > max(each[1] for each in idle):
            raise Failed("the samples under load do not have more power than the idle ones")
        if not found[-1]["engine"]["generated"] > found[0]["engine"]["generated"]:
            raise Failed("the samples do not count the engine's tokens")
        if late := [each["age"] for each in found if each["age"] > 5]:
            raise Failed(f"samples of {late} s")

    def guarded(self, name: str) -> list[dict[str, Any]]:
        """Return the records of the guard."""
        return list(json.loads(self.ssh(name, f"cat {GUARD_STARTS}").output))

    def rank(self, name: str) -> int:
        """Return the process ID of a host's rank."""
        there = [(each.pid, each.command) for each in processes() if each.host == name]
        found = [(pid, text) for pid, text in there if re.match(r"VLLM::Worker|ray::\w*Worker", text)]
        self.step.evidence["ranks"] = found
        if not found:
            raise Failed(f"{name} has no rank: {[text[:60] for _, text in there]}")
        return found[0][0]

    def reboot(self) -> None:
        """Reboot all hosts. The model answers without help."""
        key, began = self.key(), time.monotonic()
        for name in self.names:
            self.ssh(name, "systemctl reboot")
        while self.answers(key, 3):
            time.sleep(0.5)
        self.answers_again(key, self.limit - 30)
        self.step.evidence["answers_after"] = round(time.monotonic() - began, 1)
        self.started()

    def rollback(self) -> None:
        """Switch to a model that does not start. The old one answers again."""
        done = self.play("playbooks/switch_model.yml", "-e", f"gb10_model={BROKEN}", fails=True)
        if f"Restored {MODEL}" not in done.output:
            raise Failed(f"no rollback: {done.output[-1000:]}")
        self.step.evidence["answers_after"] = self.answers_again(self.key(), 60)
        self.recite()

    def golden(self) -> None:
        """Record golden answers, run vllm_runtime again, and compare."""
        self.play("playbooks/golden.yml", "-e", "golden_record=true")
        self.play("site.yml", "--tags", "vllm_runtime")
        self.shown("playbooks/golden.yml")

    def down(self) -> None:
        """Remove the hosts and the root's mounts."""
        self.play("tests/lab/playbooks/lab_down.yml")
        self.root.unmount()

    # -- evidence ----------------------------------------

    def started(self) -> None:
        """Collect the last start of each service: its seconds, its steps, and the choices that each process logged."""
        properties = "Id,ActiveState,SubState,NRestarts,ExecMainStartTimestamp,MemoryPeak"
        show = f"systemctl show --timestamp=unix --property={properties} {' '.join(UNITS)}"
        last = "_SYSTEMD_INVOCATION_ID=$(systemctl show --value --property InvocationID $u)"
        journal = (
            "for u in gb10-ray gb10-vllm; do journalctl --unit $u --output short-unix --no-hostname --no-pager "
            f"{last}; done"
        )
        for name in self.names:
            blocks = self.ssh(name, show).output.strip().split("\n\n")
            units = {
                unit.pop("Id"): unit
                for unit in (dict(line.split("=", 1) for line in block.splitlines()) for block in blocks)
            }
            text = self.ssh(name, journal).output
            began = float(units["gb10-vllm.service"].get("ExecMainStartTimestamp", "").lstrip("@") or 0)
            lines = re.findall(r"^(\d+\.\d+) \S+?: (.*)", text, re.MULTILINE)
            steps = [
                (round(float(second) - began, 1), found.group())
                for second, line in lines
                if (found := TIMES.search(line))
            ]
            self.step.evidence.setdefault("hosts", {})[name] = {
                "units": units,
                "parts": start.read(
                    sorted((float(second), line) for second, line in lines if float(second) >= began - 1)
                ),
                "started": began,
                "start_seconds": next(
                    (second for second, line in reversed(steps) if line.startswith("Application startup")), None
                ),
                "steps": steps[:200],
                "choices": choices.read(line for _, line in lines),
                "argv": "".join(re.findall(r"non-default args: .*", text)[-1:])[:3000],
            }

    @property
    def head(self) -> dict[str, Any]:
        """The last start of the head, after started()."""
        found: dict[str, Any] = self.step.evidence["hosts"][self.names[0]]
        return found

    def journals(self) -> None:
        for name in self.names:
            command = (
                f"journalctl --no-pager --boot --lines 20000 {' '.join(f'--unit {unit}' for unit in UNITS)}; "
                "systemctl --failed --no-pager"
            )
            done = self.ssh(name, command, 60)
            self.write(f"\n== journals of {name}\n{done.output[-MOST_LOG:]}\n")


@dataclass(frozen=True)
class Process:
    """A process in one of the lab's hosts: its unit, its name, and its command line."""

    pid: int
    host: str
    unit: str
    name: str
    command: str


def processes() -> Iterator[Process]:
    """Yield each process in the lab's hosts."""
    for path in Path("/proc").iterdir():
        # A process may end meanwhile.
        with suppress(OSError):
            found = path.name.isdigit() and re.search(
                rf"/gb10-lab/{LAB}/([\w-]+)/(\S*)", (path / "cgroup").read_text(encoding="utf-8")
            )
            if found:
                name = (path / "comm").read_text(encoding="utf-8", errors="replace").strip()
                text = (path / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
                yield Process(int(path.name), found[1], found[2].rpartition("/")[2], name, text)


class Sampler(threading.Thread):
    """Records which compilers run in the hosts, and the lowest MemAvailable."""

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.ended = threading.Event()
        self.runs: dict[tuple[str, str], dict[str, Any]] = {}
        self.lowest, self.samples = 1 << 62, 0

    def run(self) -> None:
        while not self.ended.wait(SAMPLE):
            self.samples += 1
            with Path("/proc/meminfo").open(encoding="ascii") as file:
                available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
            self.lowest = min(self.lowest, available)
            self.look()

    def look(self) -> None:
        for each in processes():
            # FlashInfer and PyTorch ask nvcc for its release when they are imported.
            if each.name in COMPILERS and each.command.split()[1:] not in (["-V"], ["--version"]):
                new: dict[str, Any] = {
                    "host": each.host,
                    "program": each.name,
                    "first": time.time(),
                    "samples": 0,
                    "units": [],
                    "command": each.command[-300:],
                }
                run = self.runs.setdefault((each.host, each.name), new)
                run["last"] = time.time()
                run["samples"] += 1
                if each.unit not in run["units"]:
                    run["units"].append(each.unit)

    def result(self) -> dict[str, Any]:
        self.ended.set()
        self.join()
        return {"samples": self.samples, "lowest_available_kib": self.lowest, "compilers": list(self.runs.values())}


def readable(folder: Path) -> None:
    """Let all users read a folder: safetensors writes files that only their owner can read."""
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


_OWN = (
    "train pair large up site recipe text random recite restart loaders rerun stopped samples pinned reboot rollback "
    "golden down"
)
STEPS: Mapping[str, Callable[[Site], None]] = {
    **{name: getattr(Site, name) for name in _OWN.split()},
    "check": lambda site: site.shown("site.yml", "--check", "--diff"),
    **{name: partial(Site.shown, playbook=f"playbooks/{name}.yml") for name in ("status", "verify")},
    "facts": lambda site: site.shown("playbooks/field_report.yml"),
    "starts-ray": lambda site: site.starts("ray"),
    "starts-mp": lambda site: site.starts("mp"),
    "mapped": lambda site: site.load("auto", "ray"),
    "instanttensor": lambda site: site.load("instanttensor", "ray"),
    "instanttensor-mp": lambda site: site.load("instanttensor", "mp"),
    "mp": lambda site: site.other("gb10_distributed_executor_backend=mp"),
    **{name: partial(Site.other, variables=name) for name in ("flashinfer", "default121")},
}


@contextmanager
def recorded(site: Site, name: str, out: Path) -> Iterator[Step]:
    """Record a step with its evidence. Prints its line."""
    site.step = step = Step(name, out / f"{name}.log")
    step.log.unlink(missing_ok=True)
    sampler, began, error = Sampler(), time.time(), ""
    sampler.start()
    try:
        yield step
    except (Failed, OSError, RuntimeError, ValueError, KeyError, subprocess.SubprocessError) as failure:
        error = str(failure) or repr(failure)
        site.write(f"\n{traceback.format_exc()}")
        site.journals()
    seconds = round(time.time() - began, 1)
    report = {
        "step": name,
        "began": began,
        "seconds": seconds,
        "result": error or "right",
        **step.evidence,
        "sampled": sampler.result(),
    }
    (out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    compilers = sorted({run["program"] for run in report["sampled"]["compilers"]})
    sys.stdout.write(
        f"{name}: {report['result'][:600]} ({report['seconds']:.0f} s; compilers: {' '.join(compilers) or 'none'})\n"
    )
    sys.stdout.flush()
    if error:
        sys.exit(1)


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "commands",
        nargs="+",
        choices=["pack", "unpack", *STEPS],
        metavar="COMMAND",
        help=", ".join(["pack", "unpack", *STEPS]),
    )
    parser.add_argument(
        "--folder", required=True, type=Path, help="for the parts, the root, the model and the inventory; on a disk"
    )
    parser.add_argument("--out", type=Path, default=Path("build/gpu-site"), help="for the results")
    parser.add_argument("--pins", type=Path, help="pack: the packages to install")
    parser.add_argument("--there", type=Path, help="pack: `pip freeze` of a Python on the machine")
    parser.add_argument(
        "--python", default=sys.executable, help="that Python; the step train needs PyTorch and Transformers in it"
    )
    parser.add_argument("--hosts", type=int, choices=(1, 2), default=2)
    parser.add_argument("--gpus", type=int, choices=(1, 2), help="fewer than hosts: they share one")
    parser.add_argument("--without-gpu", action="store_true", help="to rehearse: the steps until vLLM needs a GPU")
    parser.add_argument("--limit", type=float, default=540, help="seconds for a playbook")
    parser.add_argument(
        "--flashinfer",
        default=json.dumps(FLASHINFER),
        metavar="VARIABLES",
        help="step flashinfer: as for ansible-playbook -e",
    )
    parser.add_argument(
        "--default121", default=json.dumps(DEFAULT121), metavar="VARIABLES", help="step default121: the same"
    )
    parser.add_argument(
        "-e", "--extra-vars", action="append", default=[], metavar="VARIABLES", help="for every playbook"
    )
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    for command in options.commands:
        if command == "pack":
            frozen = options.there.read_text(encoding="utf-8") if options.there else ""
            there = dict(line.lower().split("==") for line in frozen.split() if line.count("==") == 1)
            parts.pack(options.folder.resolve(), options.pins.resolve(), there)
        elif command == "unpack":
            began = time.monotonic()
            parts.unpack(options.folder.resolve(), options.python)
            Root(options.folder.resolve()).install()
            sys.stdout.write(f"unpacked in {time.monotonic() - began:.0f} s\n")
        else:
            options.out.mkdir(parents=True, exist_ok=True)
            site = Site(options)
            site.prepare()
            with recorded(site, command, options.out):
                STEPS[command](site)


if __name__ == "__main__":
    main(sys.argv[1:])

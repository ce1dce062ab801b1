"""Measure reruns that change nothing, and write a section of docs/benchmarks.md.

They are compared with Ansible's cheapest operation, `ansible all -m ping`, on the same hosts. The ratio shows the work
of a rerun independently of the machine. `cluster` measures a running cluster that serves, and fails above LIMIT.
`fabric` boots its own labs of two and eight hosts and measures only their fabric. `patch` measures the CPU time of the
module vllm_patch, and fails above CPU_LIMITS. `store` copies a model to four hosts over capped links, and fails if that
takes more than COPIES times one copy.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import platform
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs" / "benchmarks.md"
LIMIT = 15
#: Maximum seconds of CPU time (user plus system) of a vllm_patch run: one that changes nothing, one that patches.
CPU_LIMITS = (0.3, 1.0)
#: Maximum time of a copy to four hosts, as a multiple of one copy.
COPIES = 1.3
#: Of that measurement: link speed, number of files (a relay sends four at once), and bytes per file.
MBIT, FILES, FILE_BYTES = 200, 4, 64 * 1024 * 1024
HEADER = "| command | median s | min s | max s | times ping |\n|---|--:|--:|--:|--:|\n"
#: A lab that can run next to the demo's.
LAB = ["-i", "inventories/lab/hosts_overlay.yml", "-e", "lab_name=bench", "-e", "lab_prefix=10.98.0"]
_RECAP = re.compile(r"changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)")


def program(name: str) -> str:
    """Return the path of one of Ansible's commands."""
    return str(Path(sys.executable).with_name(name))


def measure(command: Sequence[str], unchanged: bool = False) -> float:
    """Run a command and return its wall time in seconds. Exits if it fails, or changes something where it must not."""
    environment = os.environ | {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "ANSIBLE_FORCE_COLOR": "0",
        "ANSIBLE_NOCOLOR": "1",
    }
    began = time.perf_counter()
    result = subprocess.run(
        command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    seconds = time.perf_counter() - began
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    if unchanged and any(counts != ("0", "0", "0") for counts in _RECAP.findall(result.stdout)):
        sys.exit(f"{' '.join(command)} changed something, so the cluster was not converged:\n{result.stdout}")
    return seconds


def row(name: str, seconds: Sequence[float], ping: float) -> str:
    """Return one line of the table."""
    median = statistics.median(seconds)
    return f"| {name} | {median:.1f} | {min(seconds):.1f} | {max(seconds):.1f} | {median / ping:.1f} |\n"


def write(title: str, text: str) -> None:
    """Replace one section of the report, or append it."""
    kept = [
        part
        for part in re.split(r"^(?=## )", REPORT.read_text(encoding="utf-8"), flags=re.MULTILINE)
        if not part.startswith(f"## {title}\n")
    ]
    section = f"## {title}\n\n{text.strip()}\n"
    REPORT.write_text("\n".join(part.strip() + "\n" for part in [*kept, section]), encoding="utf-8")
    sys.stdout.write(section)


def where(runs: int) -> str:
    """Return date, machine and number of runs."""
    cores = f"{os.cpu_count()} cores ({platform.machine()})"
    return f"On {time.strftime('%Y-%m-%d')}, controller and nodes together on {cores}, {runs} runs each."


def cluster(inventory: str, runs: int) -> None:
    """Measure a cluster that is up and serves."""
    ansible = [program("ansible"), "all", "-i", inventory, "-m", "ansible.builtin.ping"]
    site = [program("ansible-playbook"), "site.yml", "-i", inventory]
    cases = {
        "`ansible all -m ping`": ansible,
        "`site.yml`, nothing to change": site,
        "`site.yml --check --diff`, nothing to change": [*site, "--check", "--diff"],
        "`site.yml --tags qsfp_netplan`": [*site, "--tags", "qsfp_netplan"],
        "`site.yml --tags ray_cluster`": [*site, "--tags", "ray_cluster"],
        "`site.yml --tags vllm_serve`": [*site, "--tags", "vllm_serve"],
    }
    measure(ansible)  # opens the connections that the others reuse
    results = {
        name: [measure(command, unchanged=command is not ansible) for _ in range(runs)]
        for name, command in cases.items()
    }
    ping = statistics.median(results["`ansible all -m ping`"])
    ratio = statistics.median(results["`site.yml`, nothing to change"]) / ping
    nodes = subprocess.run(
        [*ansible[:-2], "--list-hosts"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()[1:]
    write(
        "A cluster that serves",
        f"`make bench`: `{inventory}`, {len(nodes)} nodes. {where(runs)}\n\n"
        + HEADER
        + "".join(row(name, seconds, ping) for name, seconds in results.items())
        + f"\nA rerun of the whole site.yml that changes nothing takes {ratio:.1f} times as long as a ping; the "
        f"limit is {LIMIT}. It reads every\nnode, verifies every rail with full-size frames, queries Ray for "
        "its nodes, and requests a token, a completion and a chat from\nthe model.",
    )
    if ratio > LIMIT:
        sys.exit(f"a rerun takes {ratio:.1f} times a ping; the limit is {LIMIT}")


def fabric(runs: int) -> None:
    """Measure the fabric alone, of two hosts on a cable and of eight on a switch."""
    table = ""
    for count, topology in ((2, "direct"), (8, "switch")):
        with tempfile.TemporaryDirectory() as folder:
            hosts = [f"spark{number}" for number in range(1, count + 1)]
            groups = {"head": {"hosts": {hosts[0]: {}}}, "worker": {"hosts": {name: {} for name in hosts[1:]}}}
            # All ports of the lab are cabled; the recorded times are for two rails.
            variables = {"gb10_fabric_topology": topology, "gb10_fabric_ports": [1], "gb10_model": "/srv/models/tiny"}
            inventory = Path(folder, "hosts.json")
            inventory.write_text(
                json.dumps({"gb10_cluster": {"children": groups, "vars": variables}}), encoding="utf-8"
            )
            given = ["-i", str(inventory), *LAB]
            site = [program("ansible-playbook"), "site.yml", *given, "--tags", "qsfp_netplan"]
            ansible = [program("ansible"), "all", *given, "-m", "ansible.builtin.ping"]
            measure([program("ansible-playbook"), "tests/lab/playbooks/lab_up.yml", *given])
            try:
                first = measure(site)
                pings = [measure(ansible) for _ in range(runs)]
                reruns = [measure(site, unchanged=True) for _ in range(runs)]
            finally:
                measure([program("ansible-playbook"), "tests/lab/playbooks/lab_down.yml", *given])
        ping = statistics.median(pings)
        table += row(f"`ansible all -m ping`, {count} hosts", pings, ping) + row(
            f"{count} hosts, first run", [first], ping
        )
        table += row(f"{count} hosts, nothing to change", reruns, ping)
    write(
        "The fabric alone",
        "`make bench-fabric`: `site.yml --tags qsfp_netplan` on two hosts on a cable and on eight on a "
        f"switch. {where(runs)}\n\n{HEADER}{table}\nA rerun reads every node, compares files and devices with "
        "the plan, and verifies every path of every rail: 4 paths of two\nhosts, 112 of eight.",
    )


def cpu(command: Sequence[str], given: str = "") -> tuple[float, str]:
    """Return the CPU seconds of a command and its output. Exits if it fails."""
    environment = {"PYTHONPATH": str(ROOT / ".collections"), "PATH": os.defpath, "LC_ALL": "C.UTF-8"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run(command, env=environment, input=given, capture_output=True, text=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, result.stdout


def patch(version: str, runs: int) -> None:
    """Measure the module vllm_patch on the files of a release that it reads, with an extension of the usual size."""
    sys.path[:0] = [str(ROOT / ".collections"), str(ROOT / "tests")]
    from patch.sources import package as sources  # noqa: PLC0415

    module = str(ROOT / ".collections/ansible_collections/gb10/cluster/plugins/modules/vllm_patch.py")
    times: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        package = Path(folder, "vllm")
        shutil.copytree(sources(version), package)
        with (package / "_C.abi3.so").open("wb") as file:
            file.seek(1_399_223)  # the runtime's name in 0.24.0 for x86-64
            file.write(b"libcudart.so.13\0")
            file.truncate(100 * 1024 * 1024)

        def run(name: str, changes: bool, **arguments: str) -> None:
            given = {"package_dir": str(package), "capability": "12.1", "mechanism": "source", **arguments}
            seconds, answer = cpu([sys.executable, module], json.dumps({"ANSIBLE_MODULE_ARGS": given}))
            if json.loads(answer)["changed"] is not changes:
                sys.exit(f"{name}: changed is not {changes}:\n{answer}")
            times.setdefault(name, []).append(seconds)

        for number in range(runs + 1):
            if number == 1:
                times.clear()  # the first round compiles to bytecode
            times.setdefault("Python and AnsibleModule alone", []).append(
                cpu([sys.executable, "-c", "import ansible.module_utils.basic"])[0]
            )
            run("patches", True)
            run("nothing to change", False)
            run("restores", True, state="absent")
            run("nothing to restore", False, state="absent")
    table = "".join(
        f"| {name} | {statistics.median(each):.2f} | {min(each):.2f} | {max(each):.2f} |\n"
        for name, each in times.items()
    )
    idle, patching = CPU_LIMITS
    write(
        "The CPU time of vllm_patch",
        "`make bench-patch`: the module's own process, user and system time, on the files of vLLM "
        f"{version} that it reads, and a file of 100 MB in\n"
        f"place of the extension. {where(runs)}\n\n| run | median s | min s | max s |\n|---|--:|--:|--:|\n{table}\n"
        f"The limits are {idle} s for a run that changes nothing and {patching} s for one that patches.",
    )
    if statistics.median(times["nothing to change"]) > idle or statistics.median(times["patches"]) > patching:
        sys.exit(f"vllm_patch exceeds its limits of CPU time: {idle} s without a change, {patching} s to patch")


class Hosts:
    """Hosts in network namespaces, on a switch, that send at most MBIT each. The first has a model."""

    def __init__(self, folder: Path, count: int) -> None:
        self.folder, self.count = folder, count
        self.names = [f"gb10-bench-{number}" for number in range(count + 1)]  # number 0 is the switch
        files = []
        (folder / "1").mkdir()
        for number in range(FILES):
            content = os.urandom(FILE_BYTES)
            (folder / "1" / f"{number}.safetensors").write_bytes(content)
            files.append(
                {"path": f"{number}.safetensors", "size": len(content), "sha256": hashlib.sha256(content).hexdigest()}
            )
        self.manifest = folder / "manifest.json"
        self.manifest.write_text(
            json.dumps({"model": "bench", "revision": "", "commit": "", "files": files}), encoding="utf-8"
        )

    def make(self) -> None:
        """Create and cable the hosts."""
        switch = self.names[0]
        for name in self.names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        for argv in (["link", "add", "sw", "type", "bridge"], ["link", "set", "sw", "up"]):
            subprocess.run(["ip", "-n", switch, *argv], check=True)
        for number, name in enumerate(self.names[1:], 1):
            port = f"p{number}"
            for argv in (
                ["ip", "-n", name, "link", "add", "eth0", "type", "veth", "peer", "name", port, "netns", switch],
                ["ip", "-n", switch, "link", "set", port, "master", "sw", "up"],
                ["ip", "-n", name, "address", "add", f"10.98.1.{number}/24", "dev", "eth0"],
                ["ip", "-n", name, "link", "set", "eth0", "up"],
                [
                    "tc",
                    "-n",
                    name,
                    "qdisc",
                    "add",
                    "dev",
                    "eth0",
                    "root",
                    "tbf",
                    "rate",
                    f"{MBIT}mbit",
                    "burst",
                    "256kb",
                    "latency",
                    "50ms",
                ],
            ):
                subprocess.run(argv, check=True)

    def remove(self) -> None:
        """Remove the hosts."""
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def copy(self, chain: Sequence[int]) -> float:
        """Copy the model along the chain, whose first member has it.

        Return the seconds until every member has verified it.
        """
        for number in chain[1:]:
            shutil.rmtree(self.folder / str(number), ignore_errors=True)
        began = time.perf_counter()
        with contextlib.ExitStack() as stack:
            for index, number in enumerate(chain):
                stack.enter_context(self._relay(number, chain[index - 1] if index else 0, listen=number != chain[-1]))
            waiting = [self.folder / f"{number}.json" for number in chain]
            while waiting:
                time.sleep(0.02)
                told = {path: json.loads(path.read_text(encoding="utf-8")) for path in waiting if path.exists()}
                if failed := [status["reason"] for status in told.values() if status["state"] == "failed"]:
                    sys.exit(f"a copy failed: {failed[0]}")
                waiting = [path for path in waiting if told.get(path, {}).get("state") != "complete"]
            return time.perf_counter() - began

    @contextlib.contextmanager
    def _relay(self, number: int, before: int, listen: bool) -> Iterator[None]:
        status = self.folder / f"{number}.json"
        status.unlink(missing_ok=True)
        program = "ansible_collections.gb10.cluster.plugins.module_utils.model_store.io_copy"
        argv = ["ip", "netns", "exec", self.names[number], sys.executable, "-m", program, "relay"]
        argv += [
            f"--folder={self.folder / str(number)}",
            f"--manifest={self.manifest}",
            f"--status={status}",
            "--port=8472",
        ]
        argv += [f"--listen=10.98.1.{number}"] if listen else []
        argv += [f"--upstream=host{before}", f"--upstream-address=10.98.1.{before}"] if before else []
        environment = os.environ | {"PYTHONPATH": str(ROOT / ".collections")}
        process = subprocess.Popen(argv, cwd=self.folder, env=environment, stdout=subprocess.DEVNULL)
        try:
            yield
        finally:
            process.terminate()
            process.wait()


def store(runs: int) -> None:
    """Measure a copy of a model to four hosts: along a chain, and to each host in turn."""
    with tempfile.TemporaryDirectory() as folder:
        hosts = Hosts(Path(folder), 5)
        try:
            hosts.make()
            hosts.copy([1, 2])  # reads the model into memory, and compiles to bytecode
            chains, singles, sums = [], [], []
            for _ in range(runs):
                chains.append(hosts.copy([1, 2, 3, 4, 5]))
                each = [hosts.copy([1, number]) for number in (2, 3, 4, 5)]
                singles.append(each[0])
                sums.append(sum(each))
        finally:
            hosts.remove()
    one = statistics.median(singles)
    wire = FILES * FILE_BYTES * 8 / MBIT / 1e6
    cases = {"one copy, to one host": singles, "a chain to four hosts": chains, "four hosts, one after the other": sums}
    rows = "".join(
        (
            f"| {name} | {statistics.median(each):.1f} | {min(each):.1f} | {max(each):.1f} | "
            f"{statistics.median(each) / one:.2f} |\n"
        )
        for name, each in cases.items()
    )
    ratio = statistics.median(chains) / one
    write(
        "A model to four hosts",
        f"`make bench-store`: {FILES} files of {FILE_BYTES >> 20} MiB on five hosts in network namespaces on a "
        f"switch. Each host sends\nat most {MBIT} Mbit/s (tc, tbf), with the program that the role model_store "
        f"runs on each node.\n{where(runs)}\n\n| copies | median s | min s | max s | times one copy "
        f"|\n|---|--:|--:|--:|--:|\n{rows}\nThe link alone takes {wire:.1f} s for one copy. From the start of "
        "the programs until the last host has verified every file and written\nits manifest, the chain takes "
        f"{ratio:.2f} times one copy; the limit is {COPIES}.",
    )
    if ratio > COPIES:
        sys.exit(f"a copy to four hosts takes {ratio:.2f} times one copy; the limit is {COPIES}")


def main() -> None:
    """Measure, write the report, and check the limits."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["cluster", "fabric", "patch", "store"])
    parser.add_argument("--inventory", default="inventories/lab")
    parser.add_argument("--release", default="0.24.0")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    if options.what == "cluster":
        cluster(options.inventory, options.runs)
    elif options.what == "patch":
        patch(options.release, options.runs)
    elif options.what == "store":
        store(options.runs)
    else:
        fabric(options.runs)


if __name__ == "__main__":
    main()

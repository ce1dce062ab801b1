"""Measure reruns of site.yml on a cluster that is up, and write docs/benchmarks.md.

A rerun that changes nothing is compared with the cheapest thing that Ansible does, `ansible all -m ping`, on the same
cluster: the ratio says how much work a rerun is, whatever the machine. Fails above LIMIT.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[2]
REPORT = ROOT / "docs" / "benchmarks.md"
LIMIT = 20
_RECAP = re.compile(r"changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)")


def measure(command: list[str], unchanged: bool) -> float:
    """Run a command and return its wall time in seconds. Exits if it fails, or changes something where it must not."""
    environment = os.environ | {"ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"), "ANSIBLE_FORCE_COLOR": "0", "ANSIBLE_NOCOLOR": "1"}
    began = time.perf_counter()
    result = subprocess.run(command, cwd=ROOT, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - began
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{result.stdout}{result.stderr}")
    if unchanged and any(counts != ("0", "0", "0") for counts in _RECAP.findall(result.stdout)):
        sys.exit(f"{' '.join(command)} changed something, so this is no rerun of a converged cluster:\n{result.stdout}")
    return seconds


def row(name: str, seconds: list[float], ping: float) -> str:
    """Return one line of the table."""
    median = statistics.median(seconds)
    return f"| {name} | {median:.1f} | {min(seconds):.1f} | {max(seconds):.1f} | {median / ping:.1f} |"


def main() -> None:
    """Measure, write the report, judge."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inventory", required=True)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    programs = Path(sys.executable)
    ansible = [str(programs.with_name("ansible")), "all", "-i", options.inventory, "-m", "ansible.builtin.ping"]
    site = [str(programs.with_name("ansible-playbook")), "site.yml", "-i", options.inventory]
    cases = {
        "`ansible all -m ping`": ansible,
        "`site.yml`, nothing to change": site,
        "`site.yml --check --diff`, nothing to change": [*site, "--check", "--diff"],
        "`site.yml --tags qsfp_netplan`": [*site, "--tags", "qsfp_netplan"],
        "`site.yml --tags ray_cluster`": [*site, "--tags", "ray_cluster"],
        "`site.yml --tags vllm_serve`": [*site, "--tags", "vllm_serve"],
    }
    measure(ansible, unchanged=False)  # opens the connections that the others reuse
    results = {name: [measure(command, unchanged=command is not ansible) for _ in range(options.runs)] for name, command in cases.items()}
    ping = statistics.median(results["`ansible all -m ping`"])
    ratio = statistics.median(results["`site.yml`, nothing to change"]) / ping
    nodes = subprocess.run([*ansible[:-2], "--list-hosts"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()[1:]
    REPORT.write_text(
        f"""# Benchmarks

Written by `make bench` on {time.strftime("%Y-%m-%d")}: `{options.inventory}`, {len(nodes)} nodes, controller and nodes together on
{os.cpu_count()} cores ({platform.machine()}), {options.runs} runs each. Nothing here was measured on a Spark.

| what | median s | min s | max s | times ping |
|---|--:|--:|--:|--:|
"""
        + "\n".join(row(name, seconds, ping) for name, seconds in results.items())
        + f"""

A rerun of the whole site.yml that changes nothing takes {ratio:.1f} times as long as a ping; the limit is {LIMIT}. It reads every node,
proves every rail with full frames, asks Ray for its nodes, and asks the model for a token, a completion and a chat.
""",
        encoding="utf-8",
    )
    sys.stdout.write(REPORT.read_text(encoding="utf-8"))
    if ratio > LIMIT:
        sys.exit(f"a rerun takes {ratio:.1f} times a ping; the limit is {LIMIT}")


if __name__ == "__main__":
    main()

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Generates docs/verification.md from the table of checks."""

from __future__ import annotations

from collections.abc import Iterable

from ansible_collections.gb10.cluster.plugins.module_utils.check.schema import ERROR, Check
from ansible_collections.gb10.cluster.plugins.module_utils.launch.choices import MESSAGES
from ansible_collections.gb10.cluster.plugins.module_utils.rules.lint import linked
from ansible_collections.gb10.cluster.plugins.module_utils.verify.report import CHECKS
from ansible_collections.gb10.cluster.plugins.module_utils.verify.schema import GROUPS, Cluster

_HEAD = """\
# Verification

<!-- Written by plugins/module_utils/verify/page.py.
GB10_RENEW=1 pytest tests/unit/verify/test_page.py renews it. -->

`playbooks/verify.yml` reads all nodes and compares them with each other, with their own files, and with these checks.
It changes nothing and needs no lock. It also works on a cluster that another tool set up.

    ansible-playbook playbooks/verify.yml -i inventories/mine
    ansible-playbook playbooks/verify.yml -i inventories/mine --tags fabric,nccl
    ansible-playbook playbooks/verify.yml -i inventories/mine -e verify_quick=true

Each finding has the ID of a check, the found and the expected state, the cause or effect, and the fix. A table lists
all differences between nodes. The run fails if a finding reaches `verify_fail_on`
([variables](../roles/verify/README.md)).

The checks of GPU kernels need no model. `kernel-missing` counts the programs with code for the GPU in each extension
of the runtime, without loading it. On a node without a GPU, set `-e verify_capability=12.1`. The check finds an
extension without any code for the GPU, but not a single missing kernel. An image is read only while it runs.
FlashInfer's and PyTorch's own kernels are not read. `gpu-probe-failed` runs small kernels on each GPU.

The checks `log-*` compare [what each rank logs](#messages-of-a-start) in vLLM's running start with its command line,
with the other ranks, and with the launch record. Only names and texts of known messages leave a node. A message that a
rank does not log, or that journald has removed, counts as unknown. NCCL names its network only with `NCCL_DEBUG=INFO`
in `gb10_extra_env`.

**This project has no Spark.** Each check names its source and its test.
"""
_REPORT = """
## The report

    ansible-playbook playbooks/verify.yml -i inventories/mine -e verify_report=report.html

`verify_report` is a file on the controller, "" for none. The run writes one HTML page with

- the worst severity, or that all checks passed, and all findings with expected state, cause, fix and a link here;
- a drawing of nodes, rails and cables with addresses, speed, MTU and state; the API, its load, and the watchdog;
- the differences between nodes;
- the programs with code for each GPU, and the results of the GPU probe;
- what vLLM's log shows about the decisions of the plan;
- the last golden result, the newest benchmark of each model, and the last result of `benchmark_all.yml` as a heat map,
  from the folder `.gb10` in the inventory (`verify_records`);
- versions and state of each node.

A section without data is left out. The page loads nothing and contains no program. Text from nodes, logs and records is
escaped, and each text that may be a key is replaced. The page has names and addresses, so only its owner can read the
file. For an issue, use
[playbooks/field_report.yml](../roles/field_report/README.md)."""


_MESSAGES = """
## Messages of a start

The journal of `gb10-vllm` on the head has the lines of all ranks with Ray. With mp, that of each node has those of its
own ranks. The plan turns Ray's deduplication of log lines off. It compares lines without their words that contain
digits, so it drops different kernels as repeated lines (tested with Ray 2.60).

The launch record and the field report keep these values. All ranks of a pipeline stage on equal hardware must agree in
the compared ones. Many messages are logged only by the first rank of a node, or by rank 0.

| name | logged by | compared | read in the source code of vLLM |
|---|---|---|---|"""


def document() -> str:
    """Return the page."""
    errors = sum(check.severity == ERROR for check in CHECKS)
    count = f"{len(CHECKS)} checks: {errors} for errors, {len(CHECKS) - errors} for warnings."
    lines = [_HEAD, count, "", *(f"- [{group}](#{group})" for group in GROUPS), _REPORT]
    for group in GROUPS:
        lines += ["", f"## {group}", *(line for check in CHECKS if check.topic == group for line in _entry(check))]
    lines.append(_MESSAGES)
    for name, each in MESSAGES.items():
        lines.append(f"| {name} | {each.by} | {'yes' if each.compared else ''} | {each.releases} |")
    return "\n".join(lines) + "\n"


def _entry(check: Check[Cluster]) -> Iterable[str]:
    yield from ("", f"### {check.id}", "")
    yield f"- Severity: {check.severity}."
    yield f"- Expected: {_text(check.expected)}."
    yield f"- Cause or effect: {_text(check.why)}."
    yield f"- Fix: {_text(check.fix)}."
    yield f"- Source: {linked(check.source).replace('rules.md', f'[rules.md](rules.md#{check.id})')}."
    yield f"- Test: {check.tested}."


def _text(text: str) -> str:
    return linked(text.replace("<", "&lt;").replace("*", "\\*"))

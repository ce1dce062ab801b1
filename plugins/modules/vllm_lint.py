#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_lint
short_description: Lint a vLLM command on this host with rules from published reports
version_added: 0.1.0
description:
  - Reads GPU, driver, kernel and memory of the host, and takes the command and its environment from the options.
  - Returns the findings of the rules in C(docs/rules.md), each with its source, its date and the evidence against it.
  - One host does not show how the nodes are cabled, nor whether their environments agree; the plan of the cluster does.
options:
  argv:
    description: Arguments of C(vllm serve) after the model.
    type: list
    elements: str
    required: true
  environment:
    description: The environment of that process, a free-form mapping. Replace the values of secrets by V(x).
    type: dict
    default: {}
  release:
    description: The vLLM release. The default is the release of O(python)'s package. One of the two is required.
    type: str
  python:
    description: A Python interpreter. The module reads the release of its vLLM package.
    type: path
  model:
    description: The folder of the model. Its C(config.json) describes the weights.
    type: path
  image:
    description: The container image that the command runs in, empty without a container.
    type: str
    default: ""
  network:
    description: The network of that container.
    type: str
    default: ""
  nccl:
    description: The release of NCCL that the ranks load, empty if unknown; M(gb10.cluster.nccl_info) reads it.
    type: str
    default: ""
  waivers:
    description: Waived rules, as rule id and reason.
    type: dict
    default: {}
  fail_on:
    description: The module fails for unwaived findings of this severity or above.
    type: str
    choices: [none, error, warning]
    default: none
seealso:
  - module: gb10.cluster.nccl_info
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Lint a vLLM command
  gb10.cluster.vllm_lint:
    argv: [--tensor-parallel-size, "2", --enforce-eager]
    environment:
      NCCL_IB_HCA: rocep1s0f1,roceP2p1s0f1
    release: 0.32.0
    waivers:
      enforce-eager: this image hangs with graphs
    fail_on: error
"""

RETURN = r"""
findings:
  description: The findings of the rules, errors first.
  returned: always
  type: list
  elements: dict
  contains:
    rule:
      description: The rule's id.
      type: str
    severity:
      description: V(error), V(warning) or V(info).
      type: str
    path:
      description: The input to change.
      type: str
      sample: argv.--enforce-eager
    found:
      description: The current value of that input.
      type: str
    why:
      description: The effect of that value.
      type: str
    fix:
      description: The change that resolves the finding.
      type: str
    source:
      description: The source of the rule.
      type: str
    evidence:
      description: The date of the newest source.
      type: str
    exercised:
      description: How this project tested the rule.
      type: str
    disputed:
      description: The evidence against the rule, and how to choose; empty if there is none.
      type: str
    waived:
      description: The reason of the waiver, empty if the finding is not waived.
      type: str
report:
  description: The findings as text, one line per finding.
  returned: always
  type: list
  elements: str
release:
  description: The vLLM release that the rules assumed.
  returned: always
  type: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_facts as fabric_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.rules import context as rules_context
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_package
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks


def _release(module: AnsibleModule) -> str:
    params = module.params
    if params["release"] or not params["python"]:
        return params["release"] or ""
    return io_package.find(None, params["python"]).version or ""


def _arguments(argv: list[str], release: str) -> dict[str, object]:
    arguments, problems = vllm_release_checks.parse(argv, release, path="argv")
    refuse(problems)
    return arguments


def main() -> None:
    """Read the host, apply the rules and return the findings."""
    module = AnsibleModule(
        argument_spec={
            "argv": {"type": "list", "elements": "str", "required": True},
            "environment": {"type": "dict", "default": {}},
            "release": {"type": "str"},
            "python": {"type": "path"},
            "model": {"type": "path"},
            "image": {"type": "str", "default": ""},
            "network": {"type": "str", "default": ""},
            "nccl": {"type": "str", "default": ""},
            "waivers": {"type": "dict", "default": {}},
            "fail_on": {"type": "str", "choices": ["none", "error", "warning"], "default": "none"},
        },
        supports_check_mode=True,
    )
    params, system = module.params, os.uname()
    host = {
        "name": system.nodename,
        "gpu": node_io_facts.gpu(runner(module)),
        "kernel": system.release,
        "meminfo": io_file.read("/proc/meminfo"),
        "rdma": fabric_io_facts.rdma(),
        **{key: params[key] for key in ("nccl", "image", "network")},
    }
    environment = {name: str(value) for name, value in params["environment"].items()}
    try:
        config = io_json.json_file(f"{params['model']}/config.json") if params["model"] else None
        release = _release(module)
        if not release:
            python = params["python"]
            found = f"the vLLM of {python} has no readable release" if python else "release and python are not set"
            raise ProblemsError([Problem("release", found, "a vLLM release, such as 0.32.0", "set release or python")])
        situation = rules_context.of_host(_arguments(params["argv"], release), environment, release, host, config)
        findings = lint.on_host(
            lint.lint(situation, {rule: str(reason or "") for rule, reason in params["waivers"].items()})
        )
    except (ProblemsError, ValueError) as error:
        module.fail_json(msg=str(error))
    answer: dict[str, Any] = {
        "findings": [lint.facts(finding) for finding in findings],
        "report": lint.report(findings),
        "release": release,
    }
    if params["fail_on"] != "none" and (stopping := lint.stopping(findings, params["fail_on"])):
        module.fail_json(msg="\n".join(lint.report(stopping)), **answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()

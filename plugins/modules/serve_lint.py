#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: serve_lint
short_description: Hold a vLLM command on this host against what others learned
version_added: 0.1.0
description:
  - Reads GPU, driver, kernel and memory of the host, takes the command and its environment as given, and returns what the rules
    of C(docs/rules.md) find, each with who says so, when, and who contradicts. Nothing is changed.
  - One host does not show how the nodes are cabled, nor whether their environments agree; the plan of the cluster does.
options:
  argv:
    description: Arguments of C(vllm serve) after the model.
    type: list
    elements: str
    required: true
  environment:
    description: The environment of that process, a free-form mapping. The rules need no secret's value; leave V(x) in its place.
    type: dict
    default: {}
  release:
    description: The vLLM release. Without it, that of the package that O(python) has; one of the two is needed.
    type: str
  python:
    description: An interpreter whose vLLM is asked for its release.
    type: path
  model:
    description: The folder of the model, whose C(config.json) tells what its weights are.
    type: path
  image:
    description: The container image that the command runs in, empty if in none.
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
    description: By the id of a rule, why its findings do not count here.
    type: dict
    default: {}
  fail_on:
    description: The least severity of a finding, not waived, at which the module fails.
    type: str
    choices: [none, error, warning]
    default: none
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Hold a command against the rules
  gb10.cluster.serve_lint:
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
  description: What the rules find, errors first.
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
      description: What it is now.
      type: str
    why:
      description: What comes of it.
      type: str
    fix:
      description: What to do.
      type: str
    source:
      description: Who says so.
      type: str
    evidence:
      description: The date of the newest source.
      type: str
    exercised:
      description: What this collection exercised the rule on.
      type: str
    disputed:
      description: What contradicts it, and how to choose; empty if nothing does.
      type: str
    waived:
      description: The reason for which it is waived, empty if it is not.
      type: str
report:
  description: The same as text, a line each.
  returned: always
  type: list
  elements: str
release:
  description: The vLLM release that was assumed.
  returned: always
  type: str
"""

import os

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as io_node
from ansible_collections.gb10.cluster.plugins.module_utils.rules import context as serve_situation
from ansible_collections.gb10.cluster.plugins.module_utils.rules import lint as serve_rules
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_package as io_vllm_package
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release


def _release(module: AnsibleModule) -> str:
    params = module.params
    if params["release"] or not params["python"]:
        return params["release"] or ""
    return io_vllm_package.find(None, params["python"]).version or ""


def _arguments(argv: list[str], release: str) -> dict[str, object]:
    arguments, problems = vllm_release.parse(argv, release, path="argv")
    if problems:
        raise ProblemsError(problems)
    return arguments


def main() -> None:
    """Read, ask the rules and return."""
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
        "gpu": io_node.gpu(runner(module)),
        "kernel": system.release,
        "meminfo": io_file.read("/proc/meminfo"),
        **{key: params[key] for key in ("nccl", "image", "network")},
    }
    environment = {name: str(value) for name, value in params["environment"].items()}
    try:
        config = io_json.json_file(f"{params['model']}/config.json") if params["model"] else None
        release = _release(module)
        if not release:
            found = f"the vLLM of {params['python']} does not tell its release" if params["python"] else "there is none, nor a python to ask"
            raise ProblemsError([Problem("release", found, "a release of vLLM, such as 0.32.0", "give release or python")])
        situation = serve_situation.of_host(_arguments(params["argv"], release), environment, release, host, config)
        findings = serve_rules.on_host(serve_rules.lint(situation, {rule: str(reason or "") for rule, reason in params["waivers"].items()}))
    except (ProblemsError, ValueError) as error:
        module.fail_json(msg=str(error))
    answer = {"findings": [finding.facts() for finding in findings], "report": serve_rules.report(findings), "release": release}
    if params["fail_on"] != "none" and (stopping := serve_rules.stopping(findings, params["fail_on"])):
        module.fail_json(msg="\n".join(serve_rules.report(stopping)), **answer)
    module.exit_json(changed=False, **answer)


if __name__ == "__main__":
    main()

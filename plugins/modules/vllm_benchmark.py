#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_benchmark
short_description: Run vLLM's own benchmark client on the head, and validate its result
version_added: 0.1.0
description:
  - Runs the command of one run, and reads the server's prefix cache counters before and after it. Samples the clock,
    the power and the temperature of the GPU during the run.
  - Fails if the client fails, or if a value of its result is missing or impossible. A failed request is a result.
options:
  command:
    description: The command line for root, from the step C(benchmark_runs). Its standard output is the result of
      C(vllm bench serve), its last characters on standard error are the reason of a failure.
    type: list
    elements: str
    required: true
  concurrency:
    description: The number of requests at the same time.
    type: int
    required: true
  input_tokens:
    description: Tokens of each prompt.
    type: int
    required: true
  output_tokens:
    description: Tokens of each answer, 0 for an embedding model.
    type: int
    required: true
  requests:
    description: The number of requests.
    type: int
    required: true
  url:
    description: The API's address, without path.
    type: str
    required: true
attributes:
  check_mode:
    support: full
    description: In check mode, sends no request and returns no result.
  diff_mode:
    support: none
    description: Changes nothing.
seealso:
  - module: gb10.cluster.vllm_smoke_test
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.api
  - gb10.cluster.api.key
"""

EXAMPLES = r"""
- name: Measure the served model with one request at a time
  gb10.cluster.vllm_benchmark:
    command: "{{ chosen.runs[0].command }}"
    concurrency: "{{ chosen.runs[0].concurrency }}"
    input_tokens: "{{ chosen.runs[0].input_tokens }}"
    output_tokens: "{{ chosen.runs[0].output_tokens }}"
    requests: "{{ chosen.runs[0].requests }}"
    url: http://127.0.0.1:8000
  become: true
"""

RETURN = r"""
result:
  description: The validated result, null in check mode. Latencies are in milliseconds.
  returned: success
  type: dict
  contains:
    completed:
      description: The number of requests with an answer.
      type: int
    failed:
      description: The number of requests without an answer.
      type: int
    seconds:
      description: The time of the run.
      type: float
    total_input_tokens:
      description: Tokens of all prompts.
      type: int
    total_output_tokens:
      description: Tokens of all answers.
      type: int
    requests_per_second:
      description: Answered requests per second.
      type: float
    tokens_per_second:
      description: Generated tokens per second of all requests together.
      type: float
    ttft_ms:
      description: Time to the first token, as mean, median and p99.
      type: dict
    tpot_ms:
      description: Time for each further token of a request, as mean, median and p99.
      type: dict
    itl_ms:
      description: Time between two parts of a stream, as mean, median and p99.
      type: dict
    acceptance_percent:
      description: Accepted draft tokens, null without speculative decoding.
      type: float
    acceptance_length:
      description: Tokens of an answer for each step of the model, null without speculative decoding.
      type: float
clocks:
  description: The median C(sm_mhz) and C(power_w), and the highest C(temperature_c) of the head's GPU, null if unknown.
  returned: success
  type: dict
hit_rate:
  description: The prefix cache's share of hits during the run, null if unknown.
  returned: success
  type: float
"""

import time

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.benchmark import io_run
from ansible_collections.gb10.cluster.plugins.module_utils.benchmark.plan import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common import argument_spec as common_argument_spec
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_client, io_end


def main() -> None:
    """Run the command and validate its result."""
    module = AnsibleModule(
        argument_spec={
            "command": {"type": "list", "elements": "str", "required": True},
            "concurrency": {"type": "int", "required": True},
            # Numbers, not secrets despite their names.
            "input_tokens": {"type": "int", "required": True, "no_log": False},
            "output_tokens": {"type": "int", "required": True, "no_log": False},
            "requests": {"type": "int", "required": True},
            "url": {"type": "str", "required": True},
            **common_argument_spec.API,
            **common_argument_spec.API_KEY,
        },
        supports_check_mode=True,
    )
    params = module.params
    if module.check_mode:
        module.exit_json(changed=False, result=None, clocks={}, hit_rate=None)
    secret = io_client.api_key(params["key_file"], params["unit"])
    server = io_client.Server(params["url"], params["ca_file"], params["server_name"])
    run = Run(*(params[name] for name in ("concurrency", "input_tokens", "output_tokens", "requests")))
    began = time.monotonic()
    try:
        measured = io_run.measure(params["command"], run, server, secret, runner(module))
    except (OSError, ValueError) as error:
        cause = io_end.since(runner(module), params["unit"], began)
        module.fail_json(msg=f"{run.name}: {error}{cause}")
    module.exit_json(changed=False, **measured)


if __name__ == "__main__":
    main()

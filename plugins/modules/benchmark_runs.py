#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: benchmark_runs
short_description: Choose the runs of a benchmark for the served model
version_added: 0.1.0
description:
  - Chooses the runs for the fact C(gb10_plan), each with the command for M(gb10.cluster.vllm_benchmark).
  - Fails while a benchmark runs, if the planned model does not answer, if other clients use it, and for settings that
    the server cannot serve.
  - The action plugin of this name does the work. It only reads the benchmark's unit from the node, and whether the file
    of SPEED-Bench exists.
options:
  mode:
    description: The runs, as in C(benchmark_model_mode) of the role P(gb10.cluster.benchmark_model#role).
    type: str
    choices: [single, quick, full, sweep, speed-bench, llama-benchy, spark-arena]
    required: true
  data:
    description: The prompts, as in C(benchmark_model_data) of the role P(gb10.cluster.benchmark_model#role).
    type: str
    choices: [auto, random, text]
    default: auto
  speed_bench:
    description: The folder on the head with SPEED-Bench's file C(throughput_8k.jsonl).
    type: str
    default: ""
  concurrencies:
    description: The numbers of requests at the same time in a sweep.
    type: list
    elements: int
    required: true
  input_tokens:
    description: The lengths of the prompts in a sweep, in tokens.
    type: list
    elements: int
    required: true
  output_tokens:
    description: The length of each answer in a sweep, in tokens.
    type: int
    required: true
  timeout:
    description: Maximum seconds for each run.
    type: int
    required: true
  busy_ok:
    description: Whether to measure while other clients use the model.
    type: bool
    default: false
  api:
    description: RV(gb10.cluster.cluster_status_info#module:api) of the head.
    type: dict
    required: true
seealso:
  - module: gb10.cluster.vllm_benchmark
  - module: gb10.cluster.benchmark_report
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.info
"""

EXAMPLES = r"""
- name: Choose the runs of a quick benchmark
  gb10.cluster.benchmark_runs:
    mode: quick
    concurrencies: [1]
    input_tokens: [1024]
    output_tokens: 128
    timeout: 600
    api: "{{ status.api }}"
  become: true
  register: chosen
"""

RETURN = r"""
date:
  description: The date and time in UTC, such as C(2026-11-22T21:30:00Z).
  returned: success
  type: str
seed:
  description: The seed of the prompts, which differs in each benchmark.
  returned: success
  type: int
runs:
  description: The options of M(gb10.cluster.vllm_benchmark) for each run, with its C(name).
  returned: success
  type: list
  elements: dict
lines:
  description: A line for each run, with its estimated time.
  returned: success
  type: list
  elements: str
"""

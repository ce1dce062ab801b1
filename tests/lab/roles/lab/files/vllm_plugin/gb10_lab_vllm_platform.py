# Copyright: gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""The platform itself; apart from the entry point, because importing vllm.platforms there would go round in circles."""

import os
from typing import ClassVar

from vllm.platforms.cpu import CpuPlatform


class LabPlatform(CpuPlatform):
    """vLLM's CPU platform, with a name for what Ray should hand out."""

    # Without one, vLLM refuses: "current platform cpu does not support ray".
    ray_device_key = "GPU"
    # The variables that would stop Ray from hiding GPUs from a worker; a CPU needs none.
    ray_noset_device_env_vars: ClassVar[list[str]] = []

    @classmethod
    def get_device_communicator_cls(cls):
        return "gb10_lab_vllm_communicator.LabCommunicator"

    @classmethod
    def check_and_update_config(cls, vllm_config):
        # The CPU platform insists on spawn, although nothing here needs it: each process would import 7 s of modules
        # again.
        method = os.environ.get("VLLM_WORKER_MULTIPROC_METHOD", "spawn")
        super().check_and_update_config(vllm_config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = method

# Copyright: gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""Two corrections to vLLM 0.32.0's CPU worker that only matter with more than one host."""

from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.v1.worker.cpu_model_runner import CPUModelRunner


class LabCommunicator(CpuCommunicator):
    """Ranks on different hosts talk through gloo, never through shared memory."""

    def _all_group_ranks_share_shm_group_name(self):
        # Every host generates the same name, from which vLLM concludes that they share /dev/shm.
        return False


# With pipeline parallelism, --enforce-eager and an explicit KV size, vLLM skips the dummy run that allocates the
# receive buffers of every rank but the first, and fails in the first step (AssertionError): allocate them when they are
# needed.
_gather = CPUModelRunner.sync_and_gather_intermediate_tensors


def _allocate_and_gather(self, num_tokens, intermediate_tensors, sync_self):
    if self.intermediate_tensors is None:
        self.intermediate_tensors = self.model.make_empty_intermediate_tensors(
            batch_size=self.max_num_tokens, dtype=self.model_config.dtype, device=self.device
        )
    return _gather(self, num_tokens, intermediate_tensors, sync_self)


CPUModelRunner.sync_and_gather_intermediate_tensors = _allocate_and_gather

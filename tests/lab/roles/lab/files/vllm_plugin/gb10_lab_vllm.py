# Copyright: gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later
"""vLLM platform plugin of the lab: lets vLLM's CPU build serve over Ray on several hosts, which it does not do by
itself.

Ray counts a logical GPU per node (`ray start --num-gpus=1`), and this platform takes it for a CPU worker. vLLM loads
platform plugins in every process; a general plugin would come too late in Ray's workers. Written for vLLM 0.32.0.
"""


def register():
    """Answer vLLM's question for a platform with the name of the class; vLLM imports it when it needs it."""
    return "gb10_lab_vllm_platform.LabPlatform"

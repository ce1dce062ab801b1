# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Work of the roles on a node, each in a file of its name, which the module node_step runs.

Entry: ``Inputs``, a dataclass of the task's inputs, and ``run(module, given)``. It returns the task's result, with
``failed`` and ``msg`` after a failure; its docstring describes it. It may raise ProblemsError, ValueError and OSError.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    # Ansible sends the files to a node that it finds here. A node imports only the step that it runs.
    from ansible_collections.gb10.cluster.plugins.module_utils.node_steps import (  # noqa: F401
        cluster_lock,
        debian_packages,
        fabric_neighbors_info,
        fabric_probe,
        field_evidence,
        flashinfer_kernels,
        gateway_info,
        hub_model_info,
        image_wheel,
        memory_wait,
        nccl_install,
        netplan_confirm,
        os_update,
        os_update_info,
        own_wheels,
        prune,
        ray_info,
        secret_environment,
        uninstall,
        vllm_arguments_info,
        vllm_drain,
        vllm_gpu_probe,
        vllm_image_extract,
        wheelhouse,
    )

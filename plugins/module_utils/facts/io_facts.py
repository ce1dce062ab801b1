# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read all facts of a node for the plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, io_json, io_local, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_facts as fabric_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_netplan
from ansible_collections.gb10.cluster.plugins.module_utils.host_guard import io_host
from ansible_collections.gb10.cluster.plugins.module_utils.launch import io_overrides
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_model
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_packages, io_toolkit
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state as os_update_io_state
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record


def read(run: Run, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return the result of module node_info. Raises ValueError, OSError, and ImportError without PyYAML."""
    folder, runtime, user = params["model"], params["runtime"] or "", params["user"]
    gpu, network = node_io_facts.gpu(run), fabric_io_facts.read(run)
    store = io_record.read(io_record.FOLDER)
    # An unreadable file is rejected too, and has its own reason.
    network["unreadable"] = network["unreadable"] or io_netplan.rejected(run)
    model = (
        io_model.planned_model(folder, params["source"] or "", params["exclude"], user) if folder else io_model.NO_MODEL
    )
    nccl, replaced, builds = None, False, None
    if params["builds"]:
        from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import io_store  # noqa: PLC0415

        builds = {"builds": io_store.stamps(params["builds"])}
    if os.path.isdir(runtime):
        # A node compiles a module's code in every run.
        from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library  # noqa: PLC0415

        nccl, replaced = io_library.bundled_facts(runtime), io_library.replaced(runtime)
    return {
        "gpu": gpu,
        **network,
        "listeners": io_local.listeners(),
        **model,
        **node_io_facts.system(),
        "host": io_host.facts(run),
        "toolkit": io_toolkit.facts(run),
        "debian": io_packages.read(run, params["packages"]),
        "updates": os_update_io_state.facts(run),
        "nccl": nccl,
        "state": {
            **node_io_facts.state(user, paths.home(user), runtime),
            "nccl_replaced": replaced,
            "last_good": io_record.start_id(store),
        },
        "installed": {**io_record.current(store, params["keep_runtimes"]), "launch": io_record.launch(gpu)},
        "wrong_folders": {each: why for each in params["folders"] if (why := _wrong(each))},
        "login_users": node_io_facts.login_users(),
        "image_options": io_json.json_file(paths.IMAGE_OPTIONS),
        "image_pins": io_json.json_file(paths.IMAGE_PINS),
        "vllm_build": builds,
        "additions": io_overrides.recorded_additions(),
    }


def _wrong(folder: str) -> str:
    """Return why root must not mount a folder, "" if it may."""
    try:
        return io_file.exposed(folder)
    except OSError as error:
        return str(error.strerror)

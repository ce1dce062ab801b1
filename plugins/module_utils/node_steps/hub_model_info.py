# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read a model's commit, config.json and size from Hugging Face Hub before the download.

Resolves the revision to a commit, and reads config.json and the index of the weights at that commit. Size and time are
limited. An unreachable hub is no failure. Ignores proxies in the login's own environment.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.model_store import io_hub


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The inputs.

    ``name``: OWNER/NAME of the model.
    ``revision``: A commit, tag or branch.
    ``environment``: Variables of the download, such as HF_ENDPOINT, HTTPS_PROXY, NO_PROXY or SSL_CERT_FILE.
    ``token``: The token of a Hugging Face account, for gated and private models; empty for none.
    ``exclude``: Patterns of files that are not downloaded. Their weights do not count.
    ``record``: A file with the result of an earlier run, for an unreachable hub, or if ``revision`` is its commit.
    ``timeout``: Total timeout in seconds.
    """

    name: str
    revision: str = "main"
    environment: Mapping[str, Any] = field(default_factory=dict)
    token: str = field(default="", metadata={"no_log": True})
    exclude: Sequence[str] = ()
    record: str = field(default="/etc/gb10/hub-model.json", metadata={"type": "path"})
    timeout: int = 60


def run(module: AnsibleModule, given: Inputs) -> dict[str, Any]:
    """Return {hub_model: {name, revision, commit, model, model_bytes, model_reason, trouble, refused}}.

    ``commit``: "" if unknown.
    ``model``: Its config.json, null if unknown.
    ``model_bytes``: Bytes of its safetensors, from their index if there is one; null if unknown.
    ``model_reason``: Why vLLM cannot load the weights, "" if it can.
    ``trouble``: Why the query failed, "" if it succeeded.
    ``refused``: The HTTP status if it is 401, 403 or 404, because a download would fail too; else 0.
    """
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        del os.environ[name]
    try:
        os.environ.update({str(name): str(value) for name, value in given.environment.items()})
    except ValueError as error:
        raise ValueError(f"environment: {error}") from error

    def ask() -> dict[str, object]:
        return io_hub.describe(given.name, given.revision, given.token, given.exclude, given.timeout, module.tmpdir)

    return {"changed": False, "hub_model": io_hub.known(given.name, given.revision, given.record, ask)}

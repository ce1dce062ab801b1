# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The request that a person can copy to try the model."""

from __future__ import annotations

import json
import shlex

from ansible_collections.gb10.cluster.plugins.module_utils.common import shell
from ansible_collections.gb10.cluster.plugins.module_utils.health import probe
from ansible_collections.gb10.cluster.plugins.module_utils.health.schema import Client

_CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}]})


def client(api: Client, model: str, kind: str) -> list[str]:
    """Return the lines with the command that shows the key, and a request to a model of this kind."""
    login = f"{api.user}@{api.address}" if api.user else api.address
    given = {"-i": api.identity, "-p": api.port}
    options = "".join(f" {option} {shlex.quote(value)}" for option, value in given.items() if value)
    key = [f"key: ssh -t{options} {login} sudo cat {api.key_file}"] if api.key_file else []
    return [*key, *request(api.endpoint, model, kind, bool(key), api.ca_file)]


def request(endpoint: str, model: str, kind: str, keyed: bool, ca_file: str = "") -> list[str]:
    """Return the lines of a request to a model of this kind at the URL for clients; ``keyed``: whether it needs a key.

    A key in an argument would be in the shell's history.
    """
    path, body = _CHAT if kind == "generate" else probe.request(kind, model)
    words = ["curl", endpoint.removesuffix("/v1") + path]
    words += [f"--cacert {shlex.quote(ca_file)}"] if ca_file else []
    words += ['--header "Authorization: Bearer $OPENAI_API_KEY"'] if keyed else []
    words += ["--json", shlex.quote(json.dumps({"model": model, **body}, separators=(",", ":")))]
    return [*(["read -r OPENAI_API_KEY  # paste the key"] if keyed else []), *shell.folded(words)]

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secret variables of the ranks, and checks that no secret is readable by every user of a node."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

VARIABLE = "gb10_secret_env"
_SECRET = re.compile(r".*(?:_TOKEN|_KEY|_SECRET)|.*PASSWORD.*", re.IGNORECASE)
#: Variables that control whether and how Ray requires its token.
_RAY = re.compile(r"RAY_AUTH_(?:MODE|TOKEN.*)")
_API_KEY = "VLLM_API_KEY"
#: Options of vllm serve with a secret value, and the fix for each.
_OPTIONS: Mapping[str, str] = {
    "--api-key": "move it to gb10_api_key, in a vault",
    "--hf-token": f"move it to {VARIABLE}.HF_TOKEN, in a vault",
}
#: Options that the gb10_api_tls variables replace: without those, the clients of this collection would not use TLS.
_TLS: Mapping[str, str] = {
    "--ssl-certfile": "use gb10_api_tls_certificate",
    "--ssl-keyfile": "use gb10_api_tls_key",
    "--ssl-ca-certs": "leave it out: the API uses a key, not client certificates; clients trust gb10_api_tls_ca",
    "--ssl-cert-reqs": "leave it out: the API uses a key, not client certificates",
}
#: Options of an engine's run that set a variable.
_ENGINE = ("-e", "--env")
_SALT = re.compile(r"# salt ([0-9a-f]{32})\n")


def check_environment(environment: Mapping[str, str], path: str) -> list[Problem]:
    """Return a problem for each variable that has a secret's name or controls Ray's token. No message shows a value."""
    problems = []
    for name in environment:
        if name == _API_KEY:
            found = f"{name} is set, and every user of every node could read it"
            problems.append(Problem(f"{path}.{name}", found, "nothing", "move it to gb10_api_key, in a vault"))
        elif _RAY.fullmatch(name):
            problems.append(_of_ray(name, path))
        elif _SECRET.fullmatch(name):
            found = f"{name} has the name of a secret, and every user of every node could read it"
            problems.append(Problem(f"{path}.{name}", found, "no secrets here", f"move it to {VARIABLE}, in a vault"))
    return problems


def check_downloads(environment: Mapping[str, str], path: str) -> list[Problem]:
    """Return a problem for each variable of downloads with a secret: by its name, or a password in an address."""
    problems = check_environment(environment, path)
    for name, value in environment.items():
        if re.search(r"//[^/]*@", value):
            found = f"{name} has a user or a password, and every user of every node could read it"
            fix = "use a proxy without a password for these nodes, or set it in the system of each node"
            problems.append(Problem(f"{path}.{name}", found, "an address without user and password", fix))
    return problems


def _of_ray(name: str, path: str) -> Problem:
    found = f"{name} is set, and controls whether Ray requires its token"
    return Problem(f"{path}.{name}", found, "nothing: the cluster has its own token", "remove it")


def check_arguments(argv: Sequence[str], path: str) -> list[Problem]:
    """Return a problem for each argument of vllm serve that holds a secret, may hide one in a file, or configures TLS.

    argparse accepts options by the beginning of their names, and vLLM accepts underscores for hyphens.
    """
    problems = []
    for index, word in enumerate(argv):
        # Both words may be one item of the list, which vLLM refuses.
        name, *value = re.split("[= ]", word.replace("_", "-"), maxsplit=1)
        if not name.startswith("--") or name == "--":
            continue
        # vLLM handles this option itself, and only by its full name.
        if name == "--config":
            found = "--config is given: its file may hold a key, and its settings are neither planned nor checked"
            problems.append(
                Problem(
                    f"{path}[{index}]",
                    found,
                    "the arguments themselves",
                    "list the settings of the file, one argument each",
                )
            )
        for option, fix in _OPTIONS.items():
            # --hf-token without a value uses the token of `hf auth login`; then the arguments hold no secret.
            bare = option == "--hf-token" and not value and not _is_value(argv, index + 1)
            if option.startswith(name) and not bare:
                found = f"{option} is given, and every user of the head could read it"
                problems.append(Problem(f"{path}[{index}]", found, "no secrets in arguments", fix))
        for option, fix in _TLS.items():
            if option == name or (option.startswith(name) and len(name) > len("--ssl-")):
                problems.append(Problem(f"{path}[{index}]", f"{name} is given", "TLS through gb10_api_tls_*", fix))
                break
    return problems


def _is_value(argv: Sequence[str], index: int) -> bool:
    return index < len(argv) and not argv[index].startswith("-")


def check_engine(argv: Sequence[str], path: str) -> list[Problem]:
    """Return a problem for each secret variable that arguments of a container engine set."""
    problems = []
    for index, word in enumerate(argv):
        option, _equals, given = (
            word.partition("=") if word.startswith("--") else (word[:2], "", word[2:].removeprefix("="))
        )
        if option not in _ENGINE:
            continue
        where, assignment = (index, given) if given else (index + 1, argv[index + 1] if index + 1 < len(argv) else "")
        name, equals, _value = assignment.partition("=")
        if equals:
            problems += check_environment({name: ""}, f"{path}[{where}]")
    return problems


def verdict(variables: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return {names, problems} of the secret variables, compared with the ``plain`` ones.

    No value is returned, because the planner's inputs are facts.
    """
    problems = []
    for name in map(str, variables):
        if name == _API_KEY:
            problems.append(
                Problem(f"{VARIABLE}.{name}", "it is set", "nothing", "move it to gb10_api_key, in a vault")
            )
        elif _RAY.fullmatch(name):
            problems.append(_of_ray(name, VARIABLE))
        elif name in ("VLLM_HOST_IP", systemd.INPUTS_VARIABLE):
            problems.append(Problem(f"{VARIABLE}.{name}", "it is set", "nothing: each node has its own", "remove it"))
        elif name in plain:
            problems.append(
                Problem(f"{VARIABLE}.{name}", "gb10_extra_env has it too", "each variable once", "remove one of them")
            )
    for name, value in variables.items():
        if isinstance(value, (Mapping, list)):
            problems.append(
                Problem(f"{VARIABLE}.{name}", "it is not a text", "one line of text", "set the value itself")
            )
    try:
        systemd.environment_file({str(name): str(value) for name, value in variables.items()})
    except ValueError as error:
        problems.append(Problem(VARIABLE, str(error), "variable names and one-line values", f"correct {VARIABLE}"))
    return {"names": sorted(map(str, variables)), "problems": [asdict(problem) for problem in problems]}


def text(variables: Mapping[str, str], salt: str) -> str:
    """Return the file's text. ``salt`` (32 hexadecimal digits) keeps its version from revealing short values."""
    return f"# salt {salt}\n{systemd.environment_file(variables)}"


def salt_of(file: str) -> str:
    """Return the salt of a file, "" if it has none."""
    found = _SALT.match(file)
    return found[1] if found else ""


def version(file: str) -> str:
    """Return an identifier that changes with the file, for users who cannot read it; "" for an empty file."""
    return hmac.new(salt_of(file).encode(), file.encode(), hashlib.sha256).hexdigest()[:32] if file else ""

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Secret variables of the ranks, and checks that no secret is readable by every user of a node."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import arguments, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem

VARIABLE = "gb10_secret_env"
#: What is wrong with an address, and the expected one.
USER, PLAIN = "an address with a user or a password", "an address without user and password"
#: The last word of a name, which a number may follow.
_SECRET = re.compile(
    r"(?:.*_)?(?:TOKEN|KEY|APIKEY|SECRET|PASS|PASSWD|PASSPHRASE|PWD|PAT|AUTH|CREDENTIALS?)(?:_?\d+)?|.*PASSWORD.*"
    r"|GIT_CONFIG_VALUE_\d+",
    re.IGNORECASE,
)
_PROXY = re.compile(r".*_proxy", re.IGNORECASE)
#: What follows :// in an address without user and password. ssh has no password there, and a path may have @.
_AUTHORITY = re.compile(r"(?:(?<=ssh://)[\w.-]+@)?(?:(?<=file://)|[\w.-]+|\[[\da-fA-F:.]+\])(?::\d+)?(?:/|$)", re.ASCII)
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]{0,20}://")
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
#: Options of an engine's run that set a variable. Options of one letter can be joined.
_ENGINE = re.compile(r"(?:--env=|-[diPqt]*e=?)(.+)", re.DOTALL)
_ENGINE_BEFORE = re.compile(r"--env|-[diPqt]*e")
_SALT = re.compile(r"# salt ([0-9a-f]{32})\n")


def check_environment(environment: Mapping[str, str], path: str) -> list[Problem]:
    """Return a problem for each variable that has a secret's name or controls Ray's token. No message shows a value."""
    problems = []
    for name, value in environment.items():
        if name == _API_KEY:
            found = f"{name} is set, and every user of every node could read it"
            problems.append(Problem(f"{path}.{name}", found, "nothing", "move it to gb10_api_key, in a vault"))
        elif _RAY.fullmatch(name):
            problems.append(_of_ray(name, path))
        elif _SECRET.fullmatch(name):
            found = f"{name} has the name of a secret, and every user of every node could read it"
            problems.append(Problem(f"{path}.{name}", found, "no secrets here", f"move it to {VARIABLE}, in a vault"))
        elif "@" in value if _PROXY.fullmatch(name) else names_user(value):
            problems.append(_of_address(f"{path}.{name}"))
    return problems


def names_user(text: str) -> bool:
    """Return whether a text has a URL with a user or a password.

    An apostrophe may be a part of both, and JSON may write a slash with a backslash.
    """
    return any(
        "@" in word and not all(_AUTHORITY.match(word, found.end()) for found in re.finditer("://", word))
        for word in re.split(r"[\s\"<>]+", text.replace("\\/", "/"))
    )


def in_data(data: Any) -> bool:
    """Return whether a text in plain data has a URL with a user or a password."""
    if isinstance(data, Mapping):
        return any(map(in_data, data.values()))
    return any(map(in_data, data)) if isinstance(data, list | tuple) else names_user(str(data))


def is_address(text: str) -> bool:
    """Return whether a text is an address without user and password, or has no @ at all."""
    return "@" not in text or (_SCHEME.match(text) is not None and not names_user(text))


def _of_address(path: str) -> Problem:
    fix = "use one without them, or set it in the configuration of each node, such as pip.conf or .netrc"
    return Problem(path, f"{USER}, and every user of every node could read it", PLAIN, fix)


def check_downloads(environment: Mapping[str, str], path: str) -> list[Problem]:
    """Return a problem for each variable of downloads with a secret: by its name, or a password in an address."""
    problems = check_environment(environment, path)
    known = {problem.path for problem in problems}
    wrong = [f"{path}.{name}" for name, value in environment.items() if not is_address(value)]
    return problems + [_of_address(each) for each in wrong if each not in known]


def _of_ray(name: str, path: str) -> Problem:
    found = f"{name} is set, and controls whether Ray requires its token"
    return Problem(f"{path}.{name}", found, "nothing: the cluster has its own token", "remove it")


def check_arguments(argv: Sequence[str], path: str) -> list[Problem]:
    """Return a problem for each argument of vllm serve that holds a secret, may hide one in a file or behind another
    argument, or configures TLS.

    argparse accepts options by the beginning of their names, and vLLM accepts underscores for hyphens. It joins
    --option.member=value into an object, which becomes the option's value.
    """
    problems = [_of_moved(f"{path}[{index}]") for index in arguments.moved(argv)]
    problems += [_of_address(f"{path}[{index}]") for index, word in enumerate(argv) if names_user(word)]
    for index, word in enumerate(argv):
        # Both words may be one item of the list, which vLLM refuses.
        name, *value = re.split(r"[=\s.]", word.replace("_", "-"), maxsplit=1)
        if name.startswith("--") and name != "--":
            valued = bool(value) or _is_value(argv, index + 1)
            problems += [Problem(f"{path}[{index}]", *found) for found in _of_option(name, valued)]
    return problems


def _of_option(name: str, valued: bool) -> Iterator[tuple[str, str, str]]:
    """Yield (found, expected, fix) of an option's name, or of its beginning. ``valued``: whether it has a value."""
    # vLLM handles this option itself, and only by its full name.
    if name == "--config":
        found = "--config is given: its file may hold a key, and its settings are neither planned nor checked"
        yield found, "the arguments themselves", "list the settings of the file, one argument each"
    for option, fix in _OPTIONS.items():
        # --hf-token without a value uses the token of `hf auth login`; then the arguments hold no secret.
        if option.startswith(name) and (valued or option != "--hf-token"):
            yield f"{option} is given, and every user of the head could read it", "no secrets in arguments", fix
    for option, fix in _TLS.items():
        if option == name or (option.startswith(name) and len(name) > len("--ssl-")):
            yield f"{name} is given", "TLS through gb10_api_tls_*", fix
            break


def _of_moved(path: str) -> Problem:
    found = "vLLM would take this word for an option with a dot, and the next word for its value"
    fix = "write --option.member=value, or JSON"
    return Problem(path, found, "--option.member=value, and then an option", fix)


def _is_value(argv: Sequence[str], index: int) -> bool:
    return index < len(argv) and not argv[index].startswith("-")


def check_engine(argv: Sequence[str], path: str) -> list[Problem]:
    """Return a problem for each secret in arguments of a container engine: variables, addresses, a registry's login."""
    problems = []
    for index, word in enumerate(argv):
        if word.partition("=")[0] == "--creds":
            fix = "log in on each node with the engine's login, as root"
            problems.append(Problem(f"{path}[{index}]", "--creds has a password", "no secrets in arguments", fix))
        separate = index and _ENGINE_BEFORE.fullmatch(argv[index - 1])
        given = _ENGINE.fullmatch(word)
        name, equals, value = (word if separate else given[1] if given else "").partition("=")
        if equals:
            problems += check_environment({name: value}, f"{path}[{index}]")
        elif names_user(word):
            problems.append(_of_address(f"{path}[{index}]"))
    return problems


def verdict(variables: Mapping[str, Any], plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return {names, problems} of the secret variables, compared with the ``plain`` ones.

    No value is returned, because the planner's inputs are facts.
    """
    problems = []
    names = [name for name in map(str, variables) if systemd.NAME.fullmatch(name)]
    for name in names:
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
    for name in names:
        if isinstance(variables.get(name), (Mapping, list)):
            problems.append(
                Problem(f"{VARIABLE}.{name}", "it is not a text", "one line of text", "set the value itself")
            )
    try:
        systemd.environment_file({str(name): str(value) for name, value in variables.items()}, secret=True)
    except ValueError as error:
        problems.append(Problem(VARIABLE, str(error), "variable names and one-line values", f"correct {VARIABLE}"))
    return {"names": sorted(names), "problems": [asdict(problem) for problem in problems]}


def text(variables: Mapping[str, str], salt: str) -> str:
    """Return the file's text. ``salt`` (32 hexadecimal digits) keeps its version from revealing short values."""
    return f"# salt {salt}\n{systemd.environment_file(variables, secret=True)}"


def salt_of(file: str) -> str:
    """Return the salt of a file, "" if it has none."""
    found = _SALT.match(file)
    return found[1] if found else ""


def version(file: str) -> str:
    """Return an identifier that changes with the file, for users who cannot read it; "" for an empty file."""
    return hmac.new(salt_of(file).encode(), file.encode(), hashlib.sha256).hexdigest()[:32] if file else ""

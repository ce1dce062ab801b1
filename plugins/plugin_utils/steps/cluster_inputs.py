# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Collect the values of all variables of this collection on a host, and the files that they name.

Reads the names, types and defaults of all variables from ``meta/argument_specs.yml`` of the roles, and their values
from Ansible. Variables of the inventory, of the play, of ``--extra-vars`` and of facts count. Parameters of a later
role do not, because the plan is made before.
Reads the files on the controller that variables name, such as a recipe, a certificate or a patch, without a connection.
"""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError, AnsibleUndefinedVariable
from ansible.module_utils.common.arg_spec import ArgumentSpecValidator

from ansible_collections.gb10.cluster.plugins.module_utils.common import secret_environment
from ansible_collections.gb10.cluster.plugins.module_utils.node import packages
from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs, inventory_folder, sources
from ansible_collections.gb10.cluster.plugins.plugin_utils.decision import Decision
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data

_MOST_REASON = 300
#: Types whose values the command line passes as text.
_SCALARS = ("bool", "dict", "float", "int", "list", "str")


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """No inputs."""


def run(step: Decision, _given: Inputs, variables: dict[str, Any]) -> dict[str, Any]:
    """Return the settings of all roles on the host, and those that a role will refuse.

    ``settings``: The value of each variable, otherwise its default. Variables with no_log are not in it.
    ``refused``: {name, found, expected} of each variable that its role will refuse. A value with no_log is not shown.
    A value that refers to an undefined variable is left to its role, because a later task may define it.
    ``variables``: The names of all variables of the host, without defaults of roles.
    ``packages``: The Debian packages that the roles need.
    ``recipe``: {name, path, text} of the file of gb10_recipe, empty without one. The text is untrusted.
    ``layers``: Those of gb10_image_layers, then the recipe's mods, as {name, folder, digest, packages, network,
    problem}.
    ``model``: The value of gb10_model, otherwise the recipe's model.
    ``model_path``: The model's folder on the nodes, "" without one.
    ``hub_model``: {name, revision} of a model on Hugging Face Hub, empty for a model with a folder.
    ``known_release``: Whether this release knows the arguments of the vLLM in the lock.
    ``build``: The variables of the role vllm_build, with the SHA-256 of its patches. On the head also that of its
    ``archives``.
    ``api``: {url, server_name, endpoint} of the API, and ``client``, the address for its certificate.
    ``client``: How clients reach the API: {endpoint, address, user, key_file, ca_file} of the node.
    ``certificates``: The texts {certificate, ca} of the API on the head, without its key; empty without TLS.
    ``gateway``: Whether the host is in the group of the gateway.
    ``golden_directory``: The folder on the controller of the cluster's golden records.
    ``key_problem``: The error in gb10_api_key, without the key.
    ``tls``: The problems, digest and end of validity of the head's certificate, without its key.
    ``secrets``: The names and problems of gb10_secret_env, without a value.
    """
    values: dict[str, Any] = {}
    settings: dict[str, Any] = {}
    refused = [
        {"name": name, "found": "a parameter of one role", "expected": "a variable that all roles have"}
        for name in step.parameters()
    ]
    for name, option in argument_specs.options().items():
        value, error = argument_specs.default(option), None
        if name in variables:
            value, error = _value(step, name, option, variables)
        values[name] = value
        if not option.get("no_log"):
            settings[name] = value
        if error:
            refused.append(error)
    names = sorted(variables["hostvars"][variables["inventory_hostname"]])
    needed = sorted({name for each in packages.of_roles(settings).values() for name in each})
    found = {"settings": settings, "refused": refused, "variables": names, "packages": needed}
    of_files = _sources(step, plain_data(values), settings, variables)
    found |= of_files
    refused += _of_folders(sources.of_others(plain_data(values), of_files, _inventory(variables)), variables)
    if not of_files["client"]["user"] and step.variable(variables, "ansible_connection", "ssh") in ("ssh", "smart"):
        words = [
            word
            for name in ("ssh_common_args", "ssh_extra_args")
            for each in [step.lookup("config", [name], variables, plugin_type="connection", plugin_name="ssh")]
            for word in shlex.split(str(step._templar.template(each) or ""))
        ]
        refused += _login(of_files["client"]["address"], words)
    return {"changed": False, **found, "_ansible_verbose_override": True}


def _sources(step: Decision, values: Mapping[str, Any], settings: dict[str, Any], variables: Mapping[str, Any]) -> Any:
    """Return the files on the controller that the settings name. The lock is a setting without a default."""
    host, inventory = variables["inventory_hostname"], _inventory(variables)
    # Variables of a play are templates here.
    head = host in step.variable(variables, "gb10_heads", [])
    address = str(step.variable(variables, "ansible_host", host))
    names = ("remote_user", "port", "private_key_file")
    ssh = (step.lookup("config", [name], variables, plugin_type="connection", plugin_name="ssh") for name in names)
    # The value of a variable is a template here, which a text without Ansible's mark would stay.
    user, port, identity = (str(step._templar.template(value) or "") for value in ssh)
    read = partial(step.file, variables=variables)
    settings["gb10_runtime_lock"] = sources.lock(values)
    nodes = len(step.variable(variables, "gb10_nodes", []))
    found = sources.recipe(values, inventory, nodes, read)
    records = step.variable(variables, "gb10_records", f"{inventory}/.gb10")
    golden = str(values["golden_directory"] or f"{records}/golden")
    secrets = sources.secrets(values, head, address, read)
    secrets["client"] |= {"user": user, "port": "" if port == "22" else port, "identity": identity}
    return {
        **found,
        **sources.model(found["model"], values),
        "known_release": sources.known_release(read(settings["gb10_runtime_lock"])),
        "build": sources.build(values, head, inventory),
        "nccl_patches": sources.patches_of_nccl(values["nccl_sm121_build_patches"], inventory),
        **secrets,
        "gateway": host in variables["groups"].get("gateway", ()),
        "golden_directory": str(Path(golden).expanduser().resolve()),
    }


def _value(
    step: Decision, name: str, option: Mapping[str, Any], variables: Mapping[str, Any]
) -> tuple[Any, dict[str, str] | None]:
    """Return a variable's value in the type of its specification, or its default and why the value is refused."""
    try:
        value = step._templar.template(variables[name])
    except AnsibleUndefinedVariable as error:
        # A later task may define the variable to which it refers. Otherwise its role reports it.
        unknown = _unknown(name, option, error, "a value without undefined variables")
        return argument_specs.default(option), unknown if name.startswith("gb10_") else None
    except AnsibleError as error:
        expected = "a value that Ansible can decrypt (--ask-vault-pass) and evaluate"
        return argument_specs.default(option), _unknown(name, option, error, expected)
    result = ArgumentSpecValidator({name: option}).validate({name: value})
    errors = list(result.error_messages)
    if option.get("type", "str") == "str" and isinstance(value, Mapping | list | tuple):
        # Ansible would take its notation in Python as the text.
        errors = [f"a {'mapping' if isinstance(value, Mapping) else 'list'}"]
    if errors:
        return argument_specs.default(option), {
            "name": name,
            "found": _found(value, option, errors),
            "expected": _expected(option),
        }
    if not option.get("no_log") and _names_user(name, value):
        found = {"name": name, "found": secret_environment.USER, "expected": secret_environment.PLAIN}
        return argument_specs.default(option), found
    scalar = option.get("type", "str") in _SCALARS and "options" not in option
    return result.validated_parameters[name] if scalar else value, None


def _inventory(variables: Mapping[str, Any]) -> str:
    return str(variables.get("inventory_dir") or "")


def _of_folders(given: Mapping[str, list[str]], variables: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return the paths of others that Ansible has read as inventories, and the inventories that it has not read."""
    inventories = variables.get("ansible_inventory_sources") or []
    return inventory_folder.refused(given, inventories) + inventory_folder.unread(inventories)


def _names_user(name: str, value: Any) -> bool:
    """Return whether a value, which becomes arguments, environments and facts, has an address with a user."""
    return secret_environment.in_data(value) or (
        name.endswith("_index_url") and not secret_environment.is_address(str(value))
    )


def _login(address: str, arguments: list[str]) -> list[dict[str, str]]:
    """Return why the login as root is refused if neither the inventory nor ssh's configuration names it.

    ``arguments``: the inventory's for ssh, which may name a user or a configuration.
    """
    if os.geteuid() != 0 or address.startswith("-"):
        return []
    # Only ssh knows its configuration: it prints it, without a connection.
    options: dict[str, Any] = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
    try:
        done = subprocess.run(["ssh", "-G", *arguments, address], **options, check=False)
    except FileNotFoundError:
        # A plan without a connection needs no ssh.
        return []
    if "user root" not in done.stdout.splitlines():
        return []
    expected = "the user of the Spark's first setup (ansible_user: root if you mean root)"
    return [{"name": "ansible_user", "found": "it is not set, so ssh logs in as root", "expected": expected}]


def _unknown(name: str, option: Mapping[str, Any], error: AnsibleError, expected: str) -> dict[str, str]:
    """Return why the value of a variable is not known. The reason for a secret could have a part of it."""
    reason = "" if option.get("no_log") else f": {' '.join(str(error).split())[:_MOST_REASON]}"
    return {"name": name, "found": f"it cannot be evaluated{reason}", "expected": expected}


def _found(value: Any, option: Mapping[str, Any], errors: list[str]) -> str:
    if option.get("no_log"):
        return "a value of another form"
    return repr(value) if isinstance(value, str | int | float) else "; ".join(errors)


def _expected(option: Mapping[str, Any]) -> str:
    if option.get("choices"):
        return f"one of {', '.join(map(str, option['choices']))}"
    elements = f" of {option['elements']}" if "elements" in option else ""
    return f"a value of type {option.get('type', 'str')}{elements}"

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The names that Ansible and the playbooks know in an inventory. Only these are shown: other texts may be secrets."""

from __future__ import annotations

import re

from ansible_collections.gb10.cluster.plugins.module_utils.cluster import select
from ansible_collections.gb10.cluster.plugins.module_utils.cluster.words_data import OF_VLLM
from ansible_collections.gb10.cluster.plugins.module_utils.common import similar

HEAD, WORKER = "head", "worker"
ROLES = (HEAD, WORKER)
#: The keys of a group. Source: ansible-core 2.19, plugins/inventory/yaml.py.
SECTIONS = ("hosts", "children", "vars")
#: Groups that the playbooks read.
GROUPS = (select.ALL, *ROLES, "gateway", "monitoring")
#: Variables of a connection that an owner sets. Source: Ansible's "Special Variables" and its plugins ssh and sudo.
CONNECTION = (
    *("ansible_host", "ansible_user", "ansible_port", "ansible_password", "ansible_connection"),
    *("ansible_become", "ansible_become_user", "ansible_become_password", "ansible_become_method"),
    *("ansible_ssh_private_key_file", "ansible_ssh_common_args", "ansible_ssh_extra_args", "ansible_ssh_pass"),
    *("ansible_ssh_host_key_checking", "ansible_python_interpreter", "ansible_ssh_user", "ansible_ssh_host"),
    *("ansible_ssh_args", "ansible_ssh_executable", "ansible_ssh_port", "ansible_become_pass", "ansible_become_exe"),
)
#: The beginnings of other variables of Ansible's plugins, whose names may resemble these.
OF_PLUGINS = tuple(
    f"ansible_{word}"
    for word in (
        "admin async become control host_key paramiko private_key psrp runas scp sftp shell ssh su sudo win winrm"
    ).split()
)
#: Words for these variables in other tools' files.
OF_OTHERS = {
    **dict.fromkeys(("host", "hostname", "ip", "address", "addr", "ip_address"), "ansible_host"),
    **dict.fromkeys(("user", "username", "login", "ssh_user", "remote_user"), "ansible_user"),
    **dict.fromkeys(("port", "ssh_port"), "ansible_port"),
}
_NEAR = 0.75
_OF_VARIABLES = re.compile(r"(?:ansible|gb10|vllm)_[a-z0-9_]+", re.ASCII)


def shown(text: str) -> str:
    """Return the name at the beginning of a text, for messages: "…" for one that is not known or similar to one."""
    found = re.match(r"[\w.-]{1,60}", text, re.ASCII)
    name = found[0] if found else ""
    known = _OF_VARIABLES.fullmatch(name) or name in OF_VLLM or name in OF_OTHERS or meant(name, (*SECTIONS, *GROUPS))
    if not known:
        return "…"
    return name if name == text else f"{name}…"


def meant(name: str, names: tuple[str, ...] | list[str]) -> str:
    """Return the one of ``names`` that a name is, or is very similar to, "" without one."""
    plain = name.lower().replace("-", "_")
    found = similar.close(plain.removesuffix("s"), names, cutoff=_NEAR) or similar.close(plain, names, cutoff=_NEAR)
    return plain if plain in names else found[0] if found else ""

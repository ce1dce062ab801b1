# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The causes of a node that cannot be read, as symptoms."""

from __future__ import annotations

from collections.abc import Mapping

from ansible_collections.gb10.cluster.plugins.module_utils.access.causes import CAUSES
from ansible_collections.gb10.cluster.plugins.module_utils.health.symptom import LAB, SOURCE, Symptom

#: ID -> symptom.
ACCESS: Mapping[str, Symptom] = {
    cause.id: Symptom(
        id=cause.id,
        topic="Access to the nodes",
        shows=(cause.shows,),
        cause=cause.cause,
        fix=cause.fix,
        source="OpenSSH, sudo and ansible-core (messages)",
        # Only the program sshpass, which no test uses, lets Ansible distinguish it.
        tested=SOURCE if cause.id == "login-password-wrong" else LAB,
    )
    for cause in CAUSES
}

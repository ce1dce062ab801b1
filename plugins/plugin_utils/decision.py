# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Actions that decide on the controller with the core, from the plan and the results of all nodes."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.playbook.role_include import IncludeRole
from ansible.plugins.action import ActionBase
from ansible.plugins.loader import lookup_loader

from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs
from ansible_collections.gb10.cluster.plugins.plugin_utils.plain import plain_data, typed_plan

if TYPE_CHECKING:
    from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Plan

#: sshd's variable SSH_CONNECTION: the client's address and port, the server's address and port.
_CONNECTION = re.compile(r"^(\S+) (\d+) \S+ \d+\s*$", re.MULTILINE)

#: The module that runs a step on the node.
_NODE_STEP = "gb10.cluster.node_step"
_INTERPRETER = "discovered_interpreter_python"
_PAUSE_SECONDS = 3
Settings = TypeVar("Settings")
Answer = TypeVar("Answer")


class Decision(ActionBase):
    """A base for actions whose result a task registers in place of facts and filters.

    Nothing that it returns is changed on a node, unless a module that it calls does so.
    """

    _supports_check_mode = True
    #: Whether the node's answers are trusted. Then the result has the interpreter that Ansible found for a module.
    #: Without it, each task would look for it again.
    trusted = True
    #: Whether the plan alone decides: then no variable of a role counts that a play gives to the role as a parameter.
    planned = True
    _interpreter: Mapping[str, Any] = {}

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Return the result of decide()."""
        super().run(tmp, task_vars)
        found = self.decide(task_vars or {})
        return {"ansible_facts": self._interpreter, **found} if self._interpreter and self.trusted else found

    def decide(self, variables: dict[str, Any]) -> dict[str, Any]:
        """Return the task's result. ``variables`` are those of its host."""
        raise NotImplementedError

    @property
    def check_mode(self) -> bool:
        """Whether the task only reports what it would change."""
        return bool(self._task.check_mode)

    @property
    def shows_difference(self) -> bool:
        """Whether the task's result may have a difference."""
        return bool(self._task.diff)

    def arguments(self, **options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the task's arguments as plain values of the types in ``options``, an argument_spec."""
        _result, found = self.validate_argument_spec(argument_spec=options)
        plain: dict[str, Any] = plain_data(found)
        return plain

    def variable(self, variables: Mapping[str, Any], name: str, default: Any = None) -> Any:
        """Return the value of a variable of the task's host as plain data."""
        return plain_data(self._templar.template(variables[name])) if name in variables else default

    def address(self, variables: Mapping[str, Any]) -> str:
        """Return the address of the task's host in the inventory."""
        legacy = self.variable(variables, "ansible_ssh_host", variables["inventory_hostname"])
        return str(self.variable(variables, "ansible_host", legacy))

    def plan(self, variables: Mapping[str, Any]) -> Plan:
        """Return the fact gb10_plan of the task's host. Raises TypeError with the path of a wrong value."""
        if names := self.parameters() if self.planned else []:
            raise AnsibleError(
                f"{', '.join(names)}: set for this role alone. Expected: variables of the inventory, of a play or of "
                "the command line, because the plan and other roles have no role's parameter. Fix: move them there"
            )
        # A fact has no templates, and this takes a third of the time of an action.
        given = variables["gb10_plan"]
        return typed_plan(self._templar.template(given) if isinstance(given, str) else given)

    def role_settings(self, variables: Mapping[str, Any], kind: type[Settings]) -> Settings:
        """Return the roles' variables of a dataclass from the fact gb10_inputs, which the planner has validated."""
        return load.chosen(kind, self.variable(variables, "gb10_inputs")["settings"], "gb10_inputs.settings")

    def parameters(self) -> list[str]:
        """Return the names of the roles' variables that a play sets for the task's role alone.

        Variables that it sets for a role around this one reach all roles in that.
        """
        parent, role = self._task._parent, self._task._role
        while parent and not isinstance(parent, IncludeRole):
            parent = parent._parent
        found = {*(parent.vars if parent else ()), *((*role.get_role_params(), *role.vars) if role else ())}
        # Reading the specifications takes as long as the rest of an action.
        return sorted(found & argument_specs.options().keys()) if any(map(argument_specs.of_cluster, found)) else []

    def of_nodes(self, variables: Mapping[str, Any], nodes: Iterable[str], name: str, default: Any) -> dict[str, Any]:
        """Return node -> its variable ``name``, such as a registered result; ``default`` where it is not defined."""
        hosts = variables["hostvars"]
        found = {node: hosts[node].get(name, default) if node in hosts else default for node in nodes}
        return plain_data(found)

    def observed(self, variables: Mapping[str, Any], nodes: Iterable[str]) -> dict[str, Any]:
        """Return node -> its facts from the start of this run, as module node_info returns them; {} without any."""
        read = self.of_nodes(variables, nodes, "__gb10_facts", {})
        return {node: found.get("node", {}).get("observed", {}) for node, found in read.items()}

    def client(self) -> tuple[str, str]:
        """Return address and port of the SSH client of the current connection, ("", "") without SSH."""
        # Without SSH the variable would be that of the shell that runs Ansible.
        if not re.search("ssh|paramiko", self._connection.transport):
            return "", ""
        reported = self._low_level_execute_command('printf "%s\\n" "$SSH_CONNECTION"', sudoable=False)
        found = _CONNECTION.findall(reported["stdout"])
        return found[-1] if found else ("", "")

    def lookup(self, name: str, terms: list[str], variables: Mapping[str, Any], **options: Any) -> Any:
        """Return the first result of a lookup, by default of Ansible's own. Raises AnsibleError."""
        full = name if "." in name else f"ansible.builtin.{name}"
        lookup = lookup_loader.get(full, self._loader, self._templar)
        return lookup.run(terms, variables, **options)[0]

    def file(self, path: str, variables: Mapping[str, Any]) -> str:
        """Return the text of a file on the controller, "" if it cannot be read; the planner reports that."""
        try:
            return str(self.lookup("file", [path], variables))
        except AnsibleError:
            return ""

    def module(
        self, arguments: Mapping[str, Any], variables: Mapping[str, Any], name: str | None = None
    ) -> dict[str, Any]:
        """Return the result of a module, by default of the task's own. Raises AnsibleError."""
        result = dict(self._execute_module(module_name=name, module_args=dict(arguments), task_vars=dict(variables)))
        if found := result.get("ansible_facts", {}).get(_INTERPRETER):
            self._interpreter = {_INTERPRETER: found}
        return result

    def node(self, name: str, inputs: Mapping[str, Any], variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the result of a step on the node. Raises AnsibleError."""
        return self.module({"name": name, "inputs": dict(inputs)}, variables, _NODE_STEP)

    def reconnected(self, ask: Callable[[], Answer], deadline: float) -> Answer:
        """Return the answer of the task's host, asked over new connections until it has one.

        Raises AnsibleConnectionFailure after ``deadline``, a time of time.monotonic().
        """
        while True:
            time.sleep(_PAUSE_SECONDS)
            try:
                self._connection.reset()
                return ask()
            except AnsibleConnectionFailure:
                if time.monotonic() > deadline:
                    raise

    def read_node(self, name: str, inputs: Mapping[str, Any], variables: Mapping[str, Any]) -> tuple[Any, str]:
        """Return the result of a step on the node as read()."""
        return self.read(_NODE_STEP, {"name": name, "inputs": dict(inputs)}, variables)

    def read(self, module: str, arguments: Mapping[str, Any], variables: Mapping[str, Any]) -> tuple[Any, str]:
        """Return a module's result and "", or {} and the reason why it could not be read.

        A node stays in the play that is unreachable, as with ignore_unreachable, or whose sudo asks for a password.
        """
        try:
            result = self.module(arguments, variables, module)
        except AnsibleError as error:
            return {}, str(error) or "no answer"
        if not result.get("failed"):
            return result, ""
        # What sudo prints when it refuses the user is not in the message.
        parts = (str(result.get(name) or "") for name in ("msg", "module_stderr", "module_stdout"))
        return {}, " ".join(part for part in parts if part) or "no reason given"

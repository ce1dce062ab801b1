"""A running cluster from its inventory: its nodes over SSH, and its playbooks."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import paramiko
import pytest
from repository import ROOT
from run_playbook import PLAIN, Run, run
from testinfra.backend import get_backend
from testinfra.host import Host
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.fabric.topology import SPARK_PORTS
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import record
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.record import Record

#: Variables of a host that ssh cannot reach. Without ControlPersist, ssh does not use an open connection to the right
#: port.
NO_SSH = {"ansible_port": 9, "ansible_ssh_args": "-o ConnectTimeout=2"}
#: The roles that start the model, by their tags. The watchdog has the executor in its settings, and stop.yml stops it.
SERVE = ("--tags", "ray_cluster,vllm_serve,vllm_watchdog")


@dataclass(frozen=True)
class Cluster:
    """The inventory, templates resolved: host names by group, and each node's variables."""

    groups: Mapping[str, Sequence[str]]
    nodes: Mapping[str, Mapping[str, Any]]
    #: Arguments of ansible-playbook to reach the same cluster: -i and -e with their values.
    arguments: Sequence[str]

    def variable(self, name: str, default: Any, node: str = "") -> Any:
        """Return a variable of the inventory, by default of the head. ``default`` is the role's default."""
        return self.nodes[node or next(iter(self.nodes))].get(name, default)

    def site(self, *arguments: str, environment: Mapping[str, str] | None = None) -> Run:
        """Run site.yml on this cluster."""
        return run("site.yml", [*self.arguments, *arguments], environment)

    def serve(self, *arguments: str) -> Run:
        """Run the roles of site.yml that start the model. The other roles would double the time and change nothing."""
        return self.site(*SERVE, *arguments)

    def play(self, name: str, *arguments: str, **variables: object) -> Run:
        """Run one of the playbooks on this cluster, with variables."""
        given = extra(**variables) if variables else ()
        return run(f"playbooks/{name}.yml", [*self.arguments, *arguments, *given])

    def status(self) -> str:
        """Return the output of status.yml."""
        return self.play("status").assert_ok().output

    def screen(self, *arguments: str, **variables: object) -> list[str]:
        """Return the lines of status.yml, which changes nothing."""
        return self.play("status", *arguments, **variables).assert_unchanged().shown("Show the status of the cluster")

    def module(self, name: str, **arguments: Any) -> dict[str, Any]:
        """Run a module on the head as root, and return its result."""
        program = Path(sys.executable).with_name("ansible")
        given = ["-a", json.dumps(arguments)] if arguments else []
        command = [program, *self.arguments, "--become", "head", "-m", name, *given]
        done = subprocess.run(command, cwd=ROOT, env=os.environ | PLAIN, check=False, capture_output=True, text=True)
        _header, found, answer = done.stdout.partition(" => ")
        assert found, done.stdout + done.stderr
        result: dict[str, Any] = json.loads(answer)
        assert not result.get("failed"), result
        return result

    def third_host(self, group: str, name: str, folder: Path, **variables: object) -> Cluster:
        """Return the cluster with the lab's host after its nodes, in a group of its own and with variables."""
        first = next(iter(self.nodes.values()))
        address = f"{first['lab_prefix']}.{11 + len(self.nodes)}"
        place = {**first, "ansible_host": address, "ansible_python_interpreter": "/usr/bin/python3"}
        given = {key: place[key] for key in place if key.startswith("ansible_")} | variables
        (folder / "hosts.yml").write_text(json.dumps({group: {"hosts": {name: given}}}), encoding="utf-8")
        arguments = ["--inventory", str(folder / "hosts.yml"), *self.arguments]
        return replace(self, arguments=arguments, nodes={**self.nodes, name: place})

    def verify(self, file: Path, *arguments: str) -> tuple[Run, set[str]]:
        """Run verify.yml, which writes JSON lines into ``file``. Returns the run and the IDs of its findings."""
        done = self.play("verify", *arguments, verify_output=str(file))
        lines = map(json.loads, file.read_text(encoding="utf-8").splitlines()) if file.exists() else ()
        return done, {line["id"] for line in lines if "id" in line}

    def reboot(self, name: str, host: Host, within: float = 120) -> Host:
        """Reboot a node, and return a new connection to it."""
        mark = "/run/before-the-reboot"  # the reboot removes it
        host.check_output(f"touch {mark}")
        host.run("systemctl reboot")
        # -1: the connection ended before the answer.
        return self.booted(name, within, lambda again: again.run(f"test -e {mark}").rc == 1)

    def booted(self, name: str, within: float = 120, ready: Callable[[Host], bool] = lambda _host: True) -> Host:
        """Return a new connection to a node that boots."""

        def connection() -> Host | None:
            with suppress(pytest.fail.Exception, paramiko.SSHException, OSError, EOFError):
                host = self.connect(name)
                return host if ready(host) else None
            return None

        return wait_until(connection, within, f"{name} did not come back")

    def power(self, switch: str, *names: str) -> None:
        """Turn nodes of a lab "on" or "off" like a power supply, one after the other."""
        for name in names:
            subprocess.run([f"{self.nodes[name]['lab_dir']}/power.sh", switch, name], check=True)

    def rails(self, name: str, state: str) -> None:
        """Set the QSFP link of a lab's node "up" or "down" from outside of it, as a cable does: both ends lose
        carrier."""
        for twin in SPARK_PORTS[1]:
            netns = f"{self.nodes[name]['lab_name']}-{name}"
            subprocess.run(["ip", "-n", netns, "link", "set", twin.interface, state], check=True, capture_output=True)

    def connect(self, name: str) -> Host:
        """Return a new connection to a node. Its host key must equal the pinned one in its known_hosts file."""
        variables = self.nodes[name]
        address, port = variables["ansible_host"], int(variables.get("ansible_port", 22))
        # get_host would return the connection of an earlier call, even if it is dead.
        backend = get_backend(
            f"paramiko://{variables['ansible_user']}@{address}:{port}",
            ssh_identity_file=variables.get("ansible_ssh_private_key_file"),
            sudo=True,
        )
        backend.set_host(host := Host(backend))
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the backend warns about every key; the code below checks it
                transport = host.backend.client.get_transport()
        except (OSError, paramiko.SSHException) as error:
            pytest.fail(
                f"{name} does not answer at {address}:{port} ({error}). Fix: start the lab with `make demo`.",
                pytrace=False,
            )
        option = re.search(r"UserKnownHostsFile=(\S+)", variables.get("ansible_ssh_common_args", ""))
        known_hosts = Path(option[1] if option else "~/.ssh/known_hosts").expanduser()
        entry = address if port == 22 else f"[{address}]:{port}"
        if not paramiko.HostKeys(str(known_hosts)).check(entry, transport.get_remote_server_key()):
            pytest.fail(f"{entry} has a host key that is not in {known_hosts}", pytrace=False)
        return host


def extra(**variables: object) -> tuple[str, str]:
    """Return arguments of ansible-playbook that set variables."""
    return "--extra-vars", json.dumps(variables)


def on_all(nodes: Mapping[str, Host], command: str, *arguments: str) -> dict[str, str]:
    """Run a command on each node, and return the outputs. It must succeed."""
    return {name: host.check_output(command, *arguments) for name, host in nodes.items()}


def of_unit(host: Host, unit: str, properties: str = "MainPID") -> str:
    """Return the values of a unit's properties, one a line. Another unit follows an empty line."""
    return str(host.check_output(f"systemctl show --property={properties} --value {unit}"))


def started(host: Host) -> str:
    """Return the ID of the last start of vLLM's server."""
    return of_unit(host, "gb10-vllm", "InvocationID")


def environment_of(host: Host, unit: str) -> dict[str, str]:
    """Return the environment of a unit's main process, {} if it does not run."""
    if (pid := of_unit(host, unit)) == "0":
        return {}
    lines = host.check_output(f"tr '\\0' '\\n' </proc/{pid}/environ").splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


def run_program(host: Host, program: str, *arguments: str) -> Any:
    """Run a Python program as root, and return the data that it prints as JSON."""
    # Not check_output, which would interpret each % of the program as a placeholder.
    done = host.run(f"python3 - {' '.join(map(shlex.quote, arguments))} <<'END'\n{program}\nEND")
    assert done.rc == 0, done.stderr
    return json.loads(done.stdout)


def flight_records(host: Host) -> dict[str, Record]:
    """Return the flight recorder's records of other nodes by their files."""
    folder = "/var/lib/gb10-flight-recorder"
    return {
        name: record.parse(host.check_output(f"cat {folder}/{name}"))
        for name in host.check_output(f"ls {folder}").split()
    }


def new_flight_records(host: Host, before: Collection[str], within: float) -> list[Record]:
    """Wait for new records, and return them. A header is written with all of its samples."""
    return wait_until(lambda: [found for name, found in flight_records(host).items() if name not in before], within)


def lock_dpkg(host: Host, seconds: int) -> None:
    """Let a process of the unit lab-upgrade hold dpkg's lock in the background, as an unattended upgrade does."""
    held = "/run/lab-locked"
    program = "import fcntl, time; file = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(file, fcntl.LOCK_EX); "
    program += f"open('{held}', 'w').close(); time.sleep({seconds})"
    host.check_output(f'systemd-run --quiet --collect --unit=lab-upgrade python3 -c "{program}"')
    host.check_output(f"until [ -e {held} ]; do sleep 0.1; done; rm {held}")


@contextmanager
def dpkg_locked(host: Host) -> Iterator[None]:
    """Hold dpkg's lock during the block."""
    lock_dpkg(host, 600)
    try:
        yield
    finally:
        host.check_output("systemctl stop lab-upgrade")


@contextmanager
def copied(nodes: Mapping[str, Host], model: str, copy: str, then: str = "true") -> Iterator[str]:
    """Copy a model on every node during the block, and run a command on the copy."""
    on_all(nodes, f"cp -rL /srv/models/{model} {copy} && {then}")
    try:
        yield copy
    finally:
        on_all(nodes, f"rm -rf {copy}")


@contextmanager
def running(playbook: Callable[[], Run], head: Host) -> Iterator[list[Run]]:
    """Run a playbook that holds the cluster lock during the block. The list contains its run after the block."""
    ended: list[Run] = []
    thread = threading.Thread(target=lambda: ended.append(playbook()))
    thread.start()
    try:
        wait_until(lambda: head.file("/run/gb10/lock.json").exists, 60, "the first run took no lock", 0.1)
        yield ended
    finally:
        thread.join()

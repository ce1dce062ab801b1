# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The flight recorder of a node. gb10-flight-recorder.service runs this file as a user without privileges.

It sends a sample every two seconds, and the kernel's messages, to one other node over the fabric. It keeps what another
node sends, and writes a record when that one falls silent. A node without another one writes a file of fixed size.
"""

from __future__ import annotations

import contextlib
import os
import queue
import secrets
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from ipaddress import IPv4Interface
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import foreign, io_file, io_json
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_journal import say
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import (
    io_node,
    messages,
    parse,
    record,
    ring,
    schema,
    watch,
)
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.messages import Message
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Sample
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.watch import Entry

#: Source: ip(7). At boot the fabric's address may come after the service.
_IP_FREEBIND = 15
#: Maximum bytes of a record of /dev/kmsg (kernel/printk, PRINTK_MESSAGE_MAX), its records in a sample, and datagrams
#: that are read at once.
_KMSG_BYTES, _KMSG_RECORDS, _BURST = 8192, 200, 100
#: Seconds without a turn after which this process itself had stopped; between two writes for lines of the kernel;
#: between two looks at the addresses.
_STOPPED, _WRITE, _LOOK = 5.0, 0.5, 60.0
_GOODBYES = 3
_CLOSED = 0o600


def boot_id() -> str:
    """Return the ID of this boot."""
    return io_file.read("/proc/sys/kernel/random/boot_id").strip()


class Stop(Exception):
    """systemd stops the service."""


class Kmsg:
    """/dev/kmsg from its end. A container of a lab has none."""

    def __init__(self, path: str = "/dev/kmsg") -> None:
        self.file: int | None = None
        try:
            self.file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.lseek(self.file, 0, os.SEEK_END)
        except OSError as error:
            say(f"{path} cannot be read, so samples have no messages of the kernel: {error}")

    def lines(self, most: int) -> tuple[list[str], bool]:
        """Return at most that many new lines, and whether more may follow."""
        found: list[str] = []
        if self.file is None:
            return found, False
        for _record in range(most):
            try:
                data = os.read(self.file, _KMSG_BYTES)
            except BrokenPipeError:
                # The kernel overwrote records. The next read is of the oldest one.
                continue
            except OSError:
                return found, False
            if not data:
                return found, False
            if line := parse.kernel_line(data.decode("utf-8", "replace")):
                found.append(foreign.line(line))
        return found, True


class Records:
    """The folder of the records. A thread writes: a slow disk must not stop the recorder."""

    def __init__(self, folder: str, recorder: str) -> None:
        self._folder, self._recorder = folder, recorder
        self._path = ""
        self._appended = 0
        self._work: queue.Queue[Callable[[], None]] = queue.Queue()
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            action = self._work.get()
            try:
                action()
            except Exception as error:  # noqa: BLE001  # A full disk must not end the following ones.
                say(f"a record was not written: {error!r}")
            self._work.task_done()

    def write(self, node: str, silent: float, entries: Sequence[Entry], cause: Callable[[], str]) -> None:
        """Write a record. ``cause`` returns the verdict, and may take seconds."""
        self._appended = 0
        self._work.put(lambda: self._write(node, silent, entries, cause()))

    def _write(self, node: str, silent: float, entries: Sequence[Entry], verdict: str) -> None:
        for name in record.surplus(os.listdir(self._folder), node):
            os.unlink(f"{self._folder}/{name}")
        path = f"{self._folder}/{record.name(node, silent)}"
        io_file.write_file(path, record.text(node, self._recorder, silent, verdict, entries), _CLOSED)
        self._path = path
        say(f"{node} fell silent: {record.VERDICTS[verdict]}. Its last samples: {path}")

    def append(self, entry: Entry) -> None:
        """Append an entry to the last record."""
        if entry.kind == record.NETCONSOLE:
            self._appended += 1
        if self._appended <= record.MOST_APPENDED or entry.kind != record.NETCONSOLE:
            self._work.put(lambda: self._append(entry))

    def _append(self, entry: Entry) -> None:
        if not self._path:
            return
        with open(self._path, "a", encoding="utf-8") as file:
            file.write(record.line(asdict(entry)))
            file.flush()
            os.fsync(file.fileno())

    def finish(self) -> None:
        """Wait until all is written."""
        self._work.join()


class Ring:
    """The file of a node without a peer."""

    def __init__(self, folder: str, node: str, boot: str, records: Records) -> None:
        self._boot, self._written = boot, 0.0
        self._pending: list[str] = []
        self._file = os.open(f"{folder}/ring", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, _CLOSED)
        found = ring.slots(os.pread(self._file, ring.SIZE, 0))
        # Written blocks: a later write changes no other block, such as one of the file system's own.
        if (size := os.fstat(self._file).st_size) < ring.SIZE:
            os.pwrite(self._file, bytes(ring.SIZE - size), size)
            os.fsync(self._file)
        self._number = int(found[-1]["number"]) if found else 0
        if left := ring.former(found, boot):
            records.write(node, float(left[-1]["time"]), _entries(left), lambda: record.POWER)
            records.finish()
        self.write(ring.SAMPLE, None)

    def lines(self, found: Sequence[str], now: float) -> None:
        """Write lines of the kernel: at once, unless the last write was just now."""
        self._pending += found
        if self._pending and now - self._written >= _WRITE:
            self.write(ring.SAMPLE, None)

    def write(self, kind: str, sample: Sample | None) -> None:
        """Write a slot."""
        self._number += 1
        plain = asdict(sample) if sample else None
        data = ring.slot(self._number, self._boot, kind, round(time.time(), 3), plain, self._pending[-_KMSG_RECORDS:])
        self._pending, self._written = [], time.monotonic()
        try:
            os.pwrite(self._file, data, ring.place(self._number))
            os.fdatasync(self._file)
        except OSError as error:
            say(f"the file of samples was not written: {error}")


def _entries(slots: Sequence[Mapping[str, Any]]) -> list[Entry]:
    """Return the entries of a former boot."""
    found = []
    for each in slots:
        when = float(each["time"])
        found += [Entry(when, messages.KERNEL, foreign.line(str(line))) for line in each["lines"]]
        with contextlib.suppress(ValueError):
            found.append(Entry(when, messages.SAMPLE, schema.dump(schema.of_plain(each.get("sample"))).decode()))
    return found


class Link:
    """The connection to the two neighbors: one gets this node's messages, the other one sends its own."""

    def __init__(self, given: Mapping[str, Any], keys: Sequence[str], records: Records) -> None:
        self._given, self._records = given, records
        self._key, self._key_of_sender = keys
        self._session, self._number, self._nonce = secrets.token_hex(8), 0, ""
        self._addresses: tuple[str, ...] = ()
        self._looked = 0.0
        self.sender = watch.Sender(given["watched"]["name"], secrets.token_hex(8))
        self.outgoing = _socket()
        self.incoming = _socket((given["watched"]["listen"], given["port"]))
        self.netconsole = _socket((given["watched"]["listen"], given["port"] + 1))

    def send(self, kind: str, sample: Sample | None = None, lines: tuple[str, ...] = ()) -> None:
        """Send a message to the peer. One that the network refuses is lost."""
        now = time.monotonic()
        if not self._looked or now - self._looked > _LOOK:
            self._addresses, self._looked = tuple(str(each.ip) for each in self._own()), now
        self._number += 1
        peer = self._given["peer"]
        message = Message(
            kind,
            self._given["node"],
            peer["name"],
            self._session,
            self._number,
            self._nonce,
            sample,
            lines,
            addresses=self._addresses if kind == messages.SAMPLE else (),
        )
        with contextlib.suppress(OSError):
            self.outgoing.sendto(messages.encode(message, self._key), (peer["address"], self._given["port"]))

    def _own(self) -> tuple[IPv4Interface, ...]:
        """Return this node's addresses outside of the fabric."""
        return io_node.addresses([each["interface"] for each in self._given["rails"]])

    def answered(self) -> None:
        """Read the peer's replies, which have its nonce."""
        for data, _address in _received(self.outgoing):
            reply = messages.decode(data, self._key)
            if reply and (reply.kind, reply.to, reply.session) == (
                messages.REPLY,
                self._given["node"],
                self._session,
            ):
                self._nonce = reply.nonce

    def receive(self, now: float) -> None:
        """Read the messages of the watched node."""
        for data, address in _received(self.incoming):
            message = messages.decode(data, self._key_of_sender)
            if message is None or (message.sender, message.to) != (self.sender.name, self._given["node"]):
                continue
            if message.nonce != self.sender.nonce:
                reply = Message(
                    messages.REPLY, self._given["node"], message.sender, message.session, nonce=self.sender.nonce
                )
                with contextlib.suppress(OSError):
                    self.incoming.sendto(messages.encode(reply, self._key_of_sender), address)
            elif self.sender.accept(message, now):
                self._keep(message)

    def _keep(self, message: Message) -> None:
        now = round(time.time(), 3)
        if self.sender.returned():
            say(f"{self.sender.name} is heard again")
            self._records.append(Entry(now, record.RETURNED, ""))
        if message.sample:
            self.sender.memory.add(Entry(now, messages.SAMPLE, schema.dump(message.sample).decode()))
        for line in message.lines:
            self.sender.memory.add(Entry(now, messages.KERNEL, line))

    def console(self) -> None:
        """Read lines of netconsole. Only their source address is known, which another host can claim."""
        for data, address in _received(self.netconsole):
            if address[0] not in self._given["watched"]["addresses"]:
                continue
            for line in filter(None, data.decode("utf-8", "replace").splitlines()[:_BURST]):
                entry = Entry(round(time.time(), 3), record.NETCONSOLE, foreign.line(line))
                self.sender.netconsole.add(entry)
                if self.sender.silent:
                    self._records.append(entry)

    def look(self, now: float) -> None:
        """Write a record if the watched node is silent."""
        heard = self.sender.heard
        if heard is None or not self.sender.fell_silent(now):
            return
        address = self._given["watched"]["address"]
        outside = watch.outside(self.sender.addresses, self._own())
        self._records.write(
            self.sender.name,
            round(time.time() - (now - heard), 3),
            self.sender.entries(),
            lambda: record.verdict(io_node.probe(address), [io_node.probe(each) for each in outside]),
        )


def _socket(place: tuple[str, int] | None = None) -> socket.socket:
    connection = socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
    connection.setblocking(False)
    if place:
        connection.setsockopt(socket.IPPROTO_IP, _IP_FREEBIND, 1)
        connection.bind(place)
    return connection


def _received(connection: socket.socket) -> list[tuple[bytes, Any]]:
    """Return the waiting datagrams. A longer one than the limit is cut, so that its HMAC is wrong."""
    found = []
    # The error of an earlier datagram, such as a peer without a recorder.
    with contextlib.suppress(OSError):
        for _datagram in range(_BURST):
            found.append(connection.recvfrom(messages.MOST))
    return found


class Recorder:
    """The recorder of a node. ``folder`` of its records; ``live``: the file with its newest sample.

    ``keys``: of its own messages and of those that it gets; see service/keys.py.
    """

    def __init__(self, given: Mapping[str, Any], keys: Sequence[str], folder: str, live: str) -> None:
        self._given, self._live = given, live
        self.records = Records(folder, given["node"])
        self._smi, self._kmsg = io_node.Smi(), Kmsg()
        self._metrics = io_node.Metrics(given) if given["url"] else None
        self.link = Link(given, keys, self.records) if given["peer"] else None
        self.ring = None if given["peer"] else Ring(folder, given["node"], boot_id(), self.records)
        self._lines = _KMSG_RECORDS
        self._poll = select.poll()
        if self.link:
            for each in (self.link.outgoing, self.link.incoming, self.link.netconsole):
                self._poll.register(each, select.POLLIN)

    def tick(self, now: float) -> None:
        """Take a sample."""
        sample = io_node.sample(self._given, self._smi.read(now), self._metrics.read(now) if self._metrics else None)
        if self.ring:
            self.ring.write(ring.SAMPLE, sample)
        if self.link:
            self.link.send(messages.SAMPLE, sample)
        # Last: it shows that the others work.
        with contextlib.suppress(OSError):
            io_file.write_file(self._live, schema.dump(sample), io_file.READABLE)
        self._lines = _KMSG_RECORDS
        if self._kmsg.file is not None:
            self._poll.register(self._kmsg.file, select.POLLIN)

    def kernel(self, now: float) -> None:
        """Pass new messages of the kernel on. More than a limit wait for the next sample."""
        found, more = self._kmsg.lines(self._lines)
        self._lines -= len(found)
        if self._kmsg.file is not None and (more or self._lines <= 0):
            self._poll.unregister(self._kmsg.file)
        if self.ring:
            self.ring.lines(found, now)
        if self.link:
            for batch in messages.batches(found):
                self.link.send(messages.KERNEL, lines=batch)

    def turn(self, until: float, last: float) -> float:
        """Wait for messages until a time, handle them, and return the time of this turn. ``last``: of the last one."""
        ready = {descriptor for descriptor, _event in self._poll.poll(max(0.0, until - time.monotonic()) * 1000)}
        now = time.monotonic()
        if self._kmsg.file in ready:
            self.kernel(now)
        if self.link:
            self.link.answered()
            self.link.receive(now)
            self.link.console()
            if now - last > _STOPPED:
                self.link.sender.paused(now)
            self.link.look(now)
        return now

    def run(self) -> None:
        """Run until systemd stops the service."""
        following = last = time.monotonic()
        try:
            while True:
                last = self.turn(following, last)
                if last >= following:
                    self.tick(last)
                    following = max(following + schema.INTERVAL, last + schema.INTERVAL / 2)
        except Stop:
            self.end()

    def end(self) -> None:
        """Send a goodbye, so that the peer does not take the silence for a fault."""
        if self.ring:
            self.ring.write(ring.END, None)
        for _number in range(_GOODBYES if self.link else 0):
            if self.link:
                self.link.send(messages.GOODBYE)
        self._smi.stop()
        self.records.finish()


def _stop(_signal: int, _frame: Any) -> None:
    raise Stop


def main() -> int:
    """Run the recorder. Argument: the settings. systemd gives the folders, and the keys as a credential."""
    given = io_json.json_file(sys.argv[1])
    if given is None:
        say(f"{sys.argv[1]} does not exist. Expected: the settings. Fix: run site.yml --tags flight_recorder")
        return 1
    keys: list[str] = []
    if given["peer"]:
        keys = (io_file.read_bounded(f"{os.environ['CREDENTIALS_DIRECTORY']}/keys", 1024) or "").split()[:2]
        if len(keys) != 2:
            say("the keys of the messages are missing. Fix: run site.yml --tags flight_recorder")
            return 1
    signal.signal(signal.SIGTERM, _stop)
    live = f"{os.environ['RUNTIME_DIRECTORY']}/sample.json"
    with contextlib.suppress(Stop):
        Recorder(given, keys, os.environ["STATE_DIRECTORY"], live).run()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

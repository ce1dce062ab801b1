# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The sample of a node, and its JSON. /run/gb10-flight-recorder/sample.json has the newest one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.node.gpu import Gpu
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load

#: Seconds between two samples.
INTERVAL = 2.0
#: Maximum bytes of a sample: two Sparks have about 1000, a node with four rails 1400.
MOST = 4096
#: Maximum GPUs and rails of a sample, and characters of a name.
_MOST_ENTRIES, _MOST_NAME = 8, 64


@dataclass(frozen=True)
class SampledRail:
    """One interface of the fabric; None for a value that the node does not report.

    ``speed`` in Mb/s; ``rx`` and ``tx`` in bytes since the boot. RDMA passes these by: ``rdma_rx`` and ``rdma_tx`` are
    the bytes of its port. ``state`` is the kernel's operstate, ``rdma`` the state of the port, such as "ACTIVE"; both
    are "" if unknown.
    """

    interface: str
    carrier: bool | None = None
    speed: int | None = None
    mtu: int | None = None
    rx: int | None = None
    tx: int | None = None
    rdma_rx: int | None = None
    rdma_tx: int | None = None
    state: str = ""
    rdma: str = ""


@dataclass(frozen=True)
class Engine:
    """The values of vLLM's /metrics, summed over engines; None for a missing one.

    ``kv_cache``: the used share, 0 to 1. The counts of tokens grow since the start of the server.
    """

    running: float | None = None
    waiting: float | None = None
    generated: float | None = None
    read: float | None = None
    kv_cache: float | None = None
    cache_hits: float | None = None
    cache_queries: float | None = None
    accepted: float | None = None
    drafted: float | None = None


@dataclass(frozen=True)
class Sample:
    """One observation of a node; None for a value that it does not report.

    ``time`` in seconds since 1970, by the clock of the node. Memory in bytes. ``pressure``: the share of the last 10 s
    that a process waited for memory, in percent. ``load``: the mean of a minute. ``gpus`` is empty while nvidia-smi
    does not answer. ``engine`` is None on a node other than the head, and while the API does not answer.
    """

    time: float
    node: str
    memory_available: int | None = None
    memory_total: int | None = None
    swap_used: int | None = None
    pressure: float | None = None
    load: float | None = None
    gpus: tuple[Gpu, ...] = ()
    rails: tuple[SampledRail, ...] = ()
    engine: Engine | None = None


def dump(sample: Sample) -> bytes:
    """Return a sample as JSON."""
    return json.dumps(asdict(sample), separators=(",", ":")).encode()


def parse(data: bytes) -> Sample:
    """Return the sample of untrusted JSON. Raises ValueError."""
    return of_plain(bounded_json.load(data.decode(), MOST))


def of_plain(value: object) -> Sample:
    """Return the sample of untrusted JSON types. Raises ValueError."""
    try:
        return checked(load.load(Sample, value, "sample"))
    except TypeError as error:
        raise ValueError(str(error)) from None


def checked(sample: Sample) -> Sample:
    """Return a sample within the limits. Raises ValueError."""
    if max(len(sample.gpus), len(sample.rails)) > _MOST_ENTRIES:
        raise ValueError(f"a sample has more than {_MOST_ENTRIES} GPUs or rails")
    # A terminal shows them.
    if wrong := [text for text in _texts(asdict(sample)) if len(text) > _MOST_NAME or not text.isprintable()]:
        raise ValueError(f"a sample has the name {wrong[0]!r}")
    return sample


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    for each in value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ():
        yield from _texts(each)

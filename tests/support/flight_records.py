"""A sample with all values, and records of it."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import messages, schema
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Engine, Sample, SampledRail
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.watch import Entry
from ansible_collections.gb10.cluster.plugins.module_utils.node.gpu import Gpu

GIB = 1 << 30
FULL = Sample(
    1764194621.5,
    "spark2",
    memory_available=21 * GIB,
    memory_total=119 * GIB,
    swap_used=0,
    pressure=1.5,
    load=3.2,
    gpus=(Gpu("0", "580.142", 62.0, 38.5, 2405.0, 96.0, 4),),
    rails=(
        SampledRail("enp1s0f1np1", True, 200000, 9000, 10**12, 10**12, 10**14, 10**14, "up", "ACTIVE"),
        SampledRail("enP2p1s0f1np1", True, 200000, 9000, 10**12, 10**12, 10**14, 10**14, "up", "ACTIVE"),
    ),
    engine=Engine(2, 0, 1e6, 2e6, 0.25, 10, 20, 5, 6),
)


def falling(end: float, available: list[float], heat: float = 62.0) -> list[Entry]:
    """Return samples every two seconds until ``end`` with so many GiB of available memory."""
    return [
        Entry(
            end - 2 * (len(available) - 1 - number),
            messages.SAMPLE,
            schema.dump(
                replace(
                    FULL,
                    memory_available=int(each * GIB),
                    gpus=(replace(FULL.gpus[0], temperature=heat, power=38.5 + number),),
                )
            ).decode(),
        )
        for number, each in enumerate(available)
    ]

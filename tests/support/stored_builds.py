"""The builds of vLLM in the store of a live node."""

from __future__ import annotations

import json

from testinfra.host import Host

STORE = "/opt/gb10/build"
#: The patches of the scenario vllm_build.
PATCHES = ["small-extensions.patch", "cpu-slot-mapping.patch"]


def stamps(host: Host) -> dict[str, dict[str, object]]:
    """Return {name: stamp} of a host's builds."""
    names = host.check_output(f"ls {STORE}/wheels").split()
    return {name: json.loads(host.check_output(f"cat {STORE}/wheels/{name}/stamp.json")) for name in names}

"""The units of all roles, from plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.gateway import schema, service
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load
from ansible_collections.gb10.cluster.plugins.module_utils.service import plan as service_plan
from ansible_collections.gb10.cluster.plugins.module_utils.service.schema import Learned, ServiceSettings
from ansible_collections.gb10.cluster.plugins.plugin_utils import argument_specs, program

#: The defaults of all roles, as the step cluster_inputs returns them.
SETTINGS = {name: argument_specs.default(option) for name, option in argument_specs.options().items()}
_FALLBACK = "gb10-fallback"
SERVICES = {
    "gb10-ray": "ray",
    "gb10-vllm": "vllm",
    "gb10-memory-guard": "memory_guard",
    "gb10-watchdog": "watchdog",
    "gb10-flight-recorder": "flight_recorder",
    _FALLBACK: "fallback",
}
_SMALL = {
    "model": "/srv/models/small",
    "served_model_name": "small",
    "context": 8192,
    "port": 8010,
    "store": {},
    "args": ["--max-model-len=8192"],
    "user_args": [],
    "environment": {"HF_HUB_OFFLINE": "1"},
    "needs": 1 << 34,
    "memory": [],
}
_GATEWAY = schema.Planned("", "", {"a": "GB10_KEY_A"})


def planned(plan: Mapping[str, Any], unit: str, learned: Learned | None = None, **settings: Any) -> dict[str, Any]:
    """Return the service of a unit, as the action of systemd_unit plans it."""
    if unit == _FALLBACK:
        plan = {**plan, "fallback": {**_SMALL, "node": plan["node"]["name"]}}
    chosen = load.chosen(ServiceSettings, {**SETTINGS, **settings}, "gb10_inputs.settings")
    return program.service(service_plan.of_node(load.plan(plan), SERVICES[unit], chosen, learned or Learned()))


def units(plan: Mapping[str, Any]) -> dict[str, str]:
    """Return unit -> text: the services of the plan's node, and a gateway."""
    gateway = program.service(service.service(_GATEWAY, "/opt/gb10/gateway/x", 8080, 60, ""))
    native = plan["runtime"]["kind"] == "native"
    found = {unit: planned(plan, unit)["unit"]["text"] for unit in SERVICES if native or unit != _FALLBACK}
    return {**found, "gb10-gateway": gateway["unit"]["text"]}

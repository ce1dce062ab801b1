"""Write what repeats the roles' argument specifications: defaults/main.yml of each role, and a file with all variables
for the package.

An argument specification is the only place of a variable's default and text. Prints the changed files.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
#: Not in the repository: the package has it.
SAMPLE = ROOT / "inventories/variables.yml"
#: The roles of that file, in the order of their text.
ROLES = (
    *(
        "gb10",
        "qsfp_netplan",
        "peer_firewall",
        "host_guard",
        "flight_recorder",
        "vllm_runtime",
        "vllm_build",
        "model_store",
        "nccl_sm121_build",
    ),
    *("vllm_patch", "ray_cluster", "vllm_serve", "vllm_watchdog", "vllm_fallback", "monitoring", "gateway", "golden"),
)
#: Variables that playbooks, other roles or hosts.yml set.
NOT_FOR_INVENTORIES = frozenset(
    {
        *("gb10_nodes", "gb10_cluster_name", "gb10_heads", "gb10_workers", "gb10_facts_dir", "gb10_plan_offline"),
        *(
            "gb10_plan_save_facts",
            "gb10_gpu_required",
            "gb10_break_lock",
            "gb10_only",
            "golden_record",
            "peer_firewall_gateway_port",
        ),
        *("gateway_clusters", "gateway_key_create", "gateway_key_revoke", "gateway_key_models", "gb10_model"),
    }
)
_WIDTH, _SHORT = 120, 80
_HEAD = """\
---
# All variables with their defaults. Copy those that you change to group_vars/gb10_cluster.yml, next to hosts.yml.
# ansible-doc -t role gb10.cluster.<role> shows the same text.
"""
_DEFAULTS = """\
---
# Written by `make variables` from meta/argument_specs.yml, which describes the variables.
"""


class _Flow(yaml.SafeDumper):
    """Writes lists and mappings on one line, and quotes templates as people do."""


class _Block(_Flow):
    """Writes only short lists on one line, and indents the items of others, as yamllint requires."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002  # PyYAML's names
        """Never write a list without indentation."""
        super().increase_indent(flow, indentless=False)


def _text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style='"' if "{{" in value else None)


def _list(dumper: yaml.SafeDumper, value: list[Any]) -> yaml.SequenceNode:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", value, flow_style=len(str(value)) < _SHORT)


_Flow.add_representer(str, _text)
_Block.add_representer(list, _list)


def variables(role: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the variables of a role that have a default, each once."""
    text = (ROOT / "roles" / role / "meta/argument_specs.yml").read_text(encoding="utf-8")
    seen = set()
    for entry in yaml.safe_load(text)["argument_specs"].values():
        for name, option in entry.get("options", {}).items():
            if "default" in option and name not in seen:
                seen.add(name)
                yield name, option


def comment(option: Mapping[str, Any]) -> list[str]:
    """Return a variable's description as comments."""
    given = option["description"]
    return textwrap.wrap(
        " ".join(given) if isinstance(given, list) else given,
        _WIDTH,
        initial_indent="# ",
        subsequent_indent="# ",
        break_on_hyphens=False,
        break_long_words=False,
    )


def setting(name: str, value: Any) -> str:
    """Return a variable with its default as YAML, a list or mapping with one line for each item."""
    return _yaml({name: value}, _Block)


def _yaml(value: Any, dumper: type[yaml.SafeDumper]) -> str:
    flow = dumper is _Flow
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=False, width=10**6, default_flow_style=flow)
    return text.removesuffix("...\n").strip()


def defaults(role: str) -> str:
    """Return the text of a role's defaults/main.yml, "" for a role without variables."""
    lines = [setting(name, option["default"]) for name, option in variables(role)]
    return _DEFAULTS + "\n".join(lines) + "\n" if lines else ""


def sample() -> str:
    """Return the text of the file with all variables."""
    parts = [_HEAD]
    for role in ROLES:
        lines = [f"\n# --- {role}"]
        for name, option in variables(role):
            if name not in NOT_FOR_INVENTORIES:
                lines += [*comment(option), f"# {name}: {_yaml(option['default'], _Flow)}"]
        parts.append("\n".join(lines) + "\n")
    return "".join(parts)


def texts() -> dict[Path, str]:
    """Return path -> text of all files that this program writes."""
    roles = sorted(path.parent.parent.name for path in (ROOT / "roles").glob("*/defaults/main.yml"))
    return {SAMPLE: sample(), **{ROOT / "roles" / role / "defaults/main.yml": defaults(role) for role in roles}}


def main() -> int:
    """Write the files that differ."""
    for path, text in texts().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(path.relative_to(ROOT))
    return 0


if __name__ == "__main__":
    sys.exit(main())

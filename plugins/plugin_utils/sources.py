# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The files on the controller that a node's settings name: lock, recipe, layers, certificate, patches and archives."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from ansible_collections.gb10.cluster.plugins.module_utils.api import access
from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.common.secret_environment import verdict
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import patches as nccl_patches
from ansible_collections.gb10.cluster.plugins.module_utils.recipe import nvidia, parse
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_layers, stacks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks
from ansible_collections.gb10.cluster.plugins.plugin_utils import certificate, nvidia_catalog, recipe_yaml

_ROLES = Path(__file__).parents[2] / "roles"
_LOCKS, _NCCL = _ROLES / "gb10" / "files", _ROLES / "nccl_sm121_build" / "files"
_BUILD = ("enabled", "source", "version", "commit", "checksum", "capabilities", "environment", "dependencies")
#: Bytes of a file of a recipe: more than the characters that its parser takes.
_MOST_RECIPE = 1 << 19
#: Most names of recipes in a message.
_NAMES = 10
#: Returns the text of a file on the controller, "" if there is none.
Read: TypeAlias = Callable[[str], str]


def digests(paths: Sequence[Any], inventory: str) -> list[dict[str, str]]:
    """Return {path, sha256} of files. The digest of an unreadable file is "", which the planner reports."""
    return [_digest(str(Path(inventory) / Path(str(path)).expanduser())) for path in paths]


def _digest(path: str) -> dict[str, str]:
    try:
        return {"path": path, "sha256": io_file.sha256(path)}
    except OSError:
        return {"path": path, "sha256": ""}


def lock(settings: Mapping[str, Any]) -> str:
    """Return the path of the lock: that of gb10_runtime_lock, else of the stack, "" for an unknown stack."""
    stack = stacks.STACKS.get(str(settings["gb10_stack"]))
    own = str(_LOCKS / stack.lock) if stack and stack.lock else ""
    return str(settings["gb10_runtime_lock"] or own)


def _document(settings: Mapping[str, Any], inventory: str, nodes: int, read: Read) -> dict[str, str]:
    """Return {name, path, text, measured, others, problem} of gb10_recipe.

    ``problem``: why NVIDIA's catalog has no such recipe for this number of nodes, or gb10_recipe_folder none with this
    name; ``others``: see nvidia_catalog.
    """
    name, folder = str(settings["gb10_recipe"]), str(settings["gb10_recipe_folder"])
    path = problem = others = inside = ""
    if name.startswith(nvidia_catalog.PREFIX):
        clone, problem = nvidia_catalog.clone(str(settings["gb10_nvidia_recipes"]), inventory)
        if not problem:
            path, problem, others = nvidia_catalog.find(name, clone, nodes)
    elif name:
        path = parse.place(name, folder, inventory)
        path = path and str(Path(path).expanduser())
        # A clone of others may have links to any file of the user.
        inside = "" if name.startswith(("/", "~")) else str(Path(inventory, folder).expanduser())
    beside = Path(path or "/none").with_name(nvidia.PERFORMANCE)
    # A link could lead to another file of the user.
    measured = "" if beside.is_symlink() else str(beside)
    text = _read_untrusted(path, read, inside) if path else ""
    if name and not text.strip() and not name.startswith(("/", "~", nvidia_catalog.PREFIX)):
        problem = _missing(name, path, folder, inventory)
    document = {"name": name, "path": path, "problem": problem, "others": others, "text": text}
    return {**document, "measured": _read_untrusted(measured, read) if measured and "schema_version" in text else ""}


def _read_untrusted(path: str, read: Read, folder: str = "") -> str:
    """Return the text of a file that others wrote, "" for a link out of ``folder`` and for anything but a file.

    One that no recipe has becomes a text that is too long for one.
    """
    try:
        place = Path(path).resolve()
        # Files of the kernel have no size, and may have no end.
        if not place.is_file() or not place.stat().st_size or not place.is_relative_to(Path(folder or "/").resolve()):
            return ""
        return read(path) if place.stat().st_size <= _MOST_RECIPE else "x" * _MOST_RECIPE
    except OSError:
        return ""


def _missing(name: str, path: str, folder: str, inventory: str) -> str:
    """Return why a recipe was not found by its name, and the names that exist."""
    found = f"{path or name} is not a readable file on the controller"
    if not folder:
        return f"{found}, and gb10_recipe_folder is not set"
    place = Path(parse.place("x", folder, inventory)).expanduser().parent
    # Names become lines of the plan.
    names = sorted(each.stem for each in place.glob("*.yaml") if parse.place(each.stem, folder, inventory))
    more = f" and {len(names) - _NAMES} more" if len(names) > _NAMES else ""
    return f"{found}; recipes in {place}: {', '.join(names[:_NAMES]) or 'none'}{more}"


def recipe(settings: Mapping[str, Any], inventory: str, nodes: int, read: Read) -> dict[str, Any]:
    """Return {recipe, layers, model} of gb10_recipe, gb10_image_layers and gb10_model.

    ``read`` returns the text of a file, "" if there is none. The text is untrusted. A recipe with a problem, which the
    planner reports, has no mods and no model.
    """
    document = _document(settings, inventory, nodes, read)
    data, problems = recipe_yaml.document(document) if document["name"] else (None, [])
    found = None if problems or data is None else parse.parse(data)[0]
    given = settings["gb10_image_layers"]
    layers = [io_layers.of_inventory(layer, inventory) for layer in (given if isinstance(given, list) else ())]
    return {
        "recipe": document,
        "layers": layers + [io_layers.of_recipe(str(mod), document["path"]) for mod in (found.mods if found else ())],
        "model": str(settings["gb10_model"] or (found.model if found else "")),
    }


def of_others(settings: Mapping[str, Any], found: Mapping[str, Any], inventory: str) -> dict[str, list[str]]:
    """Return variable -> paths on the controller whose files others wrote. ``found``: the results of this module."""
    patches, archives = found["build"]["patches"], found["build"].get("archives", {})
    given = {
        "gb10_recipe": [found["recipe"]["path"]],
        "gb10_recipe_folder": [str(settings["gb10_recipe_folder"])],
        "gb10_nvidia_recipes": [str(settings["gb10_nvidia_recipes"])],
        "gb10_image_layers": [layer["folder"] for layer in found["layers"]],
        "vllm_build_patches": [each["path"] for each in patches] if isinstance(patches, list) else [],
        "vllm_build_source": list(archives),
        "nccl_sm121_build_patches": [each["path"] for each in found["nccl_patches"]],
        "nccl_sm121_build_source": [str(settings["nccl_sm121_build_source"])],
    }
    return {
        name: [str(Path(inventory) / Path(path).expanduser()) for path in paths if path and "://" not in path]
        for name, paths in given.items()
    }


def model(name: str, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return {model_path, hub_model}: its folder on the nodes, "" without one, and {name, revision} on the Hub, or {}.

    The planner reports errors in the name and in gb10_models.
    """
    try:
        entry = catalog.find(name, settings["gb10_models"])
    except ProblemsError:
        return {"model_path": name if name.startswith("/") else "", "hub_model": {}}
    hub = {"name": entry.hub, "revision": entry.revision or "main"} if entry.hub and not entry.path else {}
    root = str(settings["gb10_install_dir"])
    stored = model_store_plan.folder(root, entry.hub, entry.revision) if settings["model_store_enabled"] and hub else ""
    return {"model_path": entry.path or stored, "hub_model": hub}


def known_release(text: str) -> bool:
    """Whether the table of arguments has the vLLM of a lock. Also true for a lock without vLLM."""
    release = stacks.locked(text).get("vllm", "")
    return not release or checks.known(release)


def build(settings: Mapping[str, Any], head: bool, inventory: str) -> dict[str, Any]:
    """Return the variables of the role vllm_build with the digests of its patches; see vllm_build/choice.py.

    Archives are large, so only the head, which decides, has their digests.
    """
    found = {name: settings[f"vllm_build_{name}"] for name in _BUILD}
    given = [{str(name): str(value) for name, value in each.items()} for each in found["dependencies"]]
    archives = [found["source"], *(each["archive"] for each in given)] if head and found["enabled"] else []
    return {
        **found,
        "patches": digests(settings["vllm_build_patches"], inventory),
        "dependencies": given,
        "archives": dict(zip(archives, (each["sha256"] for each in digests(archives, inventory)), strict=True)),
    }


def patches_of_nccl(given: Any, inventory: str) -> list[dict[str, str]]:
    """Return {name, path, sha256} of the patches of NCCL; see nccl/patches.py. Another value than a list has none."""
    found = []
    for entry in map(str, given if isinstance(given, list | tuple) else ()):
        own = str(_NCCL / f"{entry}.patch") if entry in nccl_patches.KNOWN else ""
        found.append({"name": entry if own else Path(entry).name, **digests([own or entry], inventory)[0]})
    return found


def pem(value: str, read: Read) -> str:
    """Return the text of a certificate or key that is given as text or as a file. Any other value stays unchanged, and
    the plan refuses it."""
    return value if not value or "-----BEGIN" in value else read(value) or value


def gateway_lock() -> str:
    """Return the text of the lock of the gateway's packages."""
    return (_ROLES / "gateway" / "files" / "gateway.lock").read_text(encoding="utf-8").rstrip()


def secrets(settings: Mapping[str, Any], head: bool, address: str, read: Read) -> dict[str, Any]:
    """Return {key_problem, tls, secrets}, verdicts about the API key, the head's certificate and secret variables, and
    {api, client, certificates}: where the API is, how clients reach it, and the texts {certificate, ca} on the head.

    ``settings``: also those that no result has. ``address``: the host's in the inventory.
    """
    texts = {name: pem(str(settings[f"gb10_api_tls_{name}"]), read) for name in ("certificate", "key", "ca")}
    host, port, name = (settings[f"gb10_api_{part}"] for part in ("host", "port", "name"))
    secured = bool(texts["certificate"])
    place = access.place(str(host), int(port), str(name), address, secured)
    return {
        "api": place,
        "client": {
            "endpoint": place["endpoint"],
            "address": address,
            "key_file": paths.API_KEY[0] if settings["gb10_api_key_enabled"] else "",
            "ca_file": paths.CA if secured else "",
        },
        "certificates": {
            "certificate": texts["certificate"] if head else "",
            "ca": (texts["ca"] or texts["certificate"]) if head else "",
        },
        "key_problem": access.key_problem(str(settings["gb10_api_key"])),
        "tls": certificate.verdict(texts, place["client"]) if head else {},
        "secrets": verdict(settings["gb10_secret_env"], settings["gb10_extra_env"]),
    }

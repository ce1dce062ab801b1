# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the facts of one node for a verification. Changes nothing; on the head it sends requests to the API.

A part that cannot be read is None, with its reason in ``unread``: the cluster may have been set up by another tool.
"""

from __future__ import annotations

import glob
import os
import pwd
import re
import stat
import time
import urllib.error
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_command, io_file, io_local, paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import adapter, topology
from ansible_collections.gb10.cluster.plugins.module_utils.fabric import io_facts as fabric_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.firewall import io_nftables
from ansible_collections.gb10.cluster.plugins.module_utils.health import io_choices, io_client, io_status
from ansible_collections.gb10.cluster.plugins.module_utils.launch import choices, io_overrides, io_ray
from ansible_collections.gb10.cluster.plugins.module_utils.memory import io_reclaim
from ansible_collections.gb10.cluster.plugins.module_utils.nccl import io_library
from ansible_collections.gb10.cluster.plugins.module_utils.node import io_facts as node_io_facts
from ansible_collections.gb10.cluster.plugins.module_utils.node import parse as node_parse
from ansible_collections.gb10.cluster.plugins.module_utils.node.capability import ComputeCapability
from ansible_collections.gb10.cluster.plugins.module_utils.os_update import io_state as os_update_io_state
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import io_coverage
from ansible_collections.gb10.cluster.plugins.module_utils.verify import environment, evidence, kernels, parse

#: The errors of the readers of other packages, and of unexpected content.
_ERRORS = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    ImportError,
    ProblemsError,
    io_nftables.FirewallError,
    io_ray.RayError,
)
_MIB, _GIB = 1 << 20, 1 << 30
#: Seconds to search the kernel's log of this boot.
_KERNEL_SECONDS = 10
#: Processes with less resident memory are not listed.
_LARGE = _GIB
#: Bounds of files, in bytes and numbers.
_MOST_RECORD, _MOST_SOURCE, _MOST_FILES = 16 * _MIB, 8 * _MIB, 20_000
_ORIGINAL, _RECORD = ".gb10-original", ".gb10-sha256"
_RAY_PORT, _SECONDS = 8265, 5
#: Seconds over which the speed of the server is measured.
_MEASURED = 1.0
_ENGINES = ("docker", "podman")
_INSPECT = "{{.Name}}\t{{.Config.Image}}\t{{.Image}}"
_NVIDIA = "0x10de"
#: systemd writes it in a container.
_CONTAINER = "/run/systemd/container"


@dataclass(frozen=True)
class Request:
    """The options of the module: see cluster_verify_info. ``key`` is that of the digests."""

    server: io_client.Server
    secret: io_local.Secret
    timeout: int
    install_dir: str
    key: str
    quick: bool
    capability: str


def read(run: Run, request: Request) -> dict[str, Any]:
    """Return all facts, as cluster_verify_info documents them. ``run`` must end a command that does not return."""
    unread: dict[str, str] = {}

    def part(name: str, reader: Callable[[], Any], wanted: bool = True) -> Any:
        try:
            return reader() if wanted else None
        except _ERRORS as error:
            unread[name] = " ".join(str(error).split()) or type(error).__name__
            return None

    full = not request.quick
    runtime = os.path.realpath(f"{request.install_dir}/runtime/current")
    # Needed by symptoms.py, which reads all of it.
    status = part("status", lambda: io_status.node(run)) or {}
    ranks = [rank["pid"] for rank in status.get("ranks", ())]
    maps = {pid: io_file.read(f"/proc/{pid}/maps") for pid in ranks}
    site = _site(runtime, maps)
    network = part("interfaces", lambda: fabric_io_facts.read(run)) or {}
    gpu = part("gpu", lambda: node_io_facts.gpu(run))
    capability = request.capability or _capability(gpu)
    packages = part("packages", lambda: parse.packages(os.listdir(site)), bool(site))
    head = bool(request.server.url)
    return {
        **status,
        **network,
        **node_io_facts.system(),
        "hostname": os.uname().nodename,
        "gpu": gpu,
        "gpu_state": part("gpu_state", lambda: node_io_facts.gpu_state(run)),
        "gpu_device": _has_device(_NVIDIA),
        "temperature_c": part("temperature_c", _temperature),
        "boot": part("boot", lambda: _boot(run)),
        "updates": part("updates", lambda: asdict(os_update_io_state.read(run)), full),
        "product": _dmi("product_name"),
        "bios": _dmi("bios_version"),
        "firmware": _firmware(),
        "planned": part("planned", _planned),
        "processes": part("processes", lambda: list(_processes(ranks))),
        "rank_users": sorted(set(map(_user, ranks)) - {""}),
        "environments": part("environments", lambda: _environments(status.get("services", ()), ranks, request.key)),
        "nccl": part("nccl", lambda: [process.facts() for process in io_library.processes(ranks, [])], full),
        "nccl_installed": part("nccl_installed", lambda: _nccl(runtime), full),
        "cuda_libraries": sorted(set().union(*map(parse.cuda_libraries, maps.values()))),
        "runtime": site,
        "packages": packages,
        "kernels": part("kernels", lambda: _kernels(site, capability, packages or {}), full),
        # A container's files belong to its image.
        "files": part("files", lambda: _files(site), full and site.startswith(runtime)),
        "evidence": part("evidence", lambda: _evidence(run, status.get("services", ())), full),
        "images": part("images", lambda: _images(run, status, ranks)),
        "disks": part("disks", lambda: _disks(["/", "/boot", "/var", request.install_dir])),
        "listeners": part("listeners", io_local.listeners),
        "adapter": part("adapter", lambda: _adapter(run)),
        "firewalls": part("firewalls", lambda: _firewalls(run)),
        "remove_ipc": part("remove_ipc", lambda: _remove_ipc(run)),
        "login_users": node_io_facts.login_users(),
        "lingering": _names("/var/lib/systemd/linger"),
        "ray": part("ray", _ray, head and any(entry["port"] == _RAY_PORT for entry in io_local.listeners())),
        "api": part("api", lambda: _api(request), head),
        "unread": unread,
        "clock": time.time(),
    }


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _dmi(name: str) -> str:
    return io_file.read(f"/sys/class/dmi/id/{name}").strip()


def _has_device(vendor: str) -> bool:
    """Return whether a PCI device of a vendor exists. A container sees those of its host, and may not use them."""
    return not os.path.exists(_CONTAINER) and any(
        io_file.read(path).strip() == vendor for path in glob.glob("/sys/bus/pci/devices/*/vendor")
    )


def _firmware() -> dict[str, str]:
    return {hca: io_file.read(f"/sys/class/infiniband/{hca}/fw_ver").strip() for hca in _names("/sys/class/infiniband")}


def _temperature() -> float | None:
    texts = [io_file.read(path).strip() for path in glob.glob("/sys/class/thermal/thermal_zone*/temp")]
    return max((int(text) / 1000 for text in texts if re.fullmatch(r"\d+", text)), default=None)


def _boot(run: Run) -> dict[str, Any]:
    """Return {kernel, nvidia, missing, options}: of the next boot, whether the kernel has NVIDIA's modules, None if
    unknown, and the modules that run now and that it lacks; and the known options of the running kernel."""
    state = os_update_io_state.read(run, simulate=False)
    kernel, options = state.next_kernel, list(state.options)
    if kernel is None:
        return {"kernel": "", "nvidia": None, "missing": [], "options": options}
    nvidia = None if kernel.missing is None else "nvidia" not in kernel.missing
    return {"kernel": kernel.release, "nvidia": nvidia, "missing": list(kernel.missing or ()), "options": options}


def _planned() -> dict[str, dict[str, Any]]:
    text = io_file.read_bounded(topology.NETPLAN_FILE, _MIB)
    if text is None:
        return {}
    import yaml  # noqa: PLC0415  # Only with netplan, which depends on it.

    try:
        return parse.planned_rails(yaml.load(text, Loader=yaml.BaseLoader))
    except yaml.YAMLError:
        # The parser's message may quote the file.
        raise ValueError(f"{topology.NETPLAN_FILE} is not YAML") from None


def _processes(ranks: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield {pid, name, bytes, unit, user} of the ranks, and of all others with much memory or a rank's name."""
    for process in io_reclaim.processes():
        if process["pid"] in ranks or process["bytes"] >= _LARGE or process["name"].startswith(node_parse.RANKS):
            unit = systemd.unit_of_cgroup(io_file.read(f"/proc/{process['pid']}/cgroup"))
            yield {**process, "unit": unit, "user": _user(process["pid"])}


def _user(pid: int) -> str:
    try:
        return pwd.getpwuid(os.stat(f"/proc/{pid}").st_uid).pw_name
    except (OSError, KeyError):
        return ""


def _environments(services: Sequence[dict[str, Any]], ranks: Sequence[int], key: str) -> dict[str, dict[str, str]]:
    """Return {source: variables}: the ranks' file, each running service, and without these the ranks' parent."""
    text = io_file.read_bounded(paths.RANK_ENVIRONMENT, _MIB)
    found = {} if text is None else {"cluster.env": systemd.variables_of_file(text)}
    for service in services:
        # The main process of a container is its engine's client, which has other variables.
        if service["pid"] and not service["container"]:
            found[service["unit"]] = environment.of_process(io_file.read(f"/proc/{service['pid']}/environ"))
    if not found and ranks:
        found["ranks"] = _of_parents(ranks[0])
    return {source: environment.sendable(variables, key) for source, variables in found.items() if variables}


def _of_parents(pid: int) -> dict[str, str]:
    """Return the variables of a rank, or of the next parent: a process that changes its title overwrites its own."""
    while pid > 1:
        variables = environment.of_process(io_file.read(f"/proc/{pid}/environ"))
        if "PATH" in variables:
            return variables
        parent = re.search(r"^PPid:\s+(\d+)$", io_file.read(f"/proc/{pid}/status"), re.MULTILINE)
        pid = int(parent[1]) if parent else 0
    return {}


def _nccl(runtime: str) -> dict[str, Any] | None:
    """Return {path, sha256, version, gcc, recorded}: the library that the next start of a rank loads, None if unknown.

    ``recorded`` is its SHA-256 when the role nccl_sm121_build installed it, "" for another library.
    """
    text = systemd.variables_of_file(io_file.read_bounded(paths.RANK_ENVIRONMENT, _MIB) or "")
    preloaded = [path for path in re.split(r"[:\s]+", text.get("LD_PRELOAD", "")) if "libnccl" in path]
    places = preloaded or glob.glob(
        f"{glob.escape(runtime)}/lib/python3*/site-packages/nvidia/nccl/lib/{io_library.SONAME}"
    )
    path = next((place for place in places if os.path.isfile(place)), "")
    if not path:
        return None
    files = io_overrides.recorded_additions().get("nccl_sm121_build", {}).get("files", {})
    real = os.path.realpath(path)
    library = io_library.library(real)
    recorded = next((digest for place, digest in files.items() if os.path.realpath(place) == real), "")
    return {
        "path": real,
        "sha256": io_file.sha256(real),
        "version": library.version,
        "gcc": list(library.gcc),
        "recorded": recorded,
    }


def _site(runtime: str, maps: dict[int, str]) -> str:
    """Return the package folder of the runtime, else that of a rank as this host reaches it; "" if unknown."""
    own = sorted(glob.glob(f"{glob.escape(runtime)}/lib/python3*/site-packages"))
    # A rank may be in a container.
    of_ranks = (f"/proc/{pid}/root{folder}" for pid, text in maps.items() if (folder := parse.site_packages(text)))
    return own[0] if own else next(of_ranks, "")


def _files(site: str) -> dict[str, Any] | None:
    """Return {changed, patched, missing} of vLLM's Python files, None without a list of them.

    ``patched`` are files that the role vllm_patch wrote, with their SHA-256. ``changed`` and ``missing`` are files that
    differ from the wheel and from that role's record.
    """
    recorded: dict[str, str] = {}
    for path in glob.glob(f"{glob.escape(site)}/vllm*.dist-info/RECORD"):
        recorded |= parse.recorded_files(io_file.read_bounded(path, _MOST_RECORD) or "")
    digests = {path: _sha256(f"{site}/{path}") for path in list(recorded)[:_MOST_FILES]}
    others = {path: digest for path, digest in digests.items() if digest not in (None, recorded[path])}
    patched = {path: digest for path, digest in others.items() if digest in _written(f"{site}/{path}")}
    changed = [path for path in others if path not in patched]
    missing = [path for path, digest in digests.items() if digest is None]
    return {"changed": changed, "patched": patched, "missing": missing} if recorded else None


def _capability(gpu: dict[str, Any] | None) -> str:
    """Return the compute capability of the first GPU, "" without one."""
    return next((each["capability"] or "" for each in (gpu or {}).get("gpus", ())), "")


def _kernels(site: str, capability: str, packages: dict[str, str]) -> dict[str, Any] | None:
    """Return {capability, extensions, chosen}; see runtime/coverage.py. None without a GPU or a runtime.

    ``chosen`` are the backends in the command line of vLLM's next start, {} if this collection did not plan it.
    """
    if not capability or not site:
        return None
    unit = io_file.read_bounded(f"{paths.UNIT_FOLDER}/{paths.VLLM_UNIT}", _MIB) or ""
    return {
        "capability": capability,
        "extensions": io_coverage.read(site, ComputeCapability.parse(capability)),
        "chosen": kernels.chosen(unit, packages.get("vllm", "")),
    }


def _sha256(path: str) -> str | None:
    """Return the digest of a regular file, "" for a large or another file, None if it cannot be read."""
    try:
        found = os.stat(path)
        return io_file.sha256(path) if stat.S_ISREG(found.st_mode) and found.st_size <= _MOST_SOURCE else ""
    except OSError:
        return None


def _written(path: str) -> list[str]:
    """Return the digests of the content that the role vllm_patch wrote to a file."""
    record = io_file.read_bounded(path + _RECORD, _MIB) or ""
    return [line.partition("  ")[0] for line in record.splitlines() if not line.endswith(_ORIGINAL)]


def _evidence(run: Run, services: Sequence[dict[str, Any]]) -> dict[str, Any] | None:
    """Return {processes, complete, planned, recorded} of vLLM's running start. None if it does not run.

    ``processes`` and ``complete`` are those of io_choices.read(), ``planned`` is evidence.planned(). ``recorded`` are
    the processes of the first start with these launch inputs, [] if unknown.
    """
    service = next((each for each in services if each["unit"] == paths.VLLM_UNIT and each["pid"]), None)
    if service is None:
        return None
    found = io_choices.read(run, service)
    argv = io_file.read(f"/proc/{service['pid']}/cmdline").split("\0")
    variables = environment.of_process(io_file.read(f"/proc/{service['pid']}/environ"))
    release = next(iter(choices.values(found["processes"], "release")), "")
    return {
        **found,
        "planned": evidence.planned(argv, variables, release),
        "recorded": io_record.choices(io_record.FOLDER, service["inputs"]),
    }


def _images(run: Run, status: dict[str, Any], ranks: Sequence[int]) -> list[dict[str, str]]:
    """Return {name, image, id, engine} of the running containers, [] if no rank is in one."""
    inside = any(re.search(r"docker|libpod|containerd", io_file.read(f"/proc/{pid}/cgroup")) for pid in ranks)
    if not inside and not any(service["container"] for service in status.get("services", ())):
        return []
    found = []
    for engine in _ENGINES:
        listed, stdout, _stderr = run([engine, "ps", "--quiet"])
        names = stdout.split() if listed == 0 else []
        listing = run([engine, "inspect", f"--format={_INSPECT}", *names])[1] if names else ""
        found += [{**container, "engine": engine} for container in parse.containers(listing)]
    return sorted(found, key=lambda container: container["name"])


def _disks(folders: Sequence[str]) -> list[dict[str, Any]]:
    """Return {path, free, total, files_free} of each file system: bytes, and the free part of its files (0 to 1)."""
    disks: dict[int, dict[str, Any]] = {}
    for folder in folders:
        if os.path.isdir(folder):
            space = os.statvfs(folder)
            files = space.f_favail / space.f_files if space.f_files else 1.0
            found = {
                "path": folder,
                "free": space.f_bavail * space.f_frsize,
                "total": space.f_blocks * space.f_frsize,
                "files_free": files,
            }
            disks.setdefault(os.stat(folder).st_dev, found)
    return list(disks.values())


def _adapter(run: Run) -> list[str]:
    """Return the kernel's faults of the network adapter since the boot; see fabric/adapter.py."""
    wanted = "|".join(adapter.PATTERNS.values())
    argv = ["journalctl", "--dmesg", "--boot", "--no-pager", "--output=cat", f"--grep={wanted}"]
    return adapter.faults(run(io_command.within(argv, "tail", _MIB, _KERNEL_SECONDS))[1])


def _firewalls(run: Run) -> list[str]:
    """Return the names of the active firewalls, with the collection's own table."""
    own = ["peer_firewall"] if io_nftables.loaded_ruleset(run) else []
    return own + sorted(set(io_nftables.active_firewalls(run)[1].values()) - {""})


def _remove_ipc(run: Run) -> bool | None:
    """Return whether logind removes a user's shared memory at logout, None without logind's configuration."""
    status, stdout, _stderr = run(["systemd-analyze", "cat-config", "systemd/logind.conf"])
    return parse.removes_ipc(stdout) if status == 0 else None


def _ray() -> dict[str, Any]:
    """Return {nodes, open}: Ray's nodes as {address, alive}, and whether Ray accepts requests without its token.

    ``nodes`` is None if another tool started Ray, so that this host has no token.
    """
    try:
        io_ray.require_token(_RAY_PORT)
        unprotected = False
    except io_ray.OpenRayError:
        unprotected = True
    if not os.path.isfile(paths.RAY_TOKEN):
        return {"nodes": None, "open": unprotected}
    rows = io_ray.listing("nodes", _RAY_PORT, paths.RAY_TOKEN)
    return {
        "nodes": [{"address": str(row["node_ip"]), "alive": row["state"] == "ALIVE"} for row in rows],
        "open": unprotected,
    }


def _api(request: Request) -> dict[str, Any]:
    """Return io_status.api with ``open``, whether the models are listed without a key, and ``expires``."""
    facts = io_status.api(request.server, request.secret, _MEASURED, request.timeout)
    return {**facts, "open": _open(request.server) if facts["healthy"] else None, "expires": _expires(request.server)}


def _open(server: io_client.Server) -> bool | None:
    try:
        with server.open("/v1/models", _SECONDS) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        with error:
            return False if error.code in (401, 403) else None
    except OSError:
        return None


def _expires(server: io_client.Server) -> float | None:
    try:
        return server.expires(_SECONDS)
    except (OSError, LookupError):
        return None

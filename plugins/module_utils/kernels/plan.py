# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Plan the compilation of FlashInfer's kernels: its identity, its unit, its progress, and the accepted results.

Only vLLM knows which kernels a model needs, so vLLM is started with random weights and few layers. FlashInfer uses a
module in its folder ``data/aot`` without ninja and without a compiler. Source: flashinfer 0.7.2, jit/core.py try_load()
and jit/env.py get_aot_artifacts().
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.common import bounded_json
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.launch import confinement, overrides
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Environment, Plan

#: The unit, and the folder of its temporary user, which keeps the objects of an interrupted compilation.
UNIT, CACHE = "gb10-kernels.service", "gb10-kernels"
#: A module of FlashInfer: the name of a folder and of the library in it.
MODULE = re.compile(r"[A-Za-z0-9_]{1,250}", re.ASCII)
#: The folder of the stored modules below FlashInfer's package, and the folder of their manifests in it.
STORE, MANIFESTS = "data/aot", ".gb10"
#: The file in that folder with the release of FlashInfer that compiled the modules.
RELEASE = "release"
#: The modules below the temporary user's folder: RELEASE/ARCHITECTURE/cached_ops/NAME/NAME.so.
_BUILT = re.compile(r"\.cache/flashinfer/[\w.+-]+/[\w.]+/cached_ops/(\w{1,250})/\1\.so", re.ASCII)
_OBJECT = re.compile(r".*/cached_ops/\w+/[^/]+\.o", re.ASCII)
#: Limits for the results of a compilation, which are untrusted. The largest module seen has 170 MB.
MOST_MODULES, MOST_BYTES, _MOST_MANIFEST = 200, 1 << 30, 1 << 18
#: Arguments that change no kernel: addresses, names, memory and the number of ranks.
_WITHOUT_EFFECT = (
    "--host",
    "--port",
    "--served-model-name",
    "--middleware",
    "--ssl-certfile",
    "--ssl-keyfile",
    "--headless",
    "--nnodes",
    "--node-rank",
    "--master-addr",
    "--master-port",
    "--kv-cache-memory-bytes",
    "--load-format",
    "--gpu-memory-utilization",
    "--max-model-len",
    "--data-parallel-address",
    "--data-parallel-rpc-port",
    "--data-parallel-start-rank",
    "--tool-call-parser",
    "--enable-auto-tool-choice",
    "--reasoning-parser",
)
#: Variables of the fabric and of the service user's folder. The compilation has no network and another user.
_FABRIC = re.compile(
    r"(INSTANTTENSOR|NCCL|GLOO|TP|UCX|RAY|OMPI|MN)_|VLLM_HOST_IP$|LD_PRELOAD$|PATH$|MAX_JOBS$|HF_|TRITON_CACHE_DIR$"
)


def of_node(plan: Plan) -> dict[str, Any]:
    """Return {python, name, argv, environment} of the kernels to compile on the plan's node, {} if there are none.

    Equal nodes have the same name. Without a folder with its configuration, a model cannot be started without a
    network.
    """
    node = plan.node
    stored = plan.model.startswith("/")
    if not plan.serve.compiled or not node.capability or not stored or not isinstance(plan.runtime, Environment):
        return {}
    argv = launch_argv.vllm_argv(plan.at(plan.nodes[0]))[2:]
    variables = overrides.rank_environment(node)
    name = identity(plan.runtime.path, node.capability, node.toolkit, argv, variables)
    return {"python": f"{plan.runtime.path}/bin/python", "name": name, "argv": argv, "environment": variables}


def identity(runtime: str, capability: str, toolkit: str, argv: Sequence[str], variables: Mapping[str, str]) -> str:
    """Return the name of the kernels of a runtime, a GPU, a release of nvcc and a model.

    ``argv``: of ``vllm serve``; ``variables``: of a rank.
    """
    words = [word for word in argv if word.partition("=")[0] not in _WITHOUT_EFFECT]
    document = [runtime, capability, toolkit, words, of_model(variables)]
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()[:16]


def of_model(variables: Mapping[str, str]) -> dict[str, str]:
    """Return a rank's variables without those of the fabric and of the compilation itself."""
    return {name: value for name, value in sorted(variables.items()) if not _FABRIC.match(name)}


def unit_argv(
    python: str, program: str, name: str, argv: Sequence[str], variables: Mapping[str, str], jobs: int, seconds: int
) -> list[str]:
    """Return the command that starts the unit: a temporary user without network, rights and capabilities."""
    home = f"/var/cache/{CACHE}"
    # The unit's own folder replaces the properties about folders of the service user.
    confined = [line for line in confinement.properties("", []) if not line.startswith("ReadWritePaths")]
    properties = [
        "DynamicUser=yes",
        f"CacheDirectory={CACHE}",
        f"WorkingDirectory={home}",
        "PrivateNetwork=yes",
        # systemd keeps the result until it was read.
        "RemainAfterExit=yes",
        f"RuntimeMaxSec={seconds}",
        # The host outlives the compilation.
        "OOMScoreAdjust=900",
        "LimitMEMLOCK=infinity",
        "LimitNOFILE=1048576",
        *confined,
    ]
    environment = {
        **of_model(variables),
        **{key: variables[key] for key in ("PATH", "CUDA_HOME") if key in variables},
        "MAX_JOBS": str(jobs),
        "HOME": home,
        "FLASHINFER_WORKSPACE_BASE": home,
        "VLLM_HOST_IP": "127.0.0.1",
        "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
        "PYTHONUNBUFFERED": "1",
    }
    return [
        "systemd-run",
        "--quiet",
        f"--unit={UNIT}",
        f"--description=Compile FlashInfer's kernels {name}",
        *(f"--property={line}" for line in properties),
        *(f"--setenv={key}={value}" for key, value in environment.items()),
        # systemd would replace variables.
        *(word.replace("$", "$$") for word in (python, "-c", program, *argv)),
    ]


@dataclass(frozen=True)
class Progress:
    """``state``: none, running, finished or failed; the numbers of finished modules and objects."""

    state: str
    modules: int
    objects: int


def progress(state: str, files: Sequence[str]) -> Progress:
    """Return the progress. ``files``: the relative paths of the files in the temporary user's folder."""
    return Progress(state, len(built(files)), sum(_OBJECT.fullmatch(path) is not None for path in files))


def built(files: Sequence[str]) -> dict[str, str]:
    """Return the finished modules: name -> relative path."""
    found = ((match[1], path) for path in files if (match := _BUILT.fullmatch(path)))
    return dict(sorted(found))


def manifest(name: str, modules: Mapping[str, str], jobs: int) -> str:
    """Return the text of a manifest. ``modules``: SHA-256 by name."""
    return json.dumps({"name": name, "modules": dict(sorted(modules.items())), "jobs": jobs}, indent=1) + "\n"


def parse_manifest(text: str, name: str) -> dict[str, str] | None:
    """Return the SHA-256 of each module in a manifest, None if it is not the one of ``name``."""
    try:
        found: Any = bounded_json.load(text, _MOST_MANIFEST)
    except ValueError:
        return None
    modules = found.get("modules") if isinstance(found, Mapping) and found.get("name") == name else None
    if not isinstance(modules, Mapping) or len(modules) > MOST_MODULES:
        return None
    valid = all(MODULE.fullmatch(key) and re.fullmatch(r"[0-9a-f]{64}", str(value)) for key, value in modules.items())
    return {key: str(value) for key, value in modules.items()} if valid else None

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""What the runtime consists of besides the lock: a build of vLLM, the layers of an image, and wheels of single nodes."""

from __future__ import annotations

from dataclasses import replace

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import ImageOptions, Inputs, Wheel
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import layers, locks, stacks
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import choice, requirements, schema
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Choice


def choose(inputs: Inputs, locked: stacks.Stack) -> Choice:
    """Return whether the cluster runs a build of vLLM, off if the request has a problem.

    ``locked`` has the lock's releases, so that a query of the image does not change the decision.
    """
    request, torch = inputs.head.build, requirements.version(inputs.lock, "torch")
    if choice.check(request, locked.vllm, bool(inputs.lock)):
        request = replace(request, wanted=schema.FALSE)
    nodes = []
    for node in inputs.nodes:
        known = (node.facts.builds, node.facts.published, node.facts.cores, node.facts.memory) if node.facts else ((), None, 0, 0)
        nodes.append(schema.Node(node.name, node.capability or "", *known))
    return choice.choose(request, locked.vllm, torch, locked.device, nodes, locked.runtime == stacks.CONTAINER)


def check(inputs: Inputs, locked: stacks.Stack, build: Choice) -> list[Problem]:
    """Return the problems of the build's variables, and for a container those of the lock and the image."""
    problems = choice.check(inputs.head.build, locked.vllm, bool(inputs.lock))
    if build.state == schema.MISSING:
        problems += choice.check_files(inputs.head.build)
    if locked.runtime != stacks.CONTAINER or not build.built:
        return problems
    image = image_of(inputs, locked)
    release, torch = image.vllm.partition("+")[0] if image else "", requirements.version(inputs.lock, "torch")
    problems += choice.check_image(inputs.head.build, locked.vllm, torch, locked.image, release)
    # The environment of the build gets the lock's torch.
    return problems + locks.check(inputs.lock, inputs.head.settings.runtime_lock)


def on_image(inputs: Inputs, locked: stacks.Stack, build: Choice) -> list[layers.Build]:
    """Return the builds on the stack's image: of vLLM's wheel, then of the user's layers and the recipe's mods.

    A wheel that is missing has a build too, so that no plan names the image without it; see vllm_runtime's prepare.yml.
    """
    if locked.runtime != stacks.CONTAINER or not locked.image:
        return []
    path = f"{inputs.head.settings.install_dir}/build/wheels"
    items = build.wheels[:1] if build.built else ()
    own = [layers.Layer(f"vllm-{item.name}", "", item.sha256 or item.name, (), False, f"{path}/{item.name}/{item.wheel}") for item in items]
    return layers.builds(locked.image, [*own, *inputs.layers], inputs.head.image_python)


def image_of(inputs: Inputs, stack: stacks.Stack) -> ImageOptions | None:
    """Return the options of the stack's image, None without an image or if the head queried another one last."""
    found = inputs.head.facts.image if inputs.head.facts else None
    return found if found and stack.runtime == stacks.CONTAINER and found.image == stack.image else None


def wheels(inputs: Inputs, locked: stacks.Stack, build: Choice) -> list[tuple[Wheel, ...]]:
    """Return the wheels that replace the lock's on each node: of the build, once every node has it, and the node's own."""
    built: dict[str, Wheel] = {}
    if build.state == schema.READY and locked.runtime != stacks.CONTAINER:
        store = f"{inputs.head.settings.install_dir}/build/wheels"
        built = {name: Wheel(f"{store}/{item.name}/{item.wheel}", item.sha256, built=True) for item in build.wheels for name in item.nodes}
    return [
        (*((built[node.name],) if node.name in built else ()), *(Wheel(**wheel) for wheel in node.settings.runtime_wheels))
        for node in inputs.nodes
    ]

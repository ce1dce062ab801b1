# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The runtime of the ranks: the versions of a lock or an image, a build of vLLM, layers of an image, wheels of single
nodes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import ImageOptions, Inputs
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem
from ansible_collections.gb10.cluster.plugins.module_utils.plan.schema import Container, Environment, Wheel
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import layers, locks, pins, stacks, wheels
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.stacks import Stack
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build import choice, schema
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_build.schema import Choice


@dataclass(frozen=True)
class Runtime:
    """The runtime. ``stack`` has the versions to run: the lock's, or those of an image that the head queried.

    ``options`` and ``variables`` are those of that image or of the installed vLLM, None if it was not queried.
    ``unread``: the image has an unknown release. ``wheels`` replace the lock's; they and ``wheel_problems`` are in the
    order of the nodes.
    """

    stack: Stack
    planned: Container | Environment
    build: Choice
    options: Sequence[Mapping[str, Any]] | None
    variables: Sequence[str] | None
    unread: bool
    problems: Sequence[Problem] = ()
    wheels: tuple[tuple[Wheel, ...], ...] = ()
    wheel_problems: tuple[list[Problem], ...] = ()


def runtime_of(inputs: Inputs) -> Runtime:
    """Return the runtime, and every problem of lock, image, layers, build and wheels.

    The build depends on the lock's releases, so that a query of the image does not change the decision.
    """
    settings, request, lock = inputs.head.settings, inputs.head.build, inputs.lock
    queried = inputs.head.facts.image if inputs.head.facts else None
    given, problems = stacks.resolve(
        settings.stack, lock, settings.runtime_lock, settings.runtime, settings.container_image
    )
    locked = replace(given, image=pins.pinned(given.image, _pins(inputs)))
    container, torch = locked.runtime == stacks.CONTAINER, stacks.locked(lock).get("torch", "")
    lock_problems = locks.check_lock(lock, settings.runtime_lock)
    build_problems = choice.check_request(request, locked.vllm, bool(lock))
    wanted = {**request, "enabled": False} if build_problems else request
    build = _build(inputs, wanted, locked, torch)
    if build.state == schema.MISSING:
        build_problems += choice.check_files(request)
    if container and build.key:
        release = queried.vllm.partition("+")[0] if queried and queried.image == locked.image else ""
        # The environment of the build gets the lock's torch.
        build_problems += [*choice.check_image(locked.vllm, torch, locked.image, release), *lock_problems]
    wheel_problems = tuple(
        wheels.check_wheels(
            node.settings.runtime_wheels, lock, f"nodes[{index}].gb10_runtime_wheels", bool(request["enabled"])
        )
        for index, node in enumerate(inputs.nodes)
    )
    used = () if any(wheel_problems) else _wheels(inputs, build, container)
    if not container:
        problems += _check_layers(inputs, locked)
        runtime = _environment(inputs, locked, build)
    else:
        runtime = _container(inputs, locked, given.image, build, queried)
    if settings.distributed_executor_backend == "ray":
        problems += stacks.check_ray(runtime.stack.ray, "gb10_container_image" if container else "gb10_runtime_lock")
    # A container's lock lists the contents of the image; only a build installs it.
    problems += [*(lock_problems if locked.runtime == stacks.NATIVE else []), *build_problems]
    return replace(runtime, problems=problems, wheels=used, wheel_problems=wheel_problems)


def _build(inputs: Inputs, request: choice.Given, locked: Stack, torch: str) -> Choice:
    """Return the build. An image has it from the head, an environment from its own node."""
    nodes = inputs.nodes[:1] if locked.runtime == stacks.CONTAINER else inputs.nodes
    return choice.choose(
        request,
        (locked.vllm, torch),
        [node.capability for node in inputs.nodes if node.capability] if locked.device == schema.CUDA else None,
        [node.facts.gpu.cuda for node in inputs.nodes if node.facts],
        {node.name: node.facts.builds if node.facts else () for node in nodes},
    )


def _store(inputs: Inputs, build: Choice) -> str:
    return f"{inputs.head.settings.install_dir}/build/wheels/{build.name}/{build.wheel}"


def _container(inputs: Inputs, locked: Stack, given: str, build: Choice, queried: ImageOptions | None) -> Runtime:
    """Return the container of the ranks, with vLLM's wheel below the user's layers and the recipe's mods.

    ``given`` is the image as the inventory or the stack names it.

    A wheel that is missing has a layer too, so that no plan names the image without it; see vllm_runtime's prepare.yml.
    Launch overrides belong to the image.
    """
    settings, base = inputs.head.settings, locked.image
    own = list[layers.Layer]()
    if build.key:
        digest = build.sha256 or build.name
        own = [layers.Layer(f"vllm-{build.name}", "", digest, (), False, _store(inputs, build))]
    builds = layers.builds(base, [*own, *inputs.layers], inputs.head.image_python) if base else []
    # The lock does not install the image's NCCL.
    stack = replace(locked, image=builds[-1].image if builds else base, bundled_nccl="")
    # The head may have queried another image last.
    image = queried if queried and queried.image == stack.image else None
    if image:
        release = image.vllm.partition("+")[0]
        stack = replace(stack, vllm=release, ray=image.ray, image_has_ray=bool(image.ray), bundled_nccl=image.nccl)
    engine, arguments, lock = settings.container_engine, settings.container_args, settings.runtime_lock
    options_of, tag, known = image.image_id if image else "", pins.tag(given), _pins(inputs)
    planned = Container(
        stack.runtime, stack.image, stack.image, engine, arguments, options_of, base, builds, lock, tag, known
    )
    return Runtime(
        stack=stack,
        planned=planned,
        build=build,
        options=image.options if image else None,
        variables=image.variables if image else None,
        unread=unread(planned, stack.name),
    )


def unread(planned: Container, stack: str) -> bool:
    """Whether the release in the image is unknown: it is not the stack's own, and the head has not queried it."""
    named = planned.image if planned.builds else planned.tag or planned.image
    return bool(named) and not planned.options_of and named != stacks.STACKS[stack].image


def _pins(inputs: Inputs) -> Mapping[str, pins.Pin]:
    return inputs.head.facts.pins if inputs.head.facts else {}


def _environment(inputs: Inputs, stack: Stack, build: Choice) -> Runtime:
    """Return the environment of the ranks. Launch overrides belong to its path.

    A build has a separate environment, so that the one in use stays complete.
    """
    head, settings = inputs.head, inputs.head.settings
    digest = choice.runtime_digest(hashlib.sha256(inputs.lock.encode()).hexdigest(), build.key)
    path, link = f"{settings.install_dir}/runtime/{digest[:12]}", f"{settings.install_dir}/runtime/current"
    engine, arguments, lock = settings.container_engine, settings.container_args, settings.runtime_lock
    return Runtime(
        stack=stack,
        planned=Environment(stack.runtime, path, "", engine, arguments, "", "", (), lock, "", {}, digest, path, link),
        build=build,
        options=head.options,
        variables=head.environment_variables,
        unread=False,
    )


def _check_layers(inputs: Inputs, stack: Stack) -> list[Problem]:
    expected = "gb10_runtime: container, because layers belong to an image"
    problem = Problem(
        layers.VARIABLE, f"the runtime is {stack.runtime}", expected, "remove the layers, or set gb10_runtime"
    )
    return [problem] if inputs.layers else []


def _wheels(inputs: Inputs, build: Choice, container: bool) -> tuple[tuple[Wheel, ...], ...]:
    """Return the wheels that replace the lock's on each node: of the build, once every node has it, and the node's
    own."""
    built: dict[str, Wheel] = {}
    if build.state == schema.READY and not container:
        built = {name: Wheel(_store(inputs, build), build.sha256, built=True) for name in build.nodes}
    return tuple(
        (
            *((built[node.name],) if node.name in built else ()),
            *(Wheel(**wheel) for wheel in node.settings.runtime_wheels),
        )
        for node in inputs.nodes
    )

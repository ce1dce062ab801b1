# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""The model to serve: its catalog entry, its place in the store, and the facts that were read from its files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from ansible_collections.gb10.cluster.plugins.module_utils.cluster.schema import HubModel, Inputs, ModelFiles, Node
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError, refuse
from ansible_collections.gb10.cluster.plugins.module_utils.model import catalog, drafts
from ansible_collections.gb10.cluster.plugins.module_utils.model.catalog import Model
from ansible_collections.gb10.cluster.plugins.module_utils.model.shape import read_config
from ansible_collections.gb10.cluster.plugins.module_utils.model_store import plan as model_store_plan
from ansible_collections.gb10.cluster.plugins.module_utils.recipe.schema import Use
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import stacks
from ansible_collections.gb10.cluster.plugins.module_utils.serve.schema import Served


@dataclass(frozen=True)
class Chosen(Served):
    """The model with its place in the store. The path of its ``entry`` is that folder; ``name``: its default name in
    the API.

    ``store`` is from model_store's plan(); ``draft_store``: the place of the draft, {} without one. ``user_args``:
    gb10_vllm_extra_args with the draft's folder, as the entry's. ``about`` and ``warnings`` are text.
    """

    name: str
    store: Mapping[str, str]
    about: Sequence[str]
    warnings: Sequence[str]
    draft_store: Mapping[str, str]
    user_args: Sequence[str]


def choose_model(inputs: Inputs) -> Chosen:
    """Return the model of gb10_model or of the recipe.

    Raises ProblemsError for errors in gb10_model and gb10_models.
    """
    head, settings = inputs.head, inputs.head.settings
    model = catalog.find(settings.model, settings.models)
    if inputs.recipe:
        model = _of_recipe(model, inputs.recipe)
    store = model_store_plan.plan(
        model.hub, model.path, model.revision, settings.install_dir, head.store_enabled, head.store_source
    )
    user_args, draft = settings.vllm_extra_args, catalog.draft([*model.args, *settings.vllm_extra_args])
    refuse(_check_revisions(model.revision, draft.revision if draft else ""))
    draft_store = (
        model_store_plan.plan(draft.hub, "", draft.revision, settings.install_dir, head.store_enabled, "")
        if draft
        else {}
    )
    entry = replace(model, path=store["folder"]) if store else model
    if draft and draft_store:
        entry = replace(entry, args=tuple(drafts.with_folder(entry.args, draft.hub, draft_store["folder"])))
        user_args = drafts.with_folder(user_args, draft.hub, draft_store["folder"])
    found = _read(entry, inputs.nodes, settings.install_dir)
    return Chosen(
        entry=entry,
        name=model.reference.rstrip("/").rsplit("/", 1)[-1],
        store=store,
        config=read_config(found.config if found else model.config or None),
        weights_bytes=(found and found.weights_bytes) or model.weights_bytes,
        about=catalog.describe(model),
        warnings=_unread(entry, head, found),
        draft=draft,
        draft_store=draft_store,
        user_args=user_args,
        args_path=inputs.recipe.args_path if inputs.recipe else f"gb10_models.{model.name}.args",
        environment_paths=inputs.recipe.environment_paths
        if inputs.recipe
        else dict.fromkeys(model.environment, f"gb10_models.{model.name}.environment"),
        recipe=inputs.recipe is not None or "" != model.image == settings.container_image,
    )


def with_image(inputs: Inputs) -> Inputs:
    """Return the inputs with the container image of the catalog's entry, unless a recipe or the inventory chose
    another runtime.

    Such images have no Ray, so the ranks start without it by default.
    """
    settings, given = inputs.head.settings, inputs.head.variables
    native = settings.runtime not in ("", stacks.CONTAINER)
    if inputs.recipe or native or settings.container_image or {"gb10_stack", "gb10_runtime_lock"} & {*given}:
        return inputs
    try:
        image = catalog.find(settings.model, settings.models).image
    except ProblemsError:
        return inputs
    executor = settings.distributed_executor_backend if "gb10_distributed_executor_backend" in given else "mp"
    nodes = (
        replace(
            node,
            settings=replace(
                node.settings, runtime=stacks.CONTAINER, container_image=image, distributed_executor_backend=executor
            ),
        )
        for node in inputs.nodes
    )
    return replace(inputs, nodes=tuple(nodes)) if image else inputs


def check_hub(model: Chosen, inputs: Inputs) -> list[Problem]:
    """Return the problem of a model that Hugging Face Hub refuses, so that a download would fail.

    Without a store, vLLM downloads the model with a token that the plan does not know.
    """
    hub, entry = _hub(inputs.head), model.entry
    if (
        not hub
        or not hub.refused
        or not inputs.head.store_enabled
        or (hub.name, hub.revision) != (entry.hub, entry.revision or "main")
    ):
        return []
    problem = model_store_plan.hub_problem(hub.name, hub.revision, hub.trouble, hub.refused)
    if close := catalog.like(hub.name, inputs.head.settings.models):
        problem = replace(problem, fix=f"perhaps use {' or '.join(close)}; else {problem.fix}")
    return [problem]


def _check_revisions(model: str, draft: str) -> list[Problem]:
    """Check the revisions of the model and of its draft, which become part of a path. A recipe may have set them."""
    return [
        Problem(
            "gb10_model",
            f"{revision[:100]!r}, the revision of the {owner}",
            "a branch, a tag or a commit",
            "correct it",
        )
        for revision, owner in ((model, "model"), (draft, "draft"))
        if not model_store_plan.is_revision(revision)
    ]


def _of_recipe(model: Model, recipe: Use) -> Model:
    """Return the model with the recipe's arguments and variables. The catalog's figures of its size stay."""
    if model.hub and model.hub.casefold() != recipe.model.casefold():
        fix = (
            "remove gb10_model; on the command line, add -e gb10_model='' for the recipe, or -e gb10_recipe='' for "
            "the model"
        )
        raise ProblemsError(
            [Problem("gb10_model", model.hub, f"{recipe.model}, the model of gb10_recipe, or a folder with it", fix)]
        )
    return replace(
        model,
        args=recipe.args,
        environment=recipe.environment,
        files=(),
        image="",
        revision=recipe.revision or model.revision,
        reasoning=model.reasoning or recipe.reasoning,
        tensor=0,
        pipeline=0,
        max_model_len=0,
        quantization="",
        requires={},
        sure="its arguments are the recipe's",
    )


def _read(model: Model, nodes: Sequence[Node], root: str) -> ModelFiles | None:
    """Return the facts read from the model's files, None if nothing was read.

    A node with the complete model comes first. Next is the source of the model, the folder or Hugging Face Hub as the
    head reported it. So the run that copies the model and the runs after it decide from the same facts. An incomplete
    copy on the head comes last. Facts about another model, which recorded facts may contain, are ignored.
    """
    stored = model_store_plan.folder(root, model.hub, model.revision) if model.hub else ""
    folders = (None, model.path, stored, nodes[0].store_source)
    ours = [(node, node.facts.model) for node in nodes if node.facts and node.facts.model.path in folders]
    hub = _hub(nodes[0])
    candidates = [files for _node, files in ours if files.complete]
    candidates += [hub.files] if hub and (hub.name, hub.revision) == (model.hub, model.revision or "main") else []
    candidates += [files for node, files in ours if node is nodes[0]]
    return next((files for files in candidates if files.config is not None), None)


def _unread(model: Model, head: Node, found: ModelFiles | None) -> list[str]:
    """Return a warning if the model's source was not read although it is needed; ``found`` is _read()'s result."""
    hub = _hub(head)
    if hub and hub.trouble:
        why = f"Hugging Face Hub could not be queried for {hub.name} at {hub.revision}: {hub.trouble}"
    elif head.store_enabled and head.store_source and head.facts and not found:
        why = f"{head.name} has no {head.store_source}/config.json (model_store_source)"
    elif not found and (close := catalog.like(model.hub, head.settings.models)):
        why = f"{model.hub} was not read and is not in the catalog; perhaps use {' or '.join(close)}"
    else:
        return []
    if found:
        known = "the plan uses facts from an earlier read"
    else:
        known = "the plan uses the catalog entry" if model.config else "the plan uses cautious defaults"
    return [f"{why}; {known}, and a later run may plan differently"]


def _hub(head: Node) -> HubModel | None:
    return head.facts.hub if head.facts else None

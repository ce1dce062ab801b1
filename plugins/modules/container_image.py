#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: container_image
short_description: Pull, load or build a container image, and save it to a tar file for other hosts
version_added: 0.1.0
description:
  - Loads an image from a tar file or pulls it, if the engine does not have it yet. Returns its id, to compare hosts.
  - Fails for an image of another machine architecture, before a container fails at its start.
  - Tested with Podman 4.3 on simulated hosts. Docker's commands are the same but were not run.
options:
  image:
    description: The image by reference or id, C(sha256:) and 64 hexadecimal digits.
    type: str
    required: true
  archive:
    description: A tar file on the host from C(docker save) or C(podman save), to load the image from.
    type: path
  pull:
    description: Whether to pull the image from its registry if neither the engine nor O(archive) has it.
    type: bool
    default: false
  update:
    description: Whether to fetch the image although the engine has it, because its tag may have moved. An image that no
      registry has stays, unless O(archive) is set.
    type: bool
    default: false
  build:
    description:
      - How to build the image if the engine does not have it.
      - C(context) is a folder on the host with a C(Containerfile), which starts from the name C(base_name). The image
        C(base) on the host gets this name during the build. C(args) are additional arguments of the engine's build
        command. The scripts of a build run as root inside it.
    type: dict
    suboptions:
      context:
        description: The folder.
        type: path
        required: true
      base:
        description: The image below, by reference or id.
        type: str
        required: true
      base_name:
        description: The name in the C(Containerfile).
        type: str
        required: true
      network:
        description: Whether the build may use the network.
        type: bool
        default: false
      args:
        description: Additional arguments.
        type: list
        elements: str
        default: []
  save:
    description: A tar file to save the image to. The module writes it each time.
    type: path
  engine:
    description: The container engine.
    type: str
    choices: [docker, podman]
    default: docker
seealso:
  - module: gb10.cluster.vllm_patch
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Pull the image
  gb10.cluster.container_image:
    image: vllm/vllm-openai@sha256:4b0d9a2d2a2b4bd1a2b4c8e7f6a5d4c3b2a1908f7e6d5c4b3a29180f7e6d5c4b
    pull: true
  register: image
  become: true

- name: Check whether this host has the image
  gb10.cluster.container_image:
    image: "sha256:{{ image.image_id }}"
  become: true
"""

RETURN = r"""
image_id:
  description: The image's id, 64 hexadecimal digits; null if it is not on the host, also if only check mode prevented
    the fetch.
  returned: success
  type: str
digests:
  description: References by digest under which registries have it, empty for an image that was built or loaded here.
  returned: success
  type: list
  elements: str
digest:
  description: The digest under which the registry of O(image) has it, C(sha256:) and 64 hexadecimal digits; empty if
    none has.
  returned: success
  type: str
size:
  description: Its disk usage in bytes.
  returned: success
  type: int
saved_sha256:
  description: Hash of the tar file, null without O(save) and in check mode.
  returned: success
  type: str
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy, io_image, pins
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Image
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import Engine


def see_to(engine: Engine, params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Pull or load the image if it is missing or may be old, and save it to a tar file if requested."""
    reference, saved = params["image"], None
    before = image = engine.find(reference)
    missing, old = _due(params, image)
    if (missing or old) and not check:
        image = _fetched(engine, params)
    if image is not None:
        io_image.check_machine(image, reference, os.uname().machine)
        if params["save"] and not check:
            saved = io_image.save(engine, image, params["save"])
    known = image or Image("", "")
    # Only a fetch shows whether the tag has moved.
    moved = old and known.id != (before or known).id
    return {
        "changed": bool(missing or moved or params["save"]),
        "image_id": known.id or None,
        "digests": list(known.digests),
        "digest": pins.digest(reference, known.digests),
        "size": known.size,
        "saved_sha256": saved,
        "diff": {
            "before": _shown(before, moved),
            "after": _shown(image, moved) or (f"{reference}\n" if missing else ""),
        },
    }


def _fetched(engine: Engine, params: dict[str, Any]) -> Image | None:
    if params["build"]:
        return io_image.build(engine, params["image"], params["build"])
    return io_image.get(engine, params["image"], params["archive"], params["pull"])


def _due(params: dict[str, Any], image: Image | None) -> tuple[bool, bool]:
    """Return whether the image is missing and is to be fetched or built, and whether it is there and is to be fetched
    again."""
    if image is None:
        return bool(params["archive"] or params["pull"] or params["build"]), False
    known = params["pull"] and pins.digest(params["image"], image.digests)
    return False, params["update"] and bool(params["archive"] or known)


def _shown(image: Image | None, moved: bool) -> str:
    return f"sha256:{image.id}\n" if image and moved else ""


def main() -> None:
    """Find, fetch and save the image."""
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "archive": {"type": "path"},
            "pull": {"type": "bool", "default": False},
            "update": {"type": "bool", "default": False},
            "build": {
                "type": "dict",
                "options": {
                    "context": {"type": "path", "required": True},
                    "base": {"type": "str", "required": True},
                    "base_name": {"type": "str", "required": True},
                    "network": {"type": "bool", "default": False},
                    "args": {"type": "list", "elements": "str", "default": []},
                },
            },
            "save": {"type": "path"},
            "engine": {"type": "str", "choices": ["docker", "podman"], "default": "docker"},
        },
        supports_check_mode=True,
    )
    # Another user reads the tar file.
    os.umask(0o022)
    try:
        image_copy.check_reference(module.params["image"])
        answer = see_to(Engine(runner(module), module.params["engine"], []), module.params, module.check_mode)
    except (ProblemsError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()

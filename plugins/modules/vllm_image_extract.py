#!/usr/bin/python
# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

from __future__ import annotations

DOCUMENTATION = r"""
---
module: vllm_image_extract
short_description: Copy the vLLM of a container image to the host, to patch it there
version_added: 0.1.0
description:
  - Copies the package C(vllm) of an image, and the other files that M(gb10.cluster.vllm_patch) reads, to a folder named
    after the image's id. Containers of that image then mount the copy over their own; the image does not change.
  - The interpreter inside the image finds the package, in a temporary container without network and GPU. It does not
    import vLLM.
  - A copy is complete or does not exist, also if a run is killed. The next run with changes removes leftovers of killed
    runs.
  - Tested with Podman 4.3 on a simulated host, with the Python sources of a vLLM. Docker's commands are the same but
    were not run.
options:
  image:
    description: The image by reference or id. It has to be on the host.
    type: str
    required: true
  dest:
    description: A folder only for copies. Each copy has a subfolder, named after the first 12 digits of the image's id.
    type: path
    required: true
  state:
    description:
      - Whether the copy should exist.
      - V(absent) removes the copies of the image that O(image) means now, and of the images that it meant before.
    type: str
    choices: [present, absent]
    default: present
  engine:
    description: The container engine.
    type: str
    choices: [docker, podman]
    default: docker
  engine_args:
    description: More arguments of the engine's command C(create).
    type: list
    elements: str
    default: []
  python:
    description: The interpreter inside the image that runs vLLM, by name or path.
    type: str
    default: python3
seealso:
  - module: gb10.cluster.vllm_patch
  - module: gb10.cluster.container_image
author:
  - gb10.cluster maintainers (@gb10-cluster)
extends_documentation_fragment:
  - gb10.cluster.attributes.change
"""

EXAMPLES = r"""
- name: Copy vLLM out of the image
  gb10.cluster.vllm_image_extract:
    image: vllm/vllm-openai:v0.28.0
    dest: /opt/gb10/images
  register: copy
  become: true

- name: Patch the copy
  gb10.cluster.vllm_patch:
    package_dir: "{{ copy.package_dir }}"
    config_folder: "{{ copy.config_folder }}"
    toolkit: "{{ copy.toolkit }}"
  register: patch
  become: true
  when: copy.mounts | length > 0
"""

RETURN = r"""
image_id:
  description: The image's id, 64 hexadecimal digits; null if O(state=absent) and it is not on the host.
  returned: success
  type: str
package_dir:
  description: The package's folder in the copy.
  returned: when O(state=present)
  type: str
container_package_dir:
  description: The package's folder in the image; null in check mode before the first copy.
  returned: when O(state=present)
  type: str
config_folder:
  description: Folder for tables of the patch V(moe_config) of M(gb10.cluster.vllm_patch). Containers have it at the
    same path.
  returned: when O(state=present)
  type: str
mounts:
  description: The mounts of containers, each C(source) on the host at C(target) in the container. Empty in check mode
    without a copy.
  returned: when O(state=present)
  type: list
  elements: dict
  sample:
    - {source: /opt/gb10/images/8dc02be0f5e9/site-packages/vllm,
       target: /usr/local/lib/python3.12/dist-packages/vllm, read_only: true}
toolkit:
  description: The paths of the assembler of the image's CUDA toolkit, if any, in the copy (C(path)) and in the image
    (C(runs_as)).
  returned: when O(state=present)
  type: dict
"""

import os
from typing import Any

from ansible.module_utils.basic import AnsibleModule

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import runner
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy, io_image_copy
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Copy
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import Engine


def present(engine: Engine, dest: str, params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Create the copy if it does not exist."""
    image = engine.image(params["image"])
    folder, copy = io_image_copy.folder_of(dest, image), io_image_copy.existing(dest, image)
    changed = copy is None
    if copy is None and not check:
        copy = io_image_copy.make(engine, dest, image, params["image"], params["python"])
    answer = image_copy.answer(folder, copy or Copy(image.id, params["image"], "", ""))
    if copy is None:
        answer.update(container_package_dir=None, mounts=[])
    text = f"{folder}: {image.id}\n"
    return {
        "changed": changed,
        "image_id": image.id,
        **answer,
        "diff": {"before": "" if changed else text, "after": text},
    }


def absent(engine: Engine, dest: str, params: dict[str, Any], check: bool) -> dict[str, Any]:
    """Remove the copies, even if the image or the engine does not exist any more."""
    try:
        image_id = engine.image(params["image"]).id
    except ProblemsError:
        image_id = None
    copies = io_image_copy.of_image(dest, params["image"], image_id)
    changed = bool(copies or io_image_copy.unfinished(dest))
    if changed and not check:
        io_image_copy.remove(engine, dest, list(copies))
    before = "".join(f"{folder}: {copy.image_id}\n" for folder, copy in copies.items())
    return {"changed": changed, "image_id": image_id, "diff": {"before": before, "after": ""}}


def main() -> None:
    """Create or remove the copy."""
    module = AnsibleModule(
        argument_spec={
            "image": {"type": "str", "required": True},
            "dest": {"type": "path", "required": True},
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "engine": {"type": "str", "choices": ["docker", "podman"], "default": "docker"},
            "engine_args": {"type": "list", "elements": "str", "default": []},
            "python": {"type": "str", "default": "python3"},
        },
        supports_check_mode=True,
    )
    # Containers of other users than root read the copy, so the caller's umask must not apply.
    os.umask(0o022)
    params = module.params
    try:
        image_copy.check_reference(params["image"])
        engine = Engine(runner(module), params["engine"], params["engine_args"])
        see_to = present if params["state"] == "present" else absent
        answer = see_to(engine, os.path.abspath(params["dest"]), params, module.check_mode)
    except (ProblemsError, OSError) as error:
        module.fail_json(msg=str(error))
    module.exit_json(**answer)


if __name__ == "__main__":
    main()

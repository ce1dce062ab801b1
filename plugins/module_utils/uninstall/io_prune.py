# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Read the stored items of a node with their sizes, and remove some.

Root does nothing in the home of the service user, who could replace a folder by a link; commands there run as that
user (docs/security.md).
"""

from __future__ import annotations

import glob
import json
import os
import re
from collections.abc import Iterator, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file, paths
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED, Run
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import io_record
from ansible_collections.gb10.cluster.plugins.module_utils.rollback import record as rollback_record
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.io_engine import last
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall import io_node, plan, prune, report
from ansible_collections.gb10.cluster.plugins.module_utils.uninstall.prune import Item, Launches

_DU = ("du", "--one-file-system", "--block-size=1")
_RM = ("rm", "--recursive", "--force", "--one-file-system", "--")
_IMAGES = "{{.ID}}\t{{.Repository}}\t{{.Tag}}\t{{.Digest}}\t{{.Size}}"
_NONE = "<none>"
_SAFE = re.compile(r"[\w.@+-]{1,255}", re.ASCII)


def read(run: Run, install_dir: str, user: str) -> list[Item]:
    """Return the node's items. Raises UninstallError, ValueError and OSError."""
    texts = [io_file.read(f"{paths.UNIT_FOLDER}/{unit}") for unit in paths.UNITS]
    roots = list(dict.fromkeys(map(os.path.realpath, plan.roots(install_dir, texts))))
    launches = _launches()
    found = [item for root in roots if os.path.isdir(root) for item in _stored(run, root, launches)]
    found += _caches(run, user, launches)
    return [*found, *(item for engine in io_node.engines(texts, roots) for item in _images(run, engine, launches))]


def remove(run: Run, items: Sequence[Item]) -> None:
    """Remove items. Raises UninstallError."""
    for item in items:
        if item.engine:
            io_node.must(run, [item.engine, "rmi", *item.references])
        else:
            io_node.must(run, [*_as(item.owner), *_RM, item.path])


def _launches() -> Launches:
    store = io_record.read(io_record.FOLDER)
    texts = {
        f"launch {name[: rollback_record.SHOWN]}": json.dumps(record.content)
        + "".join(file.text for file in record.files.values())
        for name, record in store.found.items()
    }
    services = [file.text for file in io_record.launch_files().values()]
    services += (io_file.read(f"{paths.UNIT_FOLDER}/{unit}") for unit in (paths.GATEWAY_UNIT, paths.FALLBACK_UNIT))
    return Launches({**texts, "an installed service": "".join(services)}, list(store.invalid.values()))


def _stored(run: Run, root: str, launches: Launches) -> Iterator[Item]:
    """Yield the items below an installation folder. A link belongs to a service or to an administrator.

    Root removes nothing from a folder where another user can replace an item by a link.
    """
    found = {
        path: f"{store}/{os.path.relpath(path, f'{root}/{store}')}"
        for store, levels in prune.STORES.items()
        for path in sorted(glob.glob(f"{glob.escape(root)}/{store}{'/*' * levels}"))
        if os.path.realpath(path) == path
    }
    sizes = _sizes(run, [*_DU, "--summarize", "--", *found]) if found else {}
    for path, name in found.items():
        why = io_file.exposed(os.path.dirname(path)) or prune.kept(name, [path], launches)
        yield Item(name, path, sizes.get(path, ""), why)


def _caches(run: Run, user: str, launches: Launches) -> Iterator[Item]:
    places = {path: name for name, path in prune.CACHES.items() if os.path.isdir(path)}
    sizes = _sizes(run, [*_DU, "--summarize", "--", *places]) if places else {}
    yield from (Item(name, path, sizes.get(path, "")) for path, name in places.items())
    folder = f"{paths.home(user)}/.cache"
    if io_node.exists(user):
        for path, size in sorted(_sizes(run, [*_as(user), *_DU, "--max-depth=1", "--", folder]).items()):
            own = path.removeprefix(f"{folder}/")
            if _SAFE.fullmatch(own):
                name = f"cache/{own}"
                yield Item(name, path, size, prune.kept(name, [], launches), owner=user)


def _images(run: Run, engine: str, launches: Launches) -> Iterator[Item]:
    """Yield the images of an engine. One with several names is removed by all of them."""
    status, stdout, stderr = run([engine, "image", "ls", "--no-trunc", "--digests", f"--format={_IMAGES}"])
    if status not in (0, NOT_INSTALLED):
        raise io_node.UninstallError(f"{engine} does not list its images: {last(stderr or stdout)}")
    names: dict[str, list[str]] = {}
    sizes: dict[str, str] = {}
    digests: dict[str, list[str]] = {}
    for line in stdout.splitlines():
        identifier, repository, tag, digest, size = (*line.split("\t"), "", "", "", "")[:5]
        own = identifier.removeprefix("sha256:")
        names.setdefault(own, [])
        sizes[own] = size
        if _NONE not in (repository, tag):
            names[own].append(f"{repository}:{tag}")
        if digest not in ("", _NONE):
            # Podman's repository has a registry that the inventory may leave out.
            digests.setdefault(own, []).append(digest)
    for own, tags in names.items():
        why = prune.kept(own, [own, *tags, *digests.get(own, [])], launches)
        yield Item(f"image/{own[:12]}", "", sizes[own], why, engine=engine, references=tags or [own])


def _sizes(run: Run, argv: list[str]) -> dict[str, str]:
    """Return the sizes of folders and files as text; those that du cannot read are left out."""
    _status, stdout, _stderr = run(argv)
    fields = [line.partition("\t") for line in stdout.splitlines()]
    return {path: report.size(int(count)) for count, _tab, path in fields if count.isdigit()}


def _as(user: str) -> list[str]:
    return ["runuser", "--user", user, "--"] if user else []

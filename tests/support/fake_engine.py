"""A container engine without containers. It supports the Podman and Docker commands of this collection; an image is a
folder.

``fake_engine.py STATE argv...``: STATE contains images/ID.json ({names, root, path}); the program writes
containers/ID.json and calls. Paths inside an image are paths of its folder on this host, except for /usr/local/cuda. A
registry is STATE/registry, with files as in images, and a tar file is such a file. A file STATE/trouble names a command
and its replacement: an exit status, or "hang".
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CUDA = "/usr/local/cuda"


def images(state: Path) -> dict[str, dict[str, Any]]:
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in (state / "images").glob("*.json")}


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def fail(message: str, status: int = 125) -> int:
    sys.stderr.write(f"Error: {message}\n")
    return status


def inspect(state: Path, _image: str, reference: str) -> int:
    for image_id, image in images(state).items():
        if reference in image["names"] or image_id.startswith(reference.removeprefix("sha256:")):
            known = {
                "Architecture": "amd64",
                "Size": 1000,
                "RepoDigests": [name for name in image["names"] if "@" in name],
                **image.get("said", {}),
            }
            say(json.dumps([{"Id": f"sha256:{image_id}", **known}]))
            return 0
    say("[]")
    return fail(f"inspecting object: {reference}: image not known")


def create(state: Path, *argv: str) -> int:
    options = [word for word in argv if word.startswith("--")]
    image_id, *arguments = argv[len(options) :]
    given = dict(word.removeprefix("--").partition("=")[::2] for word in options)
    if given["network"] != "none" or given["pull"] != "never" or image_id not in images(state):
        return fail("unexpected options or image to inspect an image")
    container = f"{len(list((state / 'containers').iterdir())) + 1:064x}"
    entry = {"image": image_id, "argv": [given["entrypoint"], *arguments], "label": given["label"], "options": options}
    (state / "containers" / f"{container}.json").write_text(json.dumps(entry), encoding="utf-8")
    say(container)
    return 0


def start(state: Path, _attach: str, container: str) -> int:
    entry = json.loads((state / "containers" / f"{container}.json").read_text(encoding="utf-8"))
    image = images(state)[entry["image"]]
    if entry["argv"][0] == "rubbish":
        say("usage: rubbish")
        return 0
    if entry["argv"][0] != "python3":
        return fail(f"crun: executable file `{entry['argv'][0]}` not found in $PATH", 127)
    argv = [sys.executable, *(word.replace(CUDA, image["root"] + CUDA) for word in entry["argv"][1:])]
    return subprocess.run(argv, env=os.environ | {"PYTHONPATH": os.pathsep.join(image["path"])}, check=False).returncode


def run(state: Path, *argv: str) -> int:
    """Run an image's Python. Each option is one word."""
    options = list(itertools.takewhile(lambda word: word.startswith("--"), argv))
    reference, *arguments = argv[len(options) :]
    image = next((image for image in images(state).values() if reference in image["names"]), None)
    if image is None or not {"--pull=never", "--network=none", "--entrypoint=python3"} <= {*options}:
        return fail(f"{reference}: image not known")
    return subprocess.run(
        [sys.executable, *arguments], env=os.environ | {"PYTHONPATH": os.pathsep.join(image["path"])}, check=False
    ).returncode


def cp(_state: Path, source: str, target: str) -> int:
    path = Path(source.partition(":")[2])
    (shutil.copytree if path.is_dir() else shutil.copy2)(path, target, **({"symlinks": True} if path.is_dir() else {}))
    return 0


def ps(state: Path, *options: str) -> int:
    (label,) = [word.removeprefix("--filter=label=") for word in options if word.startswith("--filter=")]
    for path in (state / "containers").iterdir():
        if json.loads(path.read_text(encoding="utf-8"))["label"] == label:
            say(path.stem)
    return 0


def rm(state: Path, *words: str) -> int:
    for container in words:
        if not container.startswith("--"):
            (state / "containers" / f"{container}.json").unlink()
    return 0


def pull(state: Path, _quiet: str, reference: str) -> int:
    for path in (state / "registry").glob("*.json"):
        if reference in json.loads(path.read_text(encoding="utf-8"))["names"]:
            for other, image in images(state).items():
                kept = [name for name in image["names"] if name != reference or "@" in name]
                (state / "images" / f"{other}.json").write_text(json.dumps(image | {"names": kept}), encoding="utf-8")
            shutil.copy(path, state / "images")
            return 0
    return fail(f"reading manifest {reference}: manifest unknown")


def tag(state: Path, image_id: str, name: str) -> int:
    path = state / "images" / f"{image_id}.json"
    image = json.loads(path.read_text(encoding="utf-8"))
    path.write_text(json.dumps(image | {"names": sorted({*image["names"], name})}), encoding="utf-8")
    return 0


def save(state: Path, output: str, name: str) -> int:
    (image_id,) = [image_id for image_id, image in images(state).items() if name in image["names"]]
    target = Path(output.partition("=")[2])
    if target.exists():
        return fail("docker-archive doesn't support modifying existing images")
    # Like a real tar file, it contains only the name used to save it.
    target.write_text(json.dumps({**images(state)[image_id], "names": [name], "id": image_id}), encoding="utf-8")
    return 0


def load(state: Path, given: str) -> int:
    image = json.loads(Path(given.partition("=")[2]).read_text(encoding="utf-8"))
    (state / "images" / f"{image['id']}.json").write_text(json.dumps(image), encoding="utf-8")
    say(f"Loaded image: {image['names'][0]}")
    return 0


def build(state: Path, *argv: str) -> int:
    """Build an image whose ID is the digest of its Containerfile, which must start from an image of the engine.

    STATE/built lists the files of each build beside it: {image: [path]}.
    """
    given = dict(word.removeprefix("--").partition("=")[::2] for word in argv[:-1])
    text = Path(given["file"]).read_text(encoding="utf-8")
    start = text.split()[1]
    base = next((image for image in images(state).values() if start in image["names"]), None)
    if base is None or Path(given["file"]).parent != Path(argv[-1]) or "pull" not in given:
        return fail(f"{start}: image not known")
    (state / "network").write_text(given.get("network", "default"), encoding="utf-8")
    built = state / "built"
    files = [
        str(path.relative_to(argv[-1]))
        for path in sorted(Path(argv[-1]).rglob("*"))
        if path.is_file() and path.name != "Containerfile"
    ]
    known = json.loads(built.read_text(encoding="utf-8")) if built.exists() else {}
    built.write_text(json.dumps({**known, given["tag"]: files}), encoding="utf-8")
    image_id = hashlib.sha256(text.encode()).hexdigest()
    entry = {"names": [given["tag"]], "root": "/", "path": [], "said": {**base["said"], "RepoDigests": []}}
    (state / "images" / f"{image_id}.json").write_text(json.dumps(entry), encoding="utf-8")
    return 0


def main(folder: str, command: str, *argv: str) -> int:
    state = Path(folder)
    with (state / "calls").open("a", encoding="utf-8") as calls:
        calls.write(f"{command}\n")
    if (state / "trouble").exists():
        where, what = (state / "trouble").read_text(encoding="utf-8").split()
        if where == command:
            if what == "hang":
                time.sleep(60)
            return fail("it is broken", int(what))
    known = {
        "image": inspect,
        "create": create,
        "start": start,
        "cp": cp,
        "ps": ps,
        "rm": rm,
        "pull": pull,
        "tag": tag,
        "save": save,
    }
    known |= {"load": load, "build": build, "run": run}
    return known[command](state, *argv)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""Run the commands of a container engine on this host. Podman and Docker have the same ones."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common import io_file
from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED, Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Image

#: The label with the folder that a container serves, to find containers of killed runs.
LABEL = "gb10.cluster.vllm_image_extract"
#: Numbers of a user and a group that own nothing in any image.
NOBODY = "65534:65534"
_SHOWN = 500
#: Build from the image on this host. Docker's builder looks there first; Podman needs the option.
_UNPULLED: Mapping[str, Sequence[str]] = {"docker": (), "podman": ("--pull=never",)}


class Engine:
    """A container engine on this host. Every method raises ProblemsError with the engine's message."""

    def __init__(self, run: Run, name: str, create_args: Sequence[str]) -> None:
        self.name = name
        self._run = run
        self._create_args = create_args

    def image(self, reference: str) -> Image:
        """Return an image that is on this host; do not fetch it."""
        found = self.find(reference)
        if found is None:
            reason = f"{self.name} has no image {reference} on this host"
            raise refused("image", reason, "an image on this host", "pull or load it first")
        return found

    def find(self, reference: str) -> Image | None:
        """Return an image, None if it is not on this host."""
        status, stdout, stderr = self._run([self.name, "image", "inspect", reference])
        if status == 0:
            return image_copy.image(stdout)
        if status == NOT_INSTALLED:
            raise refused(
                "engine",
                f"{self.name} is not installed",
                "the container engine that runs vLLM",
                "install it, or correct engine",
            )
        reported = last(stderr or stdout)
        if re.search(r"no such (image|object)|not known", reported, re.IGNORECASE):
            return None
        raise self._silent(reported)

    def pull(self, reference: str) -> None:
        """Pull an image from its registry. Both engines verify the digest if the reference has one."""
        status, stdout, stderr = self._run([self.name, "pull", "--quiet", reference])
        if status != 0:
            fix = f"correct gb10_container_image and its digest, or check network and login for `{self.name} pull`"
            raise refused(
                "image",
                f"{self.name} pull {reference} failed: {last(stderr or stdout)}",
                "an image that its registry has",
                fix,
            )

    def build(self, base: Image, base_name: str, context: str, name: str, network: bool, args: Sequence[str]) -> None:
        """Build an image from the folder ``context`` with a Containerfile, which starts from ``base_name``.

        The base keeps the name, so that no engine prunes it.
        """
        self._must(["tag", base.id, base_name], "base")
        # Without the option both engines give the build their usual network. Podman has none named default.
        closed = [*([] if network else ["--network=none"]), *_UNPULLED[self.name]]
        self._must(["build", f"--tag={name}", f"--file={context}/Containerfile", *closed, *args, context], "build")

    def load(self, path: str) -> str:
        """Load an image from a tar file, and return the engine's message."""
        return last(self._must(["load", f"--input={path}"], "archive"))

    def save(self, image: Image, name: str, path: str) -> None:
        """Save an image to a tar file under ``name``. It also gets this tag here, so that no engine prunes it."""
        self._must(["tag", image.id, name], "image")
        self._must(["save", f"--output={path}", name], "save")

    @contextlib.contextmanager
    def container(self, image: Image, dest: str, argv: Sequence[str]) -> Iterator[str]:
        """Create a container for ``argv``, without network and GPU, and remove it at the end of the block."""
        # The unprivileged user can read the same files as the ranks. Without NVIDIA_VISIBLE_DEVICES=void, NVIDIA's
        # runtime as the default would mount the host's driver.
        closed = [
            "--network=none",
            f"--user={NOBODY}",
            "--cap-drop=ALL",
            "--security-opt=no-new-privileges",
            "--env=NVIDIA_VISIBLE_DEVICES=void",
        ]
        command = ["create", "--pull=never", *closed, f"--label={LABEL}={dest}"]
        stdout = self._must([*command, *self._create_args, f"--entrypoint={argv[0]}", image.id, *argv[1:]], "engine")
        name = last(stdout)
        try:
            yield name
        finally:
            self.remove([name])

    def start(self, container: str) -> tuple[int, str, str]:
        """Run a container to its end. Returns (exit status, stdout, stderr), also for errors of the engine."""
        return self._run([self.name, "start", "--attach", container])

    def copy(self, container: str, source: str, target: str) -> None:
        """Copy a file or a whole folder out of a container to a path that does not exist; links inside stay links."""
        self._must(["cp", f"{container}:{source}", target], "dest")

    def leftovers(self, dest: str) -> list[str]:
        """Return the containers of killed runs, [] if the engine is not installed."""
        status, stdout, stderr = self._run(
            [self.name, "ps", "--all", "--quiet", "--no-trunc", f"--filter=label={LABEL}={dest}"]
        )
        if status not in (0, NOT_INSTALLED):
            raise self._silent(stderr or stdout)
        return stdout.split()

    def remove(self, containers: Sequence[str]) -> None:
        """Remove containers."""
        if containers:
            self._must(["rm", "--force", "--volumes", *containers], "engine")

    def _silent(self, reported: str) -> ProblemsError:
        found = f"{self.name} does not respond: {last(reported)}"
        return refused("engine", found, "a running container engine", f"make `{self.name} ps` work for this user")

    def _must(self, arguments: Sequence[str], argument: str) -> str:
        status, stdout, stderr = self._run([self.name, *arguments])
        if status != 0:
            found = f"{self.name} {arguments[0]} failed: {last(stderr or stdout)}"
            raise refused(argument, found, "exit status 0", f"resolve the error of {self.name}, then run again")
        return stdout


def last(text: str) -> str:
    """Return the last line of a program's output, shortened, with unprintable characters as escapes."""
    line = (text.strip().splitlines() or ["no output"])[-1][:_SHOWN]
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in line)


def refused(argument: str, found: str, expected: str, fix: str) -> ProblemsError:
    """Return the error of one problem."""
    return ProblemsError([Problem(argument, found, expected, fix)])


def check_room(argument: str, folder: str, size: int, what: str, fix: str) -> None:
    """Raise ProblemsError if a disk has fewer than ``size`` free bytes."""
    free = io_file.free_bytes(folder)
    if free < size:
        raise refused(
            argument, f"{free // 2**20} MiB are free in {folder}", f"{size // 2**20 + 1} MiB for the {what}", fix
        )

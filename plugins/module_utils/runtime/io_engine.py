# Copyright (c) 2026, gb10.cluster maintainers
# GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
# SPDX-License-Identifier: GPL-3.0-or-later

"""A container engine on this host, by its own commands: Podman and Docker understand the same ones."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Sequence

from ansible_collections.gb10.cluster.plugins.module_utils.common.io_command import NOT_INSTALLED, Run
from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import Problem, ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Image

#: Marks containers with the folder that they are there for, so that those of killed runs are known.
_LABEL = "gb10.cluster.vllm_image_copy"
#: The number of a user that owns nothing, in whatever image.
NOBODY = "65534:65534"
_SHOWN = 500


class Engine:
    """A container engine on this host. Every method raises ProblemsError with what the engine said."""

    def __init__(self, run: Run, name: str, create_args: Sequence[str]) -> None:
        self.name = name
        self._run = run
        self._create_args = create_args

    def image(self, reference: str) -> Image:
        """Return an image that is here; none is fetched."""
        found = self.find(reference)
        if found is None:
            raise refused("image", f"{self.name} has no image {reference} on this host", "an image that is here", "pull or load it first")
        return found

    def find(self, reference: str) -> Image | None:
        """Return an image if it is here."""
        status, stdout, stderr = self._run([self.name, "image", "inspect", reference])
        if status == 0:
            return image_copy.image(stdout)
        if status == NOT_INSTALLED:
            raise refused("engine", f"{self.name} is not installed", "the container engine that runs vLLM", "install it, or correct engine")
        said = last(stderr or stdout)
        if re.search(r"no such (image|object)|not known", said, re.IGNORECASE):
            return None
        raise self._silent(said)

    def pull(self, reference: str) -> None:
        """Fetch an image from its registry. Both engines hold what they get against the digest, where the reference has one."""
        status, stdout, stderr = self._run([self.name, "pull", "--quiet", reference])
        if status != 0:
            fix = f"correct gb10_container_image and its digest, or see that `{self.name} pull` works here: network, login"
            raise refused("image", f"{self.name} pull {reference} failed: {last(stderr or stdout)}", "an image that its registry has", fix)

    def load(self, path: str) -> str:
        """Take an image from a tar file, and return what the engine says of it."""
        return last(self._must(["load", f"--input={path}"], "archive"))

    def save(self, image: Image, name: str, path: str) -> None:
        """Write an image into a tar file, under a name that it gets here too, so that no engine takes it for a leftover."""
        self._must(["tag", image.id, name], "image")
        self._must(["save", f"--output={path}", name], "save")

    @contextlib.contextmanager
    def container(self, image: Image, dest: str, argv: Sequence[str]) -> Iterator[str]:
        """Make a container that is to run ``argv``, without network and GPU, and remove it at the end of the block."""
        # As nobody, who reads what the ranks can read. NVIDIA's runtime, where it is the default, mounts the host's driver into a container
        # unless told that it is for no GPU.
        closed = ["--network=none", f"--user={NOBODY}", "--cap-drop=ALL", "--security-opt=no-new-privileges", "--env=NVIDIA_VISIBLE_DEVICES=void"]
        command = ["create", "--pull=never", *closed, f"--label={_LABEL}={dest}"]
        stdout = self._must([*command, *self._create_args, f"--entrypoint={argv[0]}", image.id, *argv[1:]], "engine")
        name = last(stdout)
        try:
            yield name
        finally:
            self.remove([name])

    def start(self, container: str) -> tuple[int, str, str]:
        """Run a container to its end. Returns (exit status, stdout, stderr); the engine itself, too, says there why it cannot."""
        return self._run([self.name, "start", "--attach", container])

    def copy(self, container: str, source: str, target: str) -> None:
        """Copy a file or a whole folder out of a container to where nothing is yet; links inside stay links."""
        self._must(["cp", f"{container}:{source}", target], "dest")

    def leftovers(self, dest: str) -> list[str]:
        """Return the containers that killed runs left; none where the engine itself is gone."""
        status, stdout, stderr = self._run([self.name, "ps", "--all", "--quiet", "--no-trunc", f"--filter=label={_LABEL}={dest}"])
        if status not in (0, NOT_INSTALLED):
            raise self._silent(stderr or stdout)
        return stdout.split()

    def remove(self, containers: Sequence[str]) -> None:
        """Remove containers."""
        if containers:
            self._must(["rm", "--force", "--volumes", *containers], "engine")

    def _silent(self, said: str) -> ProblemsError:
        found = f"{self.name} does not answer: {last(said)}"
        return refused("engine", found, "a container engine that runs", f"make `{self.name} ps` work for this user")

    def _must(self, arguments: Sequence[str], argument: str) -> str:
        status, stdout, stderr = self._run([self.name, *arguments])
        if status != 0:
            raise refused(argument, f"{self.name} {arguments[0]} failed: {last(stderr or stdout)}", "that it works", f"mend what {self.name} says")
        return stdout


def last(text: str) -> str:
    """Return the last line of what a program said, as much as a person reads, with characters that cannot be seen as escapes."""
    line = (text.strip().splitlines() or ["nothing was said"])[-1][:_SHOWN]
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in line)


def refused(argument: str, found: str, expected: str, fix: str) -> ProblemsError:
    """Return the error of one problem."""
    return ProblemsError([Problem(argument, found, expected, fix)])

"""Untrusted content and output of container images: values have one form, or the parser raises its own error."""

from __future__ import annotations

import contextlib
import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from json_values import nested

from ansible_collections.gb10.cluster.plugins.module_utils.common.problems import ProblemsError
from ansible_collections.gb10.cluster.plugins.module_utils.runtime import image_copy, io_engine, io_image_copy
from ansible_collections.gb10.cluster.plugins.module_utils.runtime.image_copy import Copy
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import answer as vllm_release_answer
from ansible_collections.gb10.cluster.plugins.module_utils.vllm_release import checks as vllm_release_checks

IMAGE = {
    "Id": "sha256:" + "ab12" * 16,
    "Architecture": "arm64",
    "Size": 7,
    "RepoDigests": ["example.org/vllm@sha256:" + "5" * 64],
}
FOUND = {
    "package": "/p/vllm",
    "triton": "",
    "torch": "",
    "toolkit": "",
    "distributions": ["/p/vllm-1.dist-info"],
    "size": 1,
}
OPTION = {"name": "--a-b", "kind": "value", "aliases": ["-a"], "choices": ["x y"], "fold": "", "open": False}
ARGUMENTS = {"version": "0.40.0", "ray": "2.60.0", "nccl": "2.30.7", "options": [OPTION], "variables": ["VLLM_X"]}
COPY = {"image_id": "a" * 64, "image": "x", "package": "/p", "triton": ""}
VALUES = nested(
    st.none()
    | st.booleans()
    | st.sampled_from([-1, 10**30, 1e300, "/a:b", "/a,readonly=false", "/../x", "{{ x }}", "a\nb", "-x"])
    | st.text(max_size=9),
    st.sampled_from(["name", "Id", "a"]),
    max_size=3,
    max_leaves=4,
)


@settings(max_examples=60)
@given(st.sampled_from(sorted(IMAGE)), VALUES)
def test_what_the_engine_shows(key: str, value: Any) -> None:
    for whole in ([{**IMAGE, key: value}], value, [value]):
        with contextlib.suppress(ProblemsError):
            image = image_copy.image(json.dumps(whole))
            assert (
                re.fullmatch(r"[0-9a-f]{64}", image.id) and re.fullmatch(r"\w*", image.architecture) and image.size >= 0
            )
            assert all("@sha256:" in digest and digest.isprintable() for digest in image.digests)


@settings(max_examples=60)
@given(st.sampled_from(sorted(FOUND)), VALUES)
def test_what_the_search_prints(key: str, value: Any) -> None:
    for whole in ({**FOUND, key: value}, value):
        with contextlib.suppress(ValueError):
            place = image_copy.found(json.dumps(whole))
            # A path is inside `--volume=a:b:ro` and `--mount=source=a,target=b`.
            paths = [place.package, place.triton, place.torch, place.toolkit, *place.distributions]
            assert not any(re.search(r"[:,\s\"'\\%{}]|(^|/)\.\.?(/|$)", path) for path in paths)
            targets = [target for _source, target in image_copy.layout(place)]
            assert all(
                target.startswith(("site-packages/", "toolkit/")) and ".." not in target.split("/")
                for target in targets
            )


@pytest.mark.parametrize("path", ["/usr/lib/python3/dist-packages/vllm", "/opt/a-b_c+d@1/.venv/lib/x86~64=y"])
def test_places_that_there_are(path: str) -> None:
    assert image_copy.found(json.dumps({**FOUND, "package": path})).package == path


@given(VALUES)
def test_a_record_of_anything(value: Any) -> None:
    assert image_copy.read_record(json.dumps(COPY)) == Copy(**COPY)
    for whole in ({**COPY, "image_id": value}, value):
        copy = image_copy.read_record(json.dumps(whole))
        assert copy is None or image_copy.of_image(copy, "x", None) in (True, False)


@pytest.mark.parametrize(
    ("reference", "image_id", "expected"),
    [
        ("x", None, True),
        ("another", "ab" * 32, True),
        ("another", "cd" * 32, False),
        ("another", None, False),
        ("sha256:" + "ab" * 32, None, True),
        ("ab" * 6, None, True),
        ("sha256:" + "ab" * 6, None, True),
        ("cd" * 6, None, False),
        # Too short to be of one image: it may be a name.
        ("ab", None, False),
        ("", None, False),
    ],
)
def test_a_copy_is_of_its_image_by_name_and_by_id(reference: str, image_id: str | None, expected: bool) -> None:
    copy = Copy(**{**COPY, "image_id": "ab" * 32})
    assert image_copy.of_image(copy, reference, image_id) is expected


@settings(max_examples=60)
@given(st.sampled_from(sorted(ARGUMENTS)), st.sampled_from(sorted(OPTION)), VALUES)
def test_arguments_of_anything(key: str, part: str, value: Any) -> None:
    assert vllm_release_answer.answered(f"noise\n{json.dumps(ARGUMENTS)}") == ARGUMENTS
    for whole in (
        {**ARGUMENTS, key: value},
        {**ARGUMENTS, "options": [{**OPTION, part: value}]},
        {**ARGUMENTS, "failed": value},
        value,
    ):
        with contextlib.suppress(ValueError):
            answer = vllm_release_answer.answered(json.dumps(whole))
            assert answer.keys() == ARGUMENTS.keys(), "the module returns it next to its own keys"
            vllm_release_checks.parse(["--a-b=1"], "0.40.0", queried=vllm_release_checks.options_of(answer["options"]))


@given(st.text())
def test_what_a_program_in_it_says_is_shown_on_one_line(said: str) -> None:
    shown = io_engine.last(said)
    assert shown and shown.isprintable() and len(shown) <= 5000


class Links:
    """An engine whose image has a link in place of a package's folder."""

    def copy(self, _container: str, _source: str, target: str) -> None:
        """Copy the link as it is."""
        Path(target).symlink_to("/etc")


def test_a_pipe_of_an_image_is_refused(tmp_path: Path) -> None:
    """Reading it never ended."""
    os.mkfifo(tmp_path / "_version.py")
    with pytest.raises(ProblemsError, match=r"_version\.py is not a file"):
        io_image_copy._check(str(tmp_path))


def test_a_link_of_an_image_is_not_copied_and_no_target_is_followed(tmp_path: Path) -> None:
    target = tmp_path / "part/site-packages/vllm"
    with pytest.raises(ProblemsError, match="is a link"):
        io_image_copy._copy(Links(), "c", "/a/vllm", str(target))  # type: ignore[arg-type]
    assert not target.is_symlink()
    target.symlink_to(tmp_path / "outside")
    with pytest.raises(ProblemsError, match="would be copied over another path"):
        io_image_copy._copy(Links(), "c", "/b/vllm", str(target))  # type: ignore[arg-type]
    assert not (tmp_path / "outside").exists()

"""The keys of the messages: each node has its own, and none of another one except for the node before it."""

from __future__ import annotations

import hashlib

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.service import keys

SECRET, OTHER = "ab" * 32, "cd" * 32
RING = {"spark1": "spark3", "spark2": "spark1", "spark3": "spark2"}


def test_a_node_has_only_its_own_key_and_that_of_the_node_before_it() -> None:
    found = {node: keys.files(SECRET, node, before) for node, before in RING.items()}
    watchdog = {node: files[paths.WATCHDOG_KEY].splitlines()[:-1] for node, files in found.items()}
    recorder = {node: files[paths.RECORDER_KEYS].splitlines()[:-1] for node, files in found.items()}
    assert watchdog == {node: [keys.of_watchdog(SECRET, node)] for node in RING}
    assert all(recorder[node][1] == recorder[before][0] for node, before in RING.items())
    own = [one for (one,) in watchdog.values()] + [one for one, _before in recorder.values()]
    assert len({*own, SECRET}) == 7 and all(paths.GENERATED_TOKEN.fullmatch(key) for key in own)
    assert not any(SECRET in text for files in found.values() for text in files.values())


def test_the_mark_tells_the_secret_and_the_names() -> None:
    digest = hashlib.sha256(SECRET.encode()).hexdigest()
    own = keys.mark(digest, "spark2", "spark1")
    assert {text.splitlines()[-1] for text in keys.files(SECRET, "spark2", "spark1").values()} == {own}
    others = [
        keys.files(*given)[paths.WATCHDOG_KEY] for given in ((OTHER, "spark2", "spark1"), (SECRET, "spark2", "x"))
    ]
    others += [keys.files(SECRET, "spark3", "spark1")[paths.WATCHDOG_KEY]]
    assert own not in [text.splitlines()[-1] for text in others]


def test_a_line_break_after_the_secret_changes_no_key() -> None:
    assert keys.of_watchdog(f"{SECRET}\n", "spark2") == keys.of_watchdog(SECRET, "spark2")

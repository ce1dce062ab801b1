"""vLLM with its patches: the ranks get the variables, and source patches, on every node alike, change no answer."""

from __future__ import annotations

import json

import pytest
from api_client import completion
from live_cluster import Cluster, environment_of
from testinfra.host import Host

RECORD = "/etc/gb10/overrides.d/vllm_patch.json"
KERNELS = "FlashInferFP8ScaledMMLinearKernel,CutlassFP8ScaledMMLinearKernel,CutlassFp8BlockScaledMMKernel"
PATCHED = "model_executor/layers/quantization/utils/w8a8_utils.py"
#: The roles that patched sources affect.
RANKS = ("--tags", "vllm_patch,ray_cluster,vllm_serve")
SOURCE = ("--extra-vars", "vllm_patch_mechanism=source")


def environments(host: Host) -> list[dict[str, str]]:
    """Return the ranks' inherited environment: that of Ray, and on the head also vLLM's server.

    Ranks overwrite their own with a process title.
    """
    return [found for unit in ("gb10-ray", "gb10-vllm") if (found := environment_of(host, unit))]


def digests(host: Host) -> dict[str, str]:
    """Return the digest of every patchable file of the installed vLLM, and of the backup files next to them."""
    folder = host.check_output("echo /opt/gb10/runtime/current/lib/python3*/site-packages/vllm")
    kinds = "-name '*.py' -o -name '*.gb10-*'"
    lines = host.check_output(f"cd {folder}/model_executor && find . {kinds} | sort | xargs sha256sum").splitlines()
    return {line.split(maxsplit=1)[1]: line.split(maxsplit=1)[0] for line in lines}


def test_every_rank_is_started_with_what_replaces_the_patches(nodes: dict[str, Host]) -> None:
    for host in nodes.values():
        record = json.loads(host.file(RECORD).content_string)
        assert record["runtime"] == host.check_output("readlink /opt/gb10/runtime/current")
        found = environments(host)
        assert found, "neither Ray nor vLLM runs on this node"
        for variables in found:
            assert variables["VLLM_DISABLED_KERNELS"] == KERNELS
            assert variables["VLLM_TUNED_CONFIG_FOLDER"] == record["environment"]["VLLM_TUNED_CONFIG_FOLDER"]


@pytest.mark.disruptive
@pytest.mark.slow
def test_patched_sources_serve_the_same_tokens_and_go_back(
    cluster: Cluster, nodes: dict[str, Host], head: Host
) -> None:
    before, answer = {name: digests(host) for name, host in nodes.items()}, completion(head, tokens=64)
    cluster.site(*SOURCE, "--extra-vars", "gb10_allow_restart=false", "--tags", "vllm_patch").assert_failed(
        "must be changed while its ranks run"
    )
    assert {name: digests(host) for name, host in nodes.items()} == before
    cluster.site(*SOURCE, "--check", "--diff", "--tags", "vllm_patch").assert_ok(
        "+    # gb10.cluster patch w8a8 1 for 12.1"
    )
    cluster.site(*SOURCE, *RANKS).assert_ok("Restarting gb10-vllm.service on spark1")
    patched = {name: digests(host) for name, host in nodes.items()}
    assert len({json.dumps(each, sort_keys=True) for each in patched.values()}) == 1
    assert (
        patched["spark1"][f"./{PATCHED.removeprefix('model_executor/')}"]
        != before["spark1"][f"./{PATCHED.removeprefix('model_executor/')}"]
    )
    assert completion(head, tokens=64) == answer
    assert not any("VLLM_DISABLED_KERNELS" in variables for host in nodes.values() for variables in environments(host))
    cluster.site(*SOURCE, *RANKS).assert_unchanged()
    # Later roles alone use the saved overrides.
    cluster.site(*SOURCE, "--tags", "ray_cluster,vllm_serve").assert_unchanged()
    cluster.site("--tags", "vllm_patch", "--extra-vars", "vllm_patch_state=absent").assert_ok()
    assert {name: digests(host) for name, host in nodes.items()} == before
    cluster.site(*RANKS).assert_ok()
    assert completion(head, tokens=64) == answer

"""A build of vLLM as a layer of a container image, served by two hosts: a real engine, pip and vLLM, without GPU.

The image is a small Debian with a copy of the published runtime's environment.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import root_file_system
from api_client import completion
from live_cluster import Cluster, extra
from stored_builds import PATCHES, stamps
from testinfra.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

TAG, UNIT = "lab.example/vllm-published:1", "gb10-vllm"
VERSION = "import importlib.metadata; print(importlib.metadata.version('vllm'))"
IMAGE_ID = f"podman image inspect --format '{{{{.Id}}}}' {TAG}"


@pytest.fixture(scope="module")
def runtime(cluster: Cluster, head: Host) -> str:
    """Return the environment of the published wheel."""
    cluster.site(*extra(vllm_build_enabled=False)).assert_ok()
    return str(head.check_output("readlink /opt/gb10/runtime/current"))


@pytest.fixture(scope="module")
def image(
    cluster: Cluster, nodes: dict[str, Host], head: Host, runtime: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """Configure the engine on all nodes and import the image on the head. Returns its tag."""
    tar = root_file_system.debian(
        cluster, tmp_path_factory.mktemp("image"), "image-vllm", root_file_system.VLLM_PACKAGES
    )
    head.backend.client.open_sftp().put(str(tar), "/var/tmp/image.tar")
    root = "/opt/image"
    head.check_output(f"mkdir --parents {root}{runtime} && tar --extract --file=/var/tmp/image.tar --directory={root}")
    head.check_output(f"cp --archive {runtime}/. {root}{runtime}")
    with root_file_system.podman(nodes):
        head.check_output(
            f"tar --create --file=/opt/image.tar --directory={root} . && podman import --quiet /opt/image.tar {TAG}"
        )
        head.check_output(f"rm --recursive {root} /opt/image.tar /var/tmp/image.tar")
        yield TAG


def test_containers_serve_the_build(
    cluster: Cluster, nodes: dict[str, Host], head: Host, image: str, runtime: str
) -> None:
    text = completion(head)
    before = head.check_output(IMAGE_ID)
    more = {
        "gb10_distributed_executor_backend": "mp",
        "vllm_runtime_image_python": f"{runtime}/bin/python",
        "vllm_runtime_image_build_args": ["--runtime=/usr/local/bin/crun-in-a-lab"],
    }
    arguments = extra(**root_file_system.in_image(image, runtime, **more))
    first = cluster.site(*arguments).assert_ok()
    assert "Build the image" in first.changed_tasks()
    assert completion(head) == text, "the same model in another runtime"
    # The tests of the build can leave another one, which has one patch more.
    ((name, stamp),) = ((name, stamp) for name, stamp in stamps(head).items() if stamp["patches"] == PATCHES)
    for host in nodes.values():
        assert host.check_output(f'podman exec {UNIT} {runtime}/bin/python -c "{VERSION}"').startswith(stamp["version"])
        assert host.check_output(
            f"podman exec {UNIT} sh -c 'ls {runtime}/lib/python3*/site-packages/vllm/spinloop*.so'"
        ), name
    # The image below the layer is unchanged, and the ranks of both nodes run the same image.
    assert head.check_output(IMAGE_ID) == before
    assert len({host.check_output(f"podman inspect --format '{{{{.Image}}}}' {UNIT}") for host in nodes.values()}) == 1
    cluster.site(*arguments).assert_unchanged()


def test_back_to_the_environment_of_the_build(cluster: Cluster, nodes: dict[str, Host], head: Host) -> None:
    cluster.site().assert_ok()
    assert completion(head)
    assert [host.check_output("podman ps --all --quiet") for host in nodes.values()] == [""] * len(nodes)

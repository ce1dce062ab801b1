"""The attack of the ranks' variables on root: systemd runs the role's units with the real clients of Podman and Docker.

A recipe may not set these variables. An inventory may, so no check stands before them. The rank gets them all. Root's
Python must not load a library through OPENSSL_CONF, an engine's client must not run a program of CONTAINERS_CONF, and
neither may send a secret to the host in DOCKER_HOST. vLLM is a script, and Docker's daemon is a program that records
the client's requests.
"""

from __future__ import annotations

import io
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import root_file_system
from cluster_nodes import cluster_plan, spark
from live_cluster import Cluster
from packed import packed
from rendered_units import units as units_of
from repository import read
from root_file_system import put
from testinfra.host import Host
from waiting import wait_until

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths, systemd
from ansible_collections.gb10.cluster.plugins.module_utils.launch import argv as launch_argv
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load

pytestmark = pytest.mark.disruptive

UNIT, TAG, SOCKET = "gb10-vllm", "lab.example/rank:1", "/run/docker.sock"
#: The planted files, and where each leaves a mark: the ID of the user that ran it, a program's name, or the bytes that
#: a listener received.
PLANTED, MARKS = "/srv/planted", "/run/planted"
SEEN, SENT = "/var/lib/gb10/seen", f"{MARKS}/create.json"
ATTACK = {
    "OPENSSL_CONF": f"{PLANTED}/openssl.cnf",
    "LD_PRELOAD": f"{PLANTED}/x.so",
    "CONTAINERS_CONF": f"{PLANTED}/containers.conf",
    "CONTAINER_HOST": "tcp://127.0.0.1:2375",
    "DOCKER_HOST": "tcp://127.0.0.1:2375",
    "DOCKER_CONFIG": PLANTED,
}
#: Values on which the readers of such files differ: systemd, a shell, Docker and Podman.
TRICKY = {
    "LAB_A": " \"quoted\" \\ $HOME `id` \\n # 'x' ",
    "LAB_B": '"a b"',
    "LAB_C": "",
    "LAB_D": '{"a": "b\\"c"}',
    "LAB_E": "'x'",
    "LAB_F": "\u00e9\u2028",
}
SECRETS = {"HF_TOKEN": 'hf "secret" \\'}
API = {"VLLM_API_KEY": "the-key-of-the-api"}
EXPECTED = {**ATTACK, **TRICKY, **SECRETS, **API}
LIBRARY = f"""
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void planted(void) {{
  char path[64];
  snprintf(path, sizeof path, "{MARKS}/uid-%d", getuid());
  close(open(path, O_CREAT | O_WRONLY, 0644));
}}
"""
OPENSSL = f"""
openssl_conf = init
[init]
providers = list
[list]
planted = module
[module]
module = {PLANTED}/x.so
activate = 1
"""
CONTAINERS = f"""
[containers]
keyring = false
[engine]
conmon_path = ["{PLANTED}/conmon"]
"""
CONMON = f"#!/bin/sh\ntouch {MARKS}/conmon\nexit 1\n"
RANK = f"#!/bin/sh\nenv -0 >{SEEN}.part\nmv {SEEN}.part {SEEN}\nexec sleep 300\n"
#: A listener on TCP, which nobody may reach, and Docker's daemon on its socket, which only stores the container that it
#: should create.
LISTENERS = f"""
import http.server, json, os, socketserver, threading

class Handler(http.server.BaseHTTPRequestHandler):
    def answer(self, status, document):
        text = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Api-Version", "1.41")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.answer(200, {{"ApiVersion": "1.41", "Os": "linux", "Arch": "amd64", "Version": "20.10"}})

    do_HEAD = do_GET

    def do_DELETE(self):
        self.answer(404, {{"message": "No such container"}})

    def do_POST(self):
        text = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if "/containers/create" in self.path:
            with open("{SENT}.part", "wb") as file:
                file.write(text)
            os.rename("{SENT}.part", "{SENT}")
        self.answer(500, {{"message": "this daemon only records"}})

    def address_string(self):
        return "client"

class Elsewhere(socketserver.BaseRequestHandler):
    def handle(self):
        with open("{MARKS}/sent", "ab") as file:
            file.write(self.request.recv(4096))

class Daemon(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    pass

socketserver.TCPServer.allow_reuse_address = True
threading.Thread(target=socketserver.TCPServer(("127.0.0.1", 2375), Elsewhere).serve_forever, daemon=True).start()
Daemon("{SOCKET}", Handler).serve_forever()
"""


def docker_client(cluster: Cluster, folder: Path) -> bytes:
    """Return Debian's program `docker`. It is downloaded once and kept with the lab's other downloads."""
    suite, components = cluster.variable("lab_suite", "bookworm"), cluster.variable("lab_components", ["main"])
    kept = Path(cluster.variable("lab_cache_dir", Path.home() / ".cache/gb10-lab")) / f"docker-client-{suite}"
    if not kept.exists():
        tar = folder / "docker.tar"
        options = ["--variant=extract", f"--components={','.join(components)}", "--include=docker.io"]
        subprocess.run(["mmdebstrap", "--quiet", *options, suite, str(tar)], check=True)
        with tarfile.open(tar) as archive:
            found = archive.extractfile("./usr/bin/docker")
            assert found
            (folder / "docker").write_bytes(found.read())
        shutil.move(folder / "docker", kept)
    return kept.read_bytes()


@pytest.fixture(scope="module")
def host(cluster: Cluster, head: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Host]:
    """Prepare the node: the planted files and listeners, the image, and the roles' files besides units."""
    head.check_output(f"mkdir -p {MARKS} {PLANTED} && useradd --system --create-home --home-dir /var/lib/gb10 gb10")
    put(head, f"{PLANTED}/x.c", LIBRARY)
    head.check_output(f"gcc -shared -fPIC -o {PLANTED}/x.so {PLANTED}/x.c")
    for name, text, mode in (
        ("openssl.cnf", OPENSSL, "644"),
        ("containers.conf", CONTAINERS, "644"),
        ("conmon", CONMON, "755"),
    ):
        put(head, f"{PLANTED}/{name}", text, mode)
    folder = tmp_path_factory.mktemp("image")
    put(head, "/usr/bin/docker", docker_client(cluster, folder), "755")
    tar = root_file_system.debian(cluster, folder, "image")
    with tarfile.open(tar, "a") as archive:
        entry = tarfile.TarInfo("./usr/bin/vllm")
        entry.size, entry.mode = len(RANK), 0o755
        archive.addfile(entry, io.BytesIO(RANK.encode()))
    root_file_system.import_image(head, tar, TAG)
    put(head, paths.program("gates"), packed("gates"))
    put(head, "/usr/local/lib/gb10-rank.py", read("plugins/module_utils/launch/io_rank.py"))
    gates = {
        "node": "spark1",
        "seconds": 5,
        "drop_caches": False,
        "links": [],
        "gpu": False,
        "libraries": [],
        "memory": 0,
        "peers": {UNIT: []},
    }
    put(head, paths.GATES_SETTINGS, json.dumps(gates))
    put(head, paths.RANK_ENVIRONMENT, systemd.environment_file({**ATTACK, **TRICKY}))
    put(head, paths.SECRET_ENVIRONMENT, systemd.environment_file(SECRETS), "600")
    put(head, paths.API_KEY[1], systemd.environment_file(API), "600")
    put(head, f"{PLANTED}/listeners.py", LISTENERS)
    head.check_output(f"systemd-run --quiet --unit=planted python3 {PLANTED}/listeners.py")
    yield head
    head.run(
        f"systemctl stop {UNIT} planted; systemctl reset-failed; podman image rm --force {TAG}; userdel --remove gb10"
    )
    files = [
        PLANTED,
        MARKS,
        SOCKET,
        "/usr/bin/docker",
        paths.program("gates"),
        paths.GATES_SETTINGS,
        "/usr/local/lib/gb10-rank.py",
    ]
    files += [paths.RANK_ENVIRONMENT, paths.SECRET_ENVIRONMENT, paths.API_KEY[1], f"{paths.UNIT_FOLDER}/{UNIT}.service"]
    head.check_output(f"rm -rf {' '.join(files)} && systemctl daemon-reload")


VARIANTS: dict[str, dict[str, Any]] = {
    "native": {},
    "podman": {"gb10_runtime": "container", "gb10_container_engine": "podman"},
    "docker": {"gb10_runtime": "container", "gb10_container_engine": "docker"},
}


@pytest.fixture(scope="module")
def units(host: Host) -> dict[str, str]:
    """Return the unit of vLLM in each variant, and put the native runtime's vLLM on the node."""
    owner = host.check_output("id --user gb10") + ":" + host.check_output("id --group gb10")
    image = json.loads(host.check_output(f"podman image inspect {TAG}"))[0]["Id"]
    plans = {}
    for name, given in VARIANTS.items():
        inside = (
            {
                **given,
                "gb10_container_image": f"sha256:{image}",
                "gb10_container_args": list(root_file_system.RESTRICTED) if name == "podman" else [],
            }
            if given
            else {}
        )
        node = spark(
            1,
            "head",
            gb10_distributed_executor_backend="mp",
            gb10_model="owner/model",
            gb10_extra_env={**ATTACK, **TRICKY},
            **inside,
        )
        node["observed"] = {**node["observed"], "model": None, "infiniband": False}
        plan, problems = cluster_plan([{**node, "secrets": {"names": list(SECRETS), "problems": []}}])
        assert problems == []
        (planned,) = plan["nodes"]
        planned["state"] = {**planned["state"], "service_user": owner}
        # A simulated host has no GPU.
        plans[name] = {
            **plan,
            "node": planned,
            "head": {**plan["head"], "address": "127.0.0.1"},
            "stack": {**plan["stack"], "device": "cpu"},
        }
        host.check_output(
            f"mkdir -p {' '.join(mount['source'] for mount in launch_argv.mounts(load.plan(plans[name]), UNIT))}"
        )
    put(host, f"{plans['native']['runtime']['path']}/bin/vllm", RANK, "755")
    return {name: units_of(plan)[UNIT] for name, plan in plans.items()}


def marks(host: Host) -> set[str]:
    return set(host.check_output(f"ls {MARKS}").split()) - {"create.json"}


def environments(host: Host) -> dict[int, set[str]]:
    """Return the names of the variables of each process of the unit, by its user, and of the engine's processes."""
    found: dict[int, set[str]] = {}
    listed = host.check_output(
        f"ps -eo pid=,uid=,args= | grep -E '{UNIT}|gb10-rank' | grep -v grep | tr -s ' ' | sed 's/^ //' | cut "
        "-d' ' -f1,2"
    )
    for line in listed.splitlines():
        pid, uid = line.split()
        text = host.run(f"tr '\\0' '\\n' </proc/{pid}/environ").stdout
        found.setdefault(int(uid), set()).update(entry.partition("=")[0] for entry in text.splitlines())
    return found


def test_a_recipe_with_these_variables_is_refused(cluster: Cluster, host: Host, tmp_path: Path) -> None:
    recipe = {"recipe_version": "1", "container": "owner/image:1", "command": "vllm serve owner/model", "env": ATTACK}
    (tmp_path / "attack.yaml").write_text(json.dumps(recipe), encoding="utf-8")
    host.check_output(f"rm -rf {MARKS}/*")
    done = cluster.site(
        "--extra-vars",
        json.dumps({"gb10_recipe": str(tmp_path / "attack.yaml"), "gb10_model": "", "gb10_runtime": "native"}),
    ).assert_failed()
    assert done.changed_tasks() == set()
    assert [name for name in ATTACK if f"gb10_recipe.env.{name}: " not in done.output] == [], done.output
    assert marks(host) == set()


def test_the_planted_files_and_listeners_work(host: Host) -> None:
    """Otherwise the next tests would pass whatever root's processes get."""
    host.run(f"OPENSSL_CONF={PLANTED}/openssl.cnf python3 -I -B -c 'import hashlib; hashlib.sha256()'")
    host.run(f"CONTAINERS_CONF={PLANTED}/containers.conf podman run --rm --network=host --cgroups=disabled {TAG} true")
    host.run(f"DOCKER_HOST={ATTACK['DOCKER_HOST']} timeout 5 docker rm --force {UNIT}")
    assert marks(host) == {"uid-0", "conmon", "sent"}


@pytest.mark.parametrize("name", VARIANTS)
def test_the_rank_gets_the_variables_and_root_gets_none(host: Host, units: dict[str, str], name: str) -> None:
    host.check_output(f"rm -rf {MARKS}/* {SEEN}")
    put(host, f"{paths.UNIT_FOLDER}/{UNIT}.service", units[name])
    host.check_output(f"systemctl daemon-reload && systemctl start --no-block {UNIT}")
    result = SENT if name == "docker" else SEEN
    try:
        with suppress(AssertionError):
            wait_until(lambda: host.file(result).exists, 30, pause=0.5)
        assert marks(host) == set()
        log = host.check_output(f"journalctl --unit={UNIT} --lines=40 --output=cat")
        assert host.file(result).exists, log
        if name == "docker":
            pairs = (entry.partition("=") for entry in json.loads(host.file(SENT).content_string)["Env"])
            seen = {variable: value for variable, equals, value in pairs if equals}
        else:
            seen = dict(entry.split("=", 1) for entry in host.file(SEEN).content.decode().split("\0") if entry)
            of_root = environments(host).pop(0, set())
            assert not of_root & set(EXPECTED)
            assert bool(of_root) == (name == "podman"), "the client of the engine, and the program that starts it"
        assert {variable: seen.get(variable) for variable in EXPECTED} == EXPECTED
        shown = host.check_output("ps -eo args")
        assert not [value for value in (*SECRETS.values(), *API.values()) if value in shown or value in units[name]]
    finally:
        host.run(f"systemctl stop {UNIT}; systemctl reset-failed {UNIT}")
    # Nothing was executed as root and nothing was sent, also by ExecStopPost.
    assert marks(host) == set()

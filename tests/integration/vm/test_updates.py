"""An update of two virtual machines to a newer kernel of the distribution: kernels without a module and without a boot,
a node that stays off, runs killed at five places, and the way back.

A stand-in answers in place of vLLM (tests/support/stand_in_vllm.py), which takes too long without hardware acceleration.
Namespace hosts update with vLLM itself (tests/integration/lifecycle/test_os_update.py). The kernel's package is reduced
to the modules that run, and comes from a repository on this machine.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import factory_hosts
import pytest
from api_client import answers_again
from kernel_repository import META, Kernel, publish
from live_cluster import Cluster, dpkg_locked, extra
from run_playbook import Run, run_and_kill
from stand_in_wheels import serving
from testinfra.host import Host
from waiting import wait_until

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

#: The package that is newer than the machines' kernel, and the module that its first version lacks.
NEWER, LACKING = "linux-image-6.12-amd64", "rdma_rxe"
BOOT, FILE, PAUSE = 600, "/etc/default/grub.d/zz-gb10-os-update.cfg", "/etc/apt/apt.conf.d/zz-gb10-os-update"
#: fwupd without the internet, and with the device of its own tests, which has an update.
FIRMWARE = """\
printf '[fwupd]\\nTestDevices=true\\n' >/etc/fwupd/fwupd.conf
sed -i s/Enabled=true/Enabled=false/ /etc/fwupd/remotes.d/lvfs.conf
systemctl restart fwupd
"""


@dataclass(frozen=True)
class Site:
    """Both machines, their repository, their kernel and the newer one."""

    cluster: Cluster
    repository: Path
    kernel: Kernel
    former: str
    modules: frozenset[str]
    #: The last comparison of golden answers.
    golden: Path
    text: str = ""

    def publish(self, version: str, without: str = "", *, boots: bool = True) -> None:
        publish(self.repository, self.kernel, version, self.modules - {without}, boots=boots)

    def update(self, **variables: object) -> Run:
        return self.cluster.play("os_update", **{"os_update_confirmed": True, **variables})

    def kill(self, at_task: str, after: float = 0, **variables: object) -> None:
        given = extra(**{"os_update_confirmed": True, **variables})
        run_and_kill("playbooks/os_update.yml", [*self.cluster.arguments, *given], at_task, after)

    def ask(self, command: str) -> list[str]:
        """Return the outputs of a command on spark1 and spark2, over new connections."""
        return [self.booted(name).check_output(command) for name in ("spark1", "spark2")]

    def booted(self, name: str) -> Host:
        return self.cluster.booted(name, BOOT)

    def console(self, name: str) -> str:
        path = Path(self.cluster.variable("lab_dir", ""), "nodes", name, "console.log")
        return path.read_text(encoding="utf-8", errors="replace")

    def running(self) -> list[str]:
        return self.ask("uname -r")

    def boots(self) -> list[str]:
        return self.ask("cat /proc/sys/kernel/random/boot_id")

    def disk(self, action: str) -> None:
        """Keep both disks, or give them back; both machines start again."""
        names = ("spark1", "spark2")
        self.cluster.power("off", *names)
        for name in names:
            power = Path(self.cluster.variable("lab_dir", ""), "power.sh")
            subprocess.run([power, action, name, "before-the-update"], check=True)
        self.cluster.power("on", *names)
        for name in names:
            self.booted(name)


@pytest.fixture(scope="module")
def site(cluster: Cluster, head: Host, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("repository")
    repository = folder / "public"
    repository.mkdir()
    kernel = Kernel.extracted(NEWER, cluster.variable("lab_suite", "bookworm"), folder)
    golden = folder / "golden.json"
    given = extra(golden_directory=str(folder / "golden"), golden_result_file=str(golden), **serving(folder))
    serves = replace(cluster, arguments=[*cluster.arguments, *given])
    found = Site(serves, repository, kernel, head.check_output("uname -r"), frozenset(), golden)
    address = cluster.variable("ansible_host", "").rpartition(".")[0] + ".1"
    with factory_hosts.index(repository, address) as url:
        found.disk("save")
        line = f"deb [trusted=yes] {url} ./"
        found.ask(f"sh -c 'rm -f /etc/apt/sources.list.d/* && echo \"{line}\" >/etc/apt/sources.list'")
        for name in ("spark1", "spark2"):
            found.booted(name).check_output("sh -c %s", FIRMWARE)
        serves.site().assert_ok()
        again = found.booted("spark1")
        # With those that a serving node has loaded, such as the firewall's.
        loaded = frozenset(line.split()[0] for line in again.check_output("cat /proc/modules").splitlines())
        assert {LACKING, "nf_tables"} <= loaded
        found = replace(found, modules=loaded, text=answers_again(again))
        found.publish("1", without=LACKING)
        yield found
        found.disk("restore")


def test_a_held_lock_stops_the_preview_of_one_node(site: Site) -> None:
    site.ask("apt-get -qq update")
    with dpkg_locked(site.booted("spark2")):
        done = site.cluster.play("os_update", "--check")
    done.assert_failed(
        f"kernel: {site.kernel.package} 1, {META}",
        f"way back: the kernel {site.former} stays the default",
        "1. nodes[1]: spark2: python3 (PID ",
        "holds dpkg's lock",
    )
    assert "nodes[0]" not in done.output


def test_a_kernel_without_a_module_is_refused_before_the_reboot(site: Site) -> None:
    boots = site.boots()
    site.kill("Keep the running kernel as the default of the boot loader", 2)
    site.kill("Upgrade all packages of the node", 6)
    done = site.update().assert_failed()
    assert f"the new kernel {site.kernel.release} lacks modules that run now: {LACKING}" in done.output, done.output
    assert "nodes[0]: spark1" in done.output and "nodes[1]: spark2" in done.output, done.output
    assert site.boots() == boots
    assert site.ask(f"dpkg-query --show --showformat='${{Version}}' {site.kernel.package}") == ["1", "1"]
    # A power cut now starts the former kernel.
    assert not any(re.search("next_entry=.", each) for each in site.ask("grub-editenv list"))
    assert all(f"# former: {site.former}\n" in each for each in site.ask(f"cat {FILE}"))
    assert all('Enable "0"' in each for each in site.ask(f"cat {PAUSE}"))


def test_a_kernel_that_hangs_needs_one_power_cycle(site: Site) -> None:
    site.publish("2", boots=False)
    boots, seen = site.boots(), len(site.console("spark1"))
    done = site.update(os_update_boot_timeout=120).assert_failed("spark1 does not answer 120 s after its reboot")
    assert "Switch it off and on: the former kernel then starts" in done.output
    console = site.console("spark1")[seen:]
    assert f"Loading Linux {site.kernel.release}" in console and console.count("Loading Linux") == 1, console[-2000:]
    # The other node waits for the first one, also in the next run.
    site.update().assert_failed("spark1")
    site.cluster.power("off", "spark1")
    site.cluster.power("on", "spark1")
    assert site.running() == [site.former, site.former]
    assert site.boots()[1] == boots[1]
    done = site.update().assert_failed(
        f"nodes[0]: spark1 runs {site.former}, because {site.kernel.release} did not start"
    )
    assert "-e os_update_again=true" in re.sub(r"\s+", " ", done.output)
    assert "nodes[1]" not in done.output, done.output


def test_a_killed_update_goes_on_to_its_end(site: Site) -> None:
    site.publish("3")
    again, boots = {"os_update_again": True}, site.boots()
    site.kill("Boot the new kernel once, and wait for the node", 20, os_update_firmware=True, **again)
    wait_until(lambda: site.booted("spark1").check_output("uname -r") == site.kernel.release, BOOT)
    site.golden.unlink()
    site.kill("Verify hardware and network of the nodes after the reboot", **again)
    assert site.boots()[1] == boots[1], "the second node booted before the first one was verified"
    site.kill("Make the new kernel the default of the boot loader", 2, **again)
    site.update().assert_ok()
    assert site.running() == [site.kernel.release] * 2
    assert site.ask(f"ls {FILE} {PAUSE} 2>/dev/null || true") == ["", ""]
    assert all('"Version" : "1.2.4"' in each for each in site.ask("fwupdmgr get-history --json"))
    # Its devices for RDMA came with it, and it is the default without a choice.
    assert all("rocep1s0f1" in each for each in site.ask("ls /sys/class/infiniband"))
    assert all("panic=" not in each for each in site.ask("grep vmlinuz /boot/grub/grub.cfg"))
    # The record is from before the update.
    found = json.loads(site.golden.read_text())
    assert found["answers"] == found["equal"] > 0 and found["record_date"], found
    assert answers_again(site.booted("spark1")) == site.text
    site.update().assert_unchanged("next: nothing to do")


def test_an_option_of_the_command_line_comes_without_another_update(site: Site) -> None:
    """The kernel that runs already may need it, as DGX OS 7.6's does."""
    option, boots = {"os_update_kernel_options": "kho=off"}, site.boots()
    done = site.update(os_update_confirmed=False, **option).assert_ok()
    assert done.output.count("GRUB gets kho=off for all kernels") == 2, done.output
    assert site.boots() == boots
    site.kill("Add the options of the kernel's command line", 2, **option)
    site.update(**option).assert_ok()
    assert all(" kho=off" in each for each in site.ask("cat /proc/cmdline"))
    assert not set(site.boots()) & set(boots)
    assert site.ask(f"ls {FILE} {PAUSE} 2>/dev/null || true") == ["", ""]
    assert all(
        line.count("kho=off") == 1
        for each in site.ask("grep vmlinuz /boot/grub/grub.cfg")
        for line in each.splitlines()
    )
    assert answers_again(site.booted("spark1")) == site.text
    site.update(**option).assert_unchanged("next: nothing to do")

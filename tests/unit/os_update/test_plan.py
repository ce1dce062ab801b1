"""The next step of an update, what objects to it, and the way back."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest
from decisions import decide
from repository import ROOT
from snapshot import assert_recorded

from ansible_collections.gb10.cluster.plugins.module_utils.os_update import parse, plan, report
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import (
    COMPARED,
    Boot,
    Entry,
    Firmware,
    Kernel,
    Level,
    Package,
    State,
    Trial,
)
from ansible_collections.gb10.cluster.plugins.module_utils.plan import load

OLD, NEW, RULED = "6.17.0-1031-nvidia", "6.17.0-1032-nvidia", "7.0.0-1019-nvidia"
ENTRIES = (Entry("simple", NEW), Entry(f"menu>{NEW}", NEW), Entry(f"menu>{OLD}", OLD))
DRIVER = Package("nvidia-driver-580-open", "580.159.03", "580.173.02")
MODULES, MODULES_NEW = (f"linux-modules-nvidia-580-open-{kernel}" for kernel in (OLD, NEW))
PENDING = (Package(f"linux-image-{NEW}", "", "1"), Package(MODULES_NEW, "", "1"), Package("bash", "1", "2"))
CURRENT = State(
    OLD,
    Level("7.5.0", "OTA2.2", "OTA2607", 3.3),
    packages=(),
    kernels=(Kernel(OLD),),
    boot=Boot(ENTRIES[2:], OLD, "", True),
    versions={MODULES: "1"},
)
#: The states of a good update, in their order.
BEFORE = replace(CURRENT, packages=PENDING)
BEGUN = replace(BEFORE, trial=Trial(OLD, served=True))
UPGRADED = replace(BEGUN, packages=(), kernels=(Kernel(NEW), Kernel(OLD)), boot=Boot(ENTRIES, OLD, "", True))
CHOSEN = replace(UPGRADED, boot=replace(UPGRADED.boot, once=NEW), trial=Trial(OLD, NEW, True))
BOOTED = replace(UPGRADED, running=NEW, trial=Trial(OLD, NEW, True))
FELL_BACK = replace(BOOTED, running=OLD)


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (CURRENT, "current"),
        (BEFORE, "upgrade"),
        (replace(CURRENT, reboot=("libc6",)), "upgrade"),
        (replace(CURRENT, broken=("libc6",)), "upgrade"),
        (BEGUN, "upgrade"),
        (replace(UPGRADED, broken=("libc6",)), "upgrade"),
        (UPGRADED, "boot"),
        # A run was killed before the reboot: the choice for one boot is not yet used.
        (CHOSEN, "boot"),
        (BOOTED, "verify"),
        # Another update appeared meanwhile: first the checks of this one.
        (replace(BOOTED, packages=PENDING), "verify"),
        (FELL_BACK, "fell back"),
        (replace(FELL_BACK, packages=PENDING), "fell back"),
        # The user removed the kernel that did not start.
        (replace(FELL_BACK, kernels=(Kernel(OLD),)), "verify"),
        (replace(FELL_BACK, kernels=(Kernel(OLD),), packages=PENDING), "upgrade"),
        # An update without a kernel boots the same one.
        (replace(CURRENT, reboot=("libc6",), trial=Trial(OLD)), "boot"),
        (replace(CURRENT, trial=Trial(OLD, OLD)), "verify"),
        (replace(CURRENT, trial=Trial(OLD)), "verify"),
    ],
)
def test_the_next_step(state: State, expected: str) -> None:
    assert plan.stage(state) == expected


def test_an_option_of_the_command_line_alone_is_a_reason_for_an_update() -> None:
    """Also the kernel that runs already may need one: DGX OS 7.6 without other updates."""
    asked = replace(CURRENT, wanted=("kho=off",))
    assert plan.stage(asked) == "upgrade"
    assert "  GRUB gets kho=off for all kernels, and keeps it" in report.announced({"": {"a": asked}})
    added = replace(CURRENT, boot=replace(CURRENT.boot, options=("kho=off",)))
    assert plan.waiting(added) == ["the running kernel lacks kho=off, which the next boot has"]
    # The step that adds it is one of the upgrade's, which a killed run can have begun.
    assert plan.stage(replace(asked, trial=Trial(OLD))) == "boot"
    assert plan.stage(replace(added, trial=Trial(OLD))) == "boot"
    booted = replace(added, options=("kho=off",))
    assert plan.stage(replace(booted, trial=Trial(OLD, OLD))) == "verify"
    assert plan.stage(replace(booted, wanted=("kho=off",))) == "current"


def test_firmware_alone_is_a_reason_for_an_update_if_it_is_asked_for() -> None:
    offered = replace(CURRENT, firmware=(Firmware("UEFI Device Firmware", "1", "2"),))
    asked = replace(offered, with_firmware=True)
    assert (plan.stage(offered), plan.stage(asked)) == ("current", "upgrade")
    assert plan.stage(replace(CURRENT, with_firmware=True)) == "current"
    # A run that was killed before its installation; then the installation, which asks for a reboot.
    assert plan.stage(replace(asked, trial=Trial(OLD))) == "upgrade"
    assert plan.stage(replace(asked, firmware=(), trial=Trial(OLD), reboot=("fwupd",))) == "boot"
    # After the reboot another one may be offered: first the checks of this one.
    assert plan.stage(replace(asked, trial=Trial(OLD, OLD))) == "verify"
    assert any("(installed, without a way back)" in line for line in plan.about(asked))


def test_a_repeated_run_waits_for_the_upgrade_that_a_killed_one_began() -> None:
    """Its own unit holds the lock then, also when all packages have their new versions."""
    own = replace(BEGUN, holder="apt-get (PID 1236, gb10-os-upgrade.service)")
    assert (plan.stage(own), plan.objections(own)) == ("upgrade", [])
    assert plan.stage(replace(UPGRADED, holder=own.holder)) == "upgrade"
    other = replace(BEGUN, holder="apt-get (PID 1236, apt-daily-upgrade.service)")
    assert [each.found for each in plan.objections(other)] == [f"{other.holder} holds dpkg's lock"]
    assert "  dpkg's lock is held by apt-get (PID 1236, gb10-os-upgrade.service)" in report.announced({"": {"a": own}})


def test_a_kernel_that_did_not_start_is_tried_again_after_an_upgrade() -> None:
    assert plan.stage(FELL_BACK, again=True) == "boot"
    assert plan.stage(replace(FELL_BACK, packages=PENDING), again=True) == "upgrade"


def test_the_file_of_the_boot_loader_is_the_memory_of_the_update() -> None:
    text = plan.boot_file(replace(BEFORE, serves=True))
    assert f'\nGRUB_DEFAULT="menu>{OLD}"\n' in text and text.endswith('panic=30"\n')
    assert parse.trial(text) == Trial(OLD, "", True)
    assert parse.trial(plan.boot_file(UPGRADED, NEW)) == Trial(OLD, NEW, True)
    assert parse.trial("") is None
    with pytest.raises(ValueError, match=r"GRUB has no entry .* Fix: run update-grub"):
        plan.boot_file(replace(CURRENT, boot=Boot()))


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (BEFORE, []),
        (replace(BEFORE, holder="apt (PID 7)"), ["apt (PID 7) holds dpkg's lock"]),
        (replace(BEFORE, held=("nvidia-driver-580-open",)), ["held packages: nvidia-driver-580-open"]),
        (replace(BEFORE, boot=Boot()), ["grub.cfg has no entry of a kernel"]),
        (replace(BEFORE, boot=replace(CURRENT.boot, forgets=False)), ["GRUB cannot write to /boot"]),
        (
            replace(BEFORE, packages=(Package("linux-image-7.0.0-1019-nvidia", "", "1"),), versions={}),
            ["the new kernel 7.0.0-1019-nvidia fails on a Spark without kho=off (rule kernel-7-0-0-1019)"],
        ),
        (
            replace(
                BEFORE,
                packages=(Package("linux-image-7.0.0-1019-nvidia", "", "1"),),
                versions={},
                boot=replace(BEFORE.boot, options=("kho=off",)),
            ),
            [],
        ),
        # The update adds it.
        (
            replace(
                BEFORE,
                packages=(Package("linux-image-7.0.0-1019-nvidia", "", "1"),),
                versions={},
                wanted=("kho=off",),
            ),
            [],
        ),
        (replace(BEFORE, packages=PENDING[:1]), [f"no package has NVIDIA's modules for the new kernel {NEW}"]),
        # Without NVIDIA's packages for the running kernel, such as with DKMS, nothing is known about a new one.
        (replace(BEFORE, packages=PENDING[:1], versions={}), []),
        (replace(BEFORE, boot=replace(CURRENT.boot, default=NEW)), [f"GRUB starts {NEW}, not the newest kernel {OLD}"]),
        # The update keeps the former kernel as the default until the new one was tried.
        (replace(BEGUN, kernels=UPGRADED.kernels), []),
        # unattended-upgrades installed it, and the next boot would start it.
        (
            replace(CURRENT, kernels=(Kernel(RULED), Kernel(OLD)), boot=replace(CURRENT.boot, default=RULED)),
            [f"the new kernel {RULED} fails on a Spark", f"no package has NVIDIA's modules for the new kernel {RULED}"],
        ),
        (
            replace(BEFORE, packages=(*PENDING, Package("docker-ce", "28", ""), Package("infiniband-diags", "50", ""))),
            ["the upgrade removes docker-ce"],
        ),
        # Another branch of the driver comes, and an older kernel goes.
        (
            replace(
                BEFORE,
                packages=(
                    *PENDING,
                    Package("nvidia-driver-580-open", "1", ""),
                    Package("nvidia-driver-595-open", "", "595.1-1"),
                    Package("linux-image-6.17.0-1014-nvidia", "1", ""),
                ),
            ),
            [],
        ),
        (
            replace(BEFORE, packages=(replace(DRIVER, candidate="590.1-1"),)),
            ["the driver nvidia-driver-580-open 590.1-1 (rule driver-590)"],
        ),
    ],
)
def test_what_objects_to_an_update(state: State, expected: list[str]) -> None:
    found = [each.found for each in plan.objections(state)]
    assert len(found) == len(expected)
    assert all(text.startswith(start) for text, start in zip(found, expected, strict=True)), found


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (Kernel(NEW), ""),
        (Kernel(NEW, ("mlx5_ib",)), f"the new kernel {NEW} lacks modules that run now: mlx5_ib"),
        (Kernel(NEW, None), f"the modules of {NEW} cannot be read"),
    ],
)
def test_a_kernel_without_modules_is_not_booted(kernel: Kernel, expected: str) -> None:
    found = plan.next_boot(replace(UPGRADED, kernels=(kernel, Kernel(OLD))))
    assert [each.found for each in found] == ([expected] if expected else [])
    assert "fails on a Spark" in plan.next_boot(replace(UPGRADED, kernels=(Kernel(RULED), Kernel(OLD))))[0].found


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (BEFORE, ""),
        (replace(BEFORE, packages=(*PENDING, DRIVER)), "the driver changes, and its modules for the running kernel"),
        (replace(BEFORE, packages=(*PENDING, DRIVER, Package(MODULES, "1", "2"))), ""),
        (replace(BEFORE, packages=(*PENDING, Package(MODULES, "1", ""))), f"the upgrade removes {MODULES}"),
        (replace(BEFORE, kernels=()), f"the running kernel {OLD} is not in /boot"),
        # Each kernel changes its metapackages, and the driver stays. Other tools of NVIDIA are no driver.
        (
            replace(
                BEFORE,
                packages=(
                    *PENDING,
                    Package("linux-modules-nvidia-580-open-nvidia-hwe-24.04", "6.17.0-1031.31+1", "6.17.0-1032.32"),
                    Package("linux-modules-nvidia-fs-nvidia-hwe-24.04", "6.17.0-1031.31+1", "6.17.0-1032.32"),
                    Package("nvidia-container-toolkit", "1.18.0-1", "1.18.1-1"),
                    Package("nvidia-driver-580-open", "580.159.03-0ubuntu1", "580.159.03-0ubuntu2"),
                ),
            ),
            "",
        ),
    ],
)
def test_the_way_back(state: State, expected: str) -> None:
    why = plan.way_back(state)
    assert why.startswith(expected) and bool(why) == bool(expected)


def test_all_reasons_are_reported_together() -> None:
    states = {
        "spark-1": replace(BEFORE, holder="apt (PID 7)", packages=(*PENDING, DRIVER)),
        "spark-2": FELL_BACK,
        "spark-3": replace(UPGRADED, kernels=(Kernel(NEW, ("mlx5_ib",)), Kernel(OLD))),
    }
    found = [str(problem) for problem in report.refused(states, without_way_back=False, again=False)]
    assert [text.split(" ")[0] for text in found] == ["nodes[0]:", "nodes[1]:", "nodes[2]:", "nodes[0]:"], found
    assert len(report.refused(states, without_way_back=True, again=True)) == 2


#: Two nodes that differ: in their release, their pending kernel, a held package, and the way back. A rule objects.
TOLD = {
    "spark-1": replace(
        CURRENT,
        level=Level("7.5.0", "OTA2.2", "OTA2607", 3.3),
        packages=(
            Package("bash", "5.2.21-2ubuntu4", "5.2.21-2ubuntu5"),
            Package(f"linux-image-{NEW}", "", "6.17.0-1032.32"),
            Package("linux-firmware", "20240318", "20240319"),
            Package(MODULES, "580.159.03-1", "580.173.02-1"),
            Package(MODULES_NEW, "", "580.173.02-1"),
            replace(DRIVER, installed="580.159.03-0ubuntu1", candidate="580.173.02-0ubuntu1"),
        ),
        updaters=("unattended-upgrades", "DGX Dashboard"),
        reboot=("libc6",),
        firmware=(Firmware("UEFI Device Firmware", "5.36_0ACUM018", "5.38_0ACUM020"),),
        versions={MODULES: "580.159.03-1", "nvidia-driver-580-open": "580.159.03-0ubuntu1"},
    ),
    "spark-2": replace(
        CURRENT,
        level=Level("7.4.0", "OTA2.1", "OTA2607"),
        packages=(
            Package(f"linux-image-{RULED}", "", "7.0.0-1019.19"),
            replace(DRIVER, installed="580.142-0ubuntu1", candidate="580.178.04-0ubuntu1"),
        ),
        held=("nvidia-driver-580-open",),
        holder="unattended-upgr (PID 4711, apt-daily-upgrade.service)",
        firmware=None,
        versions={MODULES: "580.142-1", "nvidia-driver-580-open": "580.142-0ubuntu1"},
    ),
}


def test_the_announcement_of_two_nodes_that_differ_is_the_one_of_the_page() -> None:
    lines = [f"  {line}" for line in report.announced({"": TOLD})]
    assert max(map(len, lines)) <= 100
    page = ROOT / "docs" / "updates.md"
    before, begin, rest = page.read_text(encoding="utf-8").partition("<!-- announced -->\n")
    _former, end, after = rest.partition("<!-- end -->")
    assert begin and end
    shown = "".join(f"{line}\n" for line in ["```text", *lines, "```"])
    assert_recorded(page, f"{before}{begin}{shown}{end}{after}")


def test_a_package_and_its_versions_stay_on_one_line() -> None:
    long = Package(f"linux-modules-nvidia-580-open-{OLD}", f"1.{'0' * 40}", f"2.{'0' * 40}")
    lines = report.announced({"": {"a": replace(CURRENT, packages=(long, replace(DRIVER, installed="580.1")))}})
    assert f"{long.name} {long.installed} -> {long.candidate}," in [line.strip() for line in lines]


def test_each_node_shows_what_objects_to_its_next_step() -> None:
    """Also a kernel that fell back, or that lacks modules, after the upgrade."""
    states = {
        "a": FELL_BACK,
        "b": replace(UPGRADED, kernels=(Kernel(NEW, ("mlx5_ib",)), Kernel(OLD))),
        "c": replace(BOOTED, packages=()),
    }
    lines = report.announced({"": states})
    assert [line.strip() for line in lines if "objects" in line] == [
        f"objects: a runs {OLD}, because {NEW} did not start",
        f"objects: the new kernel {NEW} lacks modules that run now: mlx5_ib",
    ]
    assert "objects: a runs" not in "\n".join(report.announced({"": states}, again=True))
    assert lines[lines.index("c:") :] == [
        "c:",
        "  DGX OS 7.5.0, OTA2.2, 3.3 % of it missing, OTA2607 is newer",
        f"  kernel {NEW}, next boot {OLD}",
        "  all packages are up to date",
        f"  an update is under way, and {OLD} stays the default",
        "  next: go on: verify the new kernel",
    ]


def test_nodes_without_dgx_os_do_not_differ_in_its_release() -> None:
    plain = replace(CURRENT, level=Level())
    assert not [line for line in report.announced({"": {"a": plain, "b": plain}}) if line.startswith("differs")]


def test_the_newest_kernel_boots_next_if_grubs_default_is_unknown() -> None:
    lines = plan.about(replace(UPGRADED, boot=Boot(), kernels=(Kernel(NEW, ("mlx5_ib",)), Kernel(OLD))))
    assert lines[1] == f"kernel {OLD}, next boot {NEW}, which lacks mlx5_ib"
    assert plan.about(replace(CURRENT, boot=Boot(), kernels=()))[1] == f"kernel {OLD}"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (BOOTED, []),
        # Without an update under way, new packages may have appeared.
        (BEFORE, []),
        (BEGUN, [f"a: {report._NEXT['upgrade']}"]),
        (replace(BOOTED, broken=("vendor-tool",)), [f"a: {report._NEXT['upgrade']}"]),
        # It booted the former kernel, and the choice for one boot is left.
        (CHOSEN, [f"a: {report._NEXT['boot']}"]),
        (FELL_BACK, []),
    ],
)
def test_a_step_of_the_update_has_to_be_reached(state: State, expected: list[str]) -> None:
    assert [
        problem.found for problem in report.unexpected({"a": state}, ["current", "verify"], again=False)
    ] == expected


def test_removed_and_unfinished_packages_are_announced() -> None:
    gone = [Package("python3.12-dev", "3.12.3-1", ""), Package(f"linux-image-{OLD}", "1", "")]
    lines = plan.about(replace(BEFORE, packages=gone, broken=("vendor-tool",)))
    assert lines[-3:] == [
        f"kernel: linux-image-{OLD} removed",
        "removed: python3.12-dev",
        "not finished by dpkg: vendor-tool",
    ]


def test_a_driver_waits_for_a_reboot() -> None:
    assert plan.driver_waits(replace(CURRENT, reboot=("libc6", "nvidia-kernel-common-580")))
    assert not plan.driver_waits(replace(CURRENT, reboot=("libc6",))) and not plan.driver_waits(CURRENT)


def test_a_former_kernel_of_one_node_is_no_difference() -> None:
    """Its packages stay until apt removes them."""
    older = "linux-image-6.17.0-1014-nvidia"
    more = replace(CURRENT, versions={**CURRENT.versions, older: "1"}, kernels=(Kernel(OLD), Kernel(older[12:])))
    assert plan.differ({"a": CURRENT, "b": more}) == []
    newer = replace(CURRENT, versions={**CURRENT.versions, f"linux-image-{NEW}": "1"}, kernels=(Kernel(NEW),))
    assert plan.differ({"a": more, "b": newer}) == [f"linux-image-{NEW}: none on a, 1 on b"]


def test_the_system_of_the_nodes_in_one_line() -> None:
    held = replace(BOOTED, packages=None, reboot=("libc6",), holder="apt (PID 7)", updaters=("DGX Dashboard",))
    (line,) = plan.of_nodes({"a": held, "b": held, "c": ""})
    assert line == (
        f"a, b: DGX OS 7.5.0, OTA2.2, 3.3 % of it missing, OTA2607 is newer; kernel {NEW}, next boot {OLD}; updates by "
        f"itself: DGX Dashboard; a reboot is pending for libc6; dpkg's lock is held by apt (PID 7); an update is under "
        f"way, and {OLD} stays the default"
    )
    assert plan.warnings(held) == ["an update of the system is under way. Fix: run playbooks/os_update.yml again"]


def test_the_nodes_of_a_unit_must_be_equal() -> None:
    states = {"a": BEFORE, "b": replace(BEFORE, packages=PENDING[:1])}
    assert [problem.found for problem in report.unequal(states, again=False)] == [f"{MODULES_NEW}: 1 on a, none on b"]
    assert report.unequal({"a": BEFORE, "b": BEFORE}, again=False) == []
    # Nothing is left to boot.
    assert report.unequal({"a": CURRENT, "b": replace(CURRENT, versions={MODULES: "2"})}, again=False) == []
    # The kernel that did not start is booted once more.
    fell_back = {"a": FELL_BACK, "b": replace(FELL_BACK, versions={MODULES: "2"})}
    assert report.unequal(fell_back, again=False) == [] != report.unequal(fell_back, again=True)
    # A package that only one of them has to upgrade.
    later = replace(BEFORE, packages=(*PENDING, Package("libnvidia-compute-580", "580.159.03-1", "580.173.02-1")))
    assert report.unequal({"a": BEFORE, "b": later}, again=False) == []


def test_packages_that_apt_leaves_behind_are_no_difference() -> None:
    """The driver's firmware has its version in its name, and the former kernel may be gone from /boot."""
    left = {"nvidia-firmware-580-580.126.09": "580.126.09-1", "linux-modules-extra-6.14.0-1013-nvidia": "1"}
    more = replace(UPGRADED, versions={**UPGRADED.versions, f"linux-image-{NEW}": "1"})
    shown = {name: each for name, each in left.items() if name.startswith(COMPARED)}
    assert len(shown) == 1
    assert report.unequal({"a": more, "b": replace(more, versions={**more.versions, **shown})}, again=False) == []


def test_a_state_crosses_into_ansible_and_back() -> None:
    assert load.load(State, asdict(BOOTED), "state") == replace(BOOTED)


def test_what_clients_of_a_gateway_notice_is_announced() -> None:
    rows = [("shared", "chat", False), ("shared", "code", True), ("own", "code", True), ("shared", "old", False)]
    models = [{"name": name, "cluster": cluster, "healthy": healthy} for name, cluster, healthy in rows]
    gateways = {"spark-2": {"problem": "", "models": models}, "front": {"problem": "refused", "models": []}}
    units = {"chat": {"spark-1": BEFORE}, "code": {"spark-2": BEFORE}, "old": {"spark-3": BOOTED}}
    lines = [line for line in report.announced(units, gateways=gateways) if not line.startswith(("spark-", " "))]
    unknown = "the gateway of front does not report its models: refused"
    assert lines == [
        "cluster chat, first:",
        "shared at the gateway of spark-2: from code meanwhile",
        unknown,
        "cluster code, then:",
        "the gateway of spark-2 and all of its models are away while spark-2 boots",
        "shared at the gateway of spark-2: away until code serves again",
        "own at the gateway of spark-2: away until code serves again",
        unknown,
        "cluster old, then:",
    ]


@pytest.mark.parametrize(("names", "headed"), [([""], 0), (["chat"], 0), (["chat", "code"], 2)])
def test_several_clusters_have_their_names_as_headings(names: list[str], headed: int) -> None:
    lines = report.announced({name: {f"spark-{name}": CURRENT} for name in names})
    assert [line.startswith("cluster ") for line in lines].count(True) == headed


def step(states: dict[str, State], **inputs: Any) -> dict[str, Any]:
    """Return the result of the step os_update_plan for the nodes of one model."""
    hosts = {name: {"found": {"state": asdict(state)}} for name, state in states.items()}
    return decide("os_update_plan", {"units": {"": list(states)}, "results": "found", **inputs}, {}, hosts)[0]


def test_the_step_refuses_an_update_or_returns_the_reasons() -> None:
    states = {"a": BEFORE, "b": replace(BEFORE, held=("bash",))}
    refused, told = step(states), step(states, refuse=False)
    assert refused["failed"] and refused["msg"] == told["problem"] and "held packages: bash" in told["problem"]


@pytest.mark.parametrize(
    ("states", "begins", "served"),
    [
        ({"a": replace(BEFORE, serves=True), "b": BEFORE}, True, True),
        # The trial remembers what the update stopped.
        ({"a": BEFORE, "b": BEGUN}, False, True),
        ({"a": replace(CURRENT, serves=True)}, False, False),
    ],
)
def test_the_step_says_what_comes_next(states: dict[str, State], begins: bool, served: bool) -> None:
    found = step(states)
    assert found["stages"] == {name: plan.stage(state) for name, state in states.items()}
    assert (found["begins"], found["served"], found["problem"]) == (begins, served, "")

"""Output of apt, GRUB and NVIDIA's checker as types."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ansible_collections.gb10.cluster.plugins.module_utils.os_update import parse
from ansible_collections.gb10.cluster.plugins.module_utils.os_update.schema import Boot, Entry, Firmware, Level, Package

#: From apt 2.6 on Debian 12, and lines of the same form with the packages of DGX OS 7.5.
SIMULATED = """\
Reading package lists...
Inst linux-image-6.17.0-1032-nvidia (6.17.0-1032.32 NVIDIA:noble [arm64])
Inst linux-modules-nvidia-580-open-6.17.0-1032-nvidia (6.17.0-1032.32 NVIDIA:noble [arm64])
Inst libgcrypt20-dev [1.10.1-3] (1.10.1-3+deb12u1 Debian:12.15/oldstable, Debian-Security:12/oldstable-security [amd64]) []
Inst nvidia-driver-580-open [580.159.03-0ubuntu1] (580.173.02-0ubuntu1 NVIDIA:noble [arm64])
Remv gnome-software [46.0-1]
Conf linux-image-6.17.0-1032-nvidia (6.17.0-1032.32 NVIDIA:noble [arm64])
"""


def test_the_changes_of_an_upgrade() -> None:
    found = parse.packages(SIMULATED)
    assert found == (
        Package("gnome-software", "46.0-1", ""),
        Package("libgcrypt20-dev", "1.10.1-3", "1.10.1-3+deb12u1"),
        Package("linux-image-6.17.0-1032-nvidia", "", "6.17.0-1032.32"),
        Package("linux-modules-nvidia-580-open-6.17.0-1032-nvidia", "", "6.17.0-1032.32"),
        Package("nvidia-driver-580-open", "580.159.03-0ubuntu1", "580.173.02-0ubuntu1"),
    )
    assert [each.kind for each in found] == ["", "", "kernel", "driver", "driver"]


CONFIG = """\
if [ "${next_entry}" ] ; then
   set default="${next_entry}"
   set next_entry=
   save_env next_entry
else
   set default="%s"
fi
function gfxmode {
	set gfxpayload="${1}"
}
menuentry 'Debian GNU/Linux' --class debian --class os $menuentry_id_option 'gnulinux-simple-1234' {
	insmod ext2
	if [ x$feature_platform_search_hint = xy ]; then
	search --no-floppy --fs-uuid --set=root 1234
	fi
	linux	/boot/vmlinuz-6.1.0-56-amd64 root=UUID=1234 ro quiet
	initrd	/boot/initrd.img-6.1.0-56-amd64
}
submenu 'Advanced options for Debian GNU/Linux' $menuentry_id_option 'gnulinux-advanced-1234' {
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-56-amd64' --class os $menuentry_id_option 'gnulinux-6.1.0-56-amd64-advanced-1234' {
		linux	/boot/vmlinuz-6.1.0-56-amd64 root=UUID=1234 ro quiet
	}
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-56-amd64 (recovery mode)' --class os $menuentry_id_option 'gnulinux-6.1.0-56-amd64-recovery-1234' {
		linux	/boot/vmlinuz-6.1.0-56-amd64 root=UUID=1234 ro single
	}
	menuentry 'Debian GNU/Linux, with Linux 6.1.0-50-amd64' --class os $menuentry_id_option 'gnulinux-6.1.0-50-amd64-advanced-1234' {
		linux	/boot/vmlinuz-6.1.0-50-amd64 root=UUID=1234 ro quiet
	}
}
menuentry 'UEFI Firmware Settings' $menuentry_id_option 'uefi-firmware' {
	fwsetup
}
"""
FORMER = "gnulinux-advanced-1234>gnulinux-6.1.0-50-amd64-advanced-1234"


@pytest.mark.parametrize(
    ("default", "environment", "expected"),
    [
        ("0", "", ("6.1.0-56-amd64", "")),
        ("1", "", ("6.1.0-56-amd64", "")),
        ("1>2", "", ("6.1.0-50-amd64", "")),
        (FORMER, "next_entry=gnulinux-simple-1234\n", ("6.1.0-50-amd64", "6.1.0-56-amd64")),
        ("${saved_entry}", f"saved_entry={FORMER}\n", ("6.1.0-50-amd64", "")),
        ("${saved_entry}", "", ("6.1.0-56-amd64", "")),
        ("Debian GNU/Linux, with Linux 6.1.0-50-amd64", "", ("", "")),
        ("2", "", ("", "")),
    ],
)
def test_the_kernels_of_the_boot_loader(default: str, environment: str, expected: tuple[str, str]) -> None:
    found = parse.boot(CONFIG % default, environment, True)
    assert (found.default, found.once) == expected
    assert found.next == (expected[1] or expected[0])


def test_the_options_that_a_new_kernel_gets_are_those_of_all_entries() -> None:
    assert parse.options(f"root=UUID=1 ro kho=off quiet kho=on kho kho={'x' * 99}") == ("kho=off", "kho=on", "kho")
    lines = (CONFIG % "0").splitlines()
    given = [line + (" ro kho=off panic=30" if "vmlinuz" in line else "") for line in lines]
    assert parse.boot("\n".join(given), "", True).options == ("kho=off",)
    first = next(index for index, line in enumerate(given) if "vmlinuz" in line)
    given[first] = lines[first]
    assert parse.boot("\n".join(given), "", True).options == (), "the first entry lacks it"


def test_the_entries_have_no_recovery() -> None:
    assert parse.boot(CONFIG % "0", "", False) == Boot(
        (
            Entry("gnulinux-simple-1234", "6.1.0-56-amd64"),
            Entry("gnulinux-advanced-1234>gnulinux-6.1.0-56-amd64-advanced-1234", "6.1.0-56-amd64"),
            Entry(FORMER, "6.1.0-50-amd64"),
        ),
        "6.1.0-56-amd64",
        "",
        False,
    )


def test_the_level_of_dgx_os() -> None:
    recipes = [
        '{"metadata": {"name": "OTA2607", "releaseDate": "2026-07-15T00:00:00.000Z"}}',
        '{"metadata": {"name": "OTA2.2", "releaseDate": "2026-03-31T00:00:00.000Z"}}',
        '{"metadata": {"name": "OTA2610-ebeta", "releaseDate": "2026-10-01T00:00:00.000Z"}}',
        '{"metadata": {"name": "\\u001b[2J", "releaseDate": "2027-01-01T00:00:00.000Z"}}',
        "no JSON",
    ]
    release = 'DGX_SWBUILD_VERSION="7.2.3"\nDGX_OTA_VERSION="7.5.0"\n'
    assert parse.level(release, '{"detected_ota": "OTA2.2", "torn": 3.3}', recipes) == Level(
        "7.5.0", "OTA2.2", "OTA2607", 3.3
    )
    assert parse.level("", '{"error": "needs root"}', []) == Level()
    # Each update appends its version. A factory Spark has none.
    assert parse.level(f'{release}DGX_OTA_DATE="x"\n\nDGX_OTA_VERSION="7.6.0"\n', "", []).stamp == "7.6.0"
    assert parse.level('DGX_SWBUILD_VERSION="7.2.3"\n', "", []).stamp == "7.2.3"


@pytest.mark.parametrize(
    ("torn", "expected"), [(0, 0.0), (100, 100.0), (101, None), (1000, None), (-1, None), ("3", None), (None, None)]
)
def test_the_missing_part_of_a_release_is_a_percentage(torn: Any, expected: float | None) -> None:
    assert parse.level("", json.dumps({"torn": torn}), []).torn == expected


@pytest.mark.parametrize(
    ("versions", "loaded", "expected"),
    [
        ({"nvidia-driver-580-open": "580.173.02-0ubuntu1"}, "580.159.03\n", ("nvidia-driver-580-open",)),
        ({"nvidia-driver-580-open": "1:580.159.03-1", "linux-image-6.17.0-1031-nvidia": "1"}, "580.159.03\n", ()),
        # Packages without a driver, and a host whose module is not loaded.
        ({"nvidia-driver-assistant": "0.22-1", "nvidia-driver-pinning-580": "580-1"}, "580.159.03\n", ()),
        ({"nvidia-driver-580-open": "580.173.02-0ubuntu1"}, "", ()),
    ],
)
def test_a_driver_of_another_version_than_the_loaded_one(
    versions: dict[str, str], loaded: str, expected: tuple[str, ...]
) -> None:
    assert parse.changed_driver(versions, loaded) == expected


def test_the_kernels_and_their_modules() -> None:
    names = ["vmlinuz-6.17.0-1008-nvidia", "vmlinuz", "vmlinuz.old", "vmlinuz-6.17.0-1031-nvidia", "initrd.img-7.0.0"]
    assert parse.releases([*names, "vmlinuz-6.17.0-1031-nvidia.efi.signed", "vmlinuz-;reboot"]) == [
        "6.17.0-1031-nvidia",
        "6.17.0-1008-nvidia",
    ]
    needed = parse.wanted("nvidia_uvm 1 0 - Live 0x0\nmlx5_ib 1 0 - Live 0x0\next4 1 0 - Live 0x0\nib_uverbs 1 0\n")
    assert needed == ("nvidia_uvm", "mlx5_ib", "ib_uverbs")
    assert parse.wanted("nf_tables 1 0 - Live 0x0\next4 1 0 - Live 0x0\n") == ("nf_tables",), "the firewall"
    dependencies = (
        "kernel/nvidia-580/nvidia-uvm.ko.zst: kernel/x.ko\nkernel/drivers/not-mlx5_ib.ko: kernel/mlx5_ib.ko\n"
    )
    assert parse.missing(needed, dependencies, "kernel/drivers/infiniband/core/ib_uverbs.ko\n") == ("mlx5_ib",)


@pytest.mark.parametrize(
    ("settings", "dashboard", "configuration", "expected"),
    [
        ('APT::Periodic::Unattended-Upgrade "1";\n', True, "", ("unattended-upgrades", "DGX Dashboard")),
        ('APT::Periodic::Unattended-Upgrade "1";\nAPT::Periodic::Enable "0";\n', False, "", ()),
        ('APT::Periodic::Unattended-Upgrade "0";\n', True, '{"update": {"enabled": false}}', ()),
        ("", True, '{"update": {"enabled": true}}', ("DGX Dashboard",)),
        ("", True, "damaged", ("DGX Dashboard",)),
    ],
)
def test_what_updates_a_node_by_itself(
    settings: str, dashboard: bool, configuration: str, expected: tuple[str, ...]
) -> None:
    assert parse.updaters(settings, True, dashboard, configuration) == expected


def test_unfinished_packages() -> None:
    audit = (
        "The following packages are only half configured, probably due to problems\nconfiguring them:\n"
        " linux-image-6.1.0-56-amd64 Linux 6.1 for 64-bit PCs (signed)\n libc6:amd64          GNU C Library\n"
    )
    assert parse.broken(audit) == ("linux-image-6.1.0-56-amd64", "libc6")


#: Of fwupd 2.0.20 (Debian 12) with its own test device, abridged.
OFFERED: dict[str, Any] = {
    "Name": "Integrated Webcam\N{TRADE MARK SIGN}",
    "DeviceId": "08d460be0f1f9f128413f816022a6439e0078018",
    "Plugin": "test",
    "Flags": ["updatable", "supported", "can-verify"],
    "Version": "1.2.2",
    "VersionFormat": "triplet",
    "Releases": [
        {"RemoteId": "fwupd-tests", "Version": "1.2.4", "Flags": ["trusted-payload", "is-upgrade"]},
        {"RemoteId": "fwupd-tests", "Version": "1.2.3", "Flags": ["trusted-payload", "is-upgrade"]},
    ],
}


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ({"Devices": []}, ()),
        ({"Devices": [OFFERED]}, (Firmware("Integrated Webcam\N{TRADE MARK SIGN}", "1.2.2", "1.2.4"),)),
        ({"Devices": [{**OFFERED, "Name": "a\x1b[2Jb" * 30}]}, (Firmware(("a[2Jb" * 30)[:60], "1.2.2", "1.2.4"),)),
        ({"Devices": [{**OFFERED, "Flags": ["supported"]}, {**OFFERED, "Flags": 7}]}, ()),
        ({"Devices": [{**OFFERED, "Version": "$(reboot)"}, {**OFFERED, "Releases": []}, {**OFFERED, "Releases": [1]}, 1]}, ()),
        ({"Error": {"Code": 1, "Message": "Failed to connect to daemon"}}, None),
    ],
)  # fmt: skip
def test_the_firmware_that_fwupd_offers(answer: dict[str, Any], expected: tuple[Firmware, ...] | None) -> None:
    assert parse.firmware(json.dumps(answer)) == expected
    assert parse.firmware("no JSON") is None

"""The collector: its inputs, its output, and a whole run with a simulated GPU."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from decisions import decide
from run_module import program
from stand_in_modules import changed
from typed_plans import fact, typed

from ansible_collections.gb10.cluster.plugins.module_utils.common import paths
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import io_metrics, metrics, parse
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring import plan as monitoring_plan
from ansible_collections.gb10.cluster.plugins.module_utils.monitoring.schema import (
    Counts,
    MonitoringSettings,
    Sample,
    Site,
)
from ansible_collections.gb10.cluster.plugins.module_utils.node import gpu

#: The values of a GB10 with driver 580.178.04: it has no power limit and no memory, which are not queried.
GB10 = "0, 580.178.04, 62, 38.51, 2405, 96, 0x0000000000000004\n"
SETTINGS = MonitoringSettings(True, ["192.168.1.5"], 9100, "restart", 3)
SITE = Site("sparks", {"spark1": "192.168.1.11", "spark2": "192.168.1.12"}, "2026-11-26")


def values(samples: Any) -> dict[str, float]:
    """Return sample -> value, with its labels in the key."""
    return {" ".join([sample.name, *sample.labels.values()]): sample.value for sample in samples}


def test_a_gpu_has_its_values_in_base_units() -> None:
    found = values(metrics.of_gpus(gpu.gpus(GB10)))
    assert found == {
        "gb10_gpu_readable": 1,
        "gb10_gpu_temperature_celsius 0": 62,
        "gb10_gpu_power_watts 0": 38.51,
        "gb10_gpu_sm_clock_hertz 0": 2405e6,
        "gb10_gpu_utilization_ratio 0": 0.96,
        **{f"gb10_gpu_clock_reason 0 {reason}": bit == 0x4 for bit, reason in metrics.REASONS.items()},
        "gb10_version_info driver 580.178.04": 1,
    }


@pytest.mark.parametrize("missing", ["[N/A]", "[Not Supported]", "-1", "1e5", ""])
def test_a_value_that_the_gpu_does_not_report_is_left_out(missing: str) -> None:
    found = values(metrics.of_gpus(gpu.gpus(GB10.replace("62", missing).replace("0x0000000000000004", missing))))
    assert "gb10_gpu_temperature_celsius 0" not in found
    assert not [name for name in found if "reason" in name]
    assert found["gb10_gpu_power_watts 0"] == 38.51


@pytest.mark.parametrize("output", ["", "Unable to determine the device handle for GPU0: Unknown Error\n"])
def test_without_an_answer_the_gpu_is_unreadable(output: str) -> None:
    assert values(metrics.of_gpus(gpu.gpus(output))) == {"gb10_gpu_readable": 0}


XID = "4,{},91,-;NVRM: Xid (PCI:000f:01:00): 79, GPU has fallen off the bus.\n SUBSYSTEM=pci\n"
MEMORY = "3,{},92,-;NVRM: nvAssertOkFailedNoLog: Assertion failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051)\n"
PROGRAM = "12,{},93,-;NVRM: Xid (written by a program)\n"


def test_errors_of_the_kernel_are_counted_once() -> None:
    records = [XID.format(5), MEMORY.format(6), PROGRAM.format(7), "6,8,94,-;usb 1-1: new device\n", "broken"]
    first = parse.counted(Counts(), "boot", records)
    assert first == Counts("boot", 8, {"xid": 1, "no_memory": 1})
    second = parse.counted(first, "boot", [*records, XID.format(9)])
    assert second == Counts("boot", 9, {"xid": 2, "no_memory": 1})
    assert parse.counted(second, "next boot", [XID.format(1)]) == Counts("next boot", 1, {"xid": 1, "no_memory": 0})


def test_each_record_of_the_log_is_read_until_none_is_left() -> None:
    # Like the kernel's log, one read returns one record, and the read after the last one would block.
    reader, writer = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with reader, writer:
        reader.setblocking(False)
        for number in range(3):
            writer.send(XID.format(number).encode())
        assert list(io_metrics.records(reader.fileno())) == [XID.format(number) for number in range(3)]


def test_records_that_the_kernel_has_replaced_are_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[Any] = [b"a", BrokenPipeError(), b"b", BlockingIOError()]

    def kernel(*_arguments: int) -> bytes:
        if isinstance(result := results.pop(0), OSError):
            raise result
        return bytes(result)

    monkeypatch.setattr(io_metrics, "os", changed(os, read=kernel))
    assert list(io_metrics.records(0)) == ["a", "b"]


UNITS = (
    "Id=gb10-vllm.service\nLoadState=loaded\nActiveState=failed\nNRestarts=4\n\n"
    "Id=gb10-ray.service\nLoadState=loaded\nActiveState=active\nNRestarts=0\n\n"
    "Id=gb10-memory-guard.service\nLoadState=not-found\nActiveState=inactive\nNRestarts=0\n"
)


def test_a_number_of_restarts_that_systemd_does_not_know_is_none() -> None:
    assert parse.units("Id=a.service\nLoadState=loaded\nActiveState=active\nNRestarts=[not set]\n") == [
        ("a.service", "active", 0)
    ]


def test_only_services_that_exist_have_a_state() -> None:
    assert values(metrics.of_units(parse.units(UNITS))) == {
        "gb10_service_active gb10-vllm.service": 0,
        "gb10_service_failed gb10-vllm.service": 1,
        "gb10_service_restarts_total gb10-vllm.service": 4,
        "gb10_service_active gb10-ray.service": 1,
        "gb10_service_failed gb10-ray.service": 0,
        "gb10_service_restarts_total gb10-ray.service": 0,
    }


HEAD = {"mode": "restart", "head": True, "armed": True, "stalled": 12, "restarts": 1, "witnesses": []}


@pytest.mark.parametrize(("limit", "expected"), [(3, {"gb10_watchdog_restarts_limit": 3}), (0, {})])
def test_the_head_has_the_watchdogs_state(limit: int, expected: dict[str, float]) -> None:
    state = {"gb10_watchdog_armed": 1, "gb10_watchdog_stalled_seconds": 12, "gb10_watchdog_restarts": 1}
    assert values(metrics.of_watchdog(HEAD, limit)) == state | expected
    assert [
        (each.name, each.value, each.labels)
        for each in metrics.of_watchdog({"head": True, "start": {"ranks": 3}, "rests": True}, 0)
    ] == [("gb10_resting", 1, {}), ("gb10_start_seconds", 3, {"part": "ranks"})]
    assert values(metrics.of_watchdog({"mode": "restart", "head": False, "witnesses": []}, limit)) == {}
    assert values(metrics.of_watchdog({}, limit)) == {}


def test_labels_are_escaped() -> None:
    (sample,) = metrics.version("vllm", 'a"b\\c\nd')
    assert metrics.text([sample]).splitlines()[-1] == ('gb10_version_info{component="vllm",version="a\\"b\\\\c\\nd"} 1')


@pytest.mark.skipif(not shutil.which("promtool"), reason="promtool is missing: apt-get install prometheus")
def test_prometheus_accepts_every_metric() -> None:
    samples = [Sample(name, 1.5, {"gpu": "0"}) for name in metrics.METRICS]
    given = metrics.text(samples)
    done = subprocess.run(["promtool", "check", "metrics"], input=given, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


@pytest.mark.parametrize(("mode", "limit"), [("auto", 3), ("restart", 3), ("report", 0), ("off", 0)])
def test_a_watchdog_that_restarts_has_a_limit(mode: str, limit: int) -> None:
    given = replace(SETTINGS, vllm_watchdog_mode=mode)
    found = json.loads(monitoring_plan.of_node(typed({}), given, SITE)[paths.MONITORING_SETTINGS])
    assert found["watchdog_restarts"] == limit


def test_clients_that_are_no_addresses_reach_no_unit() -> None:
    settings = {**asdict(SETTINGS), "monitoring_clients": ["192.168.1.5", "any\nExecStartPre=/bin/id"]}
    given = {"cluster": "a", "golden_result": "/none"}
    found, _calls = decide("monitoring_plan", given, fact({}), variables={"gb10_inputs": {"settings": settings}})
    assert found["failed"] and found["msg"].startswith("monitoring_clients[1]: ") and "files" not in found


def test_the_settings_are_of_the_plan() -> None:
    plan = typed({"api_tls": {"digest": "ab", "until": "2027-01-01"}})
    found = json.loads(monitoring_plan.of_node(plan, SETTINGS, SITE)[paths.MONITORING_SETTINGS])
    assert set(found["links"].values()) == {plan.mtu}
    assert set(found["links"]) == {rail.interface for rail in plan.node.rails}
    assert (found["certificate_expiry"], found["golden"], found["watchdog_restarts"]) == (1798761600, 1795651200, 3)
    assert (found["environment"], found["image"]) == (plan.runtime.link, "")
    worker = plan.at(plan.nodes[1])
    other = json.loads(monitoring_plan.of_node(worker, SETTINGS, SITE)[paths.MONITORING_SETTINGS])
    assert (other["certificate_expiry"], other["golden"]) == (0, 0)


def test_a_container_has_an_image_in_place_of_an_environment() -> None:
    plan = typed({"runtime": {"kind": "podman", "image": "vllm/vllm-openai:v0.33.0"}})
    found = json.loads(monitoring_plan.of_node(plan, SETTINGS, SITE)[paths.MONITORING_SETTINGS])
    assert (found["environment"], found["image"]) == ("", "vllm/vllm-openai:v0.33.0")
    assert values(io_metrics._versions(found))["gb10_version_info vllm vllm/vllm-openai:v0.33.0"] == 1


def test_the_exporter_answers_only_the_clients() -> None:
    unit = monitoring_plan.of_node(typed({}), SETTINGS, SITE)[f"{paths.UNIT_FOLDER}/{paths.EXPORTER_UNIT}"]
    assert "IPAddressDeny=any\nIPAddressAllow=localhost 192.168.1.5\n" in unit


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is missing")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for path, text in monitoring_plan.of_node(typed({}), SETTINGS, SITE).items():
        if path.startswith(paths.UNIT_FOLDER):
            # systemd looks for the program.
            changed = text.replace("/usr/bin/prometheus-node-exporter", "/bin/true")
            (tmp_path / Path(path).name).write_text(changed, encoding="utf-8")
    units = [str(path) for path in tmp_path.iterdir()]
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert [line for line in done.stderr.splitlines() if str(tmp_path) in line or "gb10-" in line] == []


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a host with a GPU and the settings of a plan, without systemctl and a kernel's log."""
    program(tmp_path / "bin", "nvidia-smi", f"printf '%s' '{GB10}'")
    (tmp_path / "environment/lib/python3.12/site-packages/vllm-0.33.0.dist-info").mkdir(parents=True)
    (tmp_path / "credentials").mkdir()
    (tmp_path / "credentials/watchdog.json").write_text(json.dumps(HEAD), encoding="utf-8")
    plan = typed({"api_tls": {"digest": "ab", "until": "2027-01-01"}})
    settings = json.loads(monitoring_plan.of_node(plan, SETTINGS, SITE)[paths.MONITORING_SETTINGS])
    settings["environment"] = f"{tmp_path}/environment"
    (tmp_path / "settings").write_text(json.dumps(settings), encoding="utf-8")
    monkeypatch.setenv("PATH", f"{tmp_path}/bin")
    monkeypatch.setenv("RUNTIME_DIRECTORY", str(tmp_path))
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path / "credentials"))
    monkeypatch.setattr(io_metrics, "_KERNEL_LOG", str(tmp_path / "kmsg"))
    monkeypatch.setattr("sys.argv", ["metrics", str(tmp_path / "settings")])
    return tmp_path


def test_a_run_writes_one_file_and_survives_what_is_missing(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert io_metrics.main() == 0
    text = (host / "gb10.prom").read_text(encoding="utf-8")
    assert 'gb10_gpu_temperature_celsius{gpu="0"} 62\n' in text
    assert 'gb10_version_info{component="vllm",version="0.33.0"} 1\n' in text
    assert "gb10_watchdog_stalled_seconds 12\n" in text
    assert 'gb10_link_planned_mtu_bytes{device="enp1s0f1np1"} 9000\n' in text
    assert "gb10_certificate_expiry_timestamp_seconds 1798761600\n" in text
    assert "gb10_golden_timestamp_seconds 1795651200\n" in text
    assert "gb10_service_active" not in text
    assert "gb10_kernel_errors_total" not in text
    assert (host / "gb10.prom").stat().st_mode & 0o777 == 0o644
    shown = capsys.readouterr().out
    assert "systemctl: " in shown
    assert "kmsg" in shown


def test_errors_of_the_kernel_are_counted_over_several_runs(host: Path) -> None:
    for number, count in ((1, 1), (1, 1), (2, 2)):
        (host / "kmsg").write_text(XID.format(number), encoding="utf-8")
        assert io_metrics.main() == 0
        assert f'gb10_kernel_errors_total{{kind="xid"}} {count}\n' in (host / "gb10.prom").read_text(encoding="utf-8")
    assert (host / "counts.json").stat().st_mode & 0o777 == 0o600
    (host / "counts.json").write_text("damaged", encoding="utf-8")
    assert io_metrics.main() == 0
    assert 'gb10_kernel_errors_total{kind="xid"} 1\n' in (host / "gb10.prom").read_text(encoding="utf-8")


def test_the_state_of_services_is_that_of_systemctl(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program(host / "bin", "systemctl", f"printf '{UNITS}'".replace("\n", "\\n"))
    assert io_metrics.main() == 0
    assert 'gb10_service_failed{unit="gb10-vllm.service"} 1\n' in (host / "gb10.prom").read_text(encoding="utf-8")
    program(host / "bin", "systemctl", f"printf '{UNITS}'; echo no bus >&2; exit 1".replace("\n", "\\n"))
    assert io_metrics.main() == 0
    assert "gb10_service" not in (host / "gb10.prom").read_text(encoding="utf-8")
    assert "systemctl: no bus" in capsys.readouterr().out


def test_a_run_without_settings_names_them(host: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (host / "settings").unlink()
    assert io_metrics.main() == 1
    assert f"{host}/settings does not exist" in capsys.readouterr().out
    assert not (host / "gb10.prom").exists()


def test_each_bit_of_nvml_is_its_reason() -> None:
    """Source: NVML's nvmlClocksEventReasons."""
    bits = {
        "application_clocks": 1 << 1,
        "sw_power_cap": 1 << 2,
        "hw_slowdown": 1 << 3,
        "sw_thermal_slowdown": 1 << 5,
        "hw_thermal_slowdown": 1 << 6,
        "hw_power_brake": 1 << 7,
    }
    assert list(metrics.REASONS.values()) == list(bits)
    for reason, bit in bits.items():
        found = values(metrics.of_gpus(gpu.gpus(GB10.replace("0x0000000000000004", f"{bit | 1:#018x}"))))
        assert [name for name, value in found.items() if "reason" in name and value] == [
            f"gb10_gpu_clock_reason 0 {reason}"
        ]


def test_a_value_of_zero_is_known_and_each_gpu_has_its_own() -> None:
    found = values(metrics.of_gpus(gpu.gpus(f"{GB10}1, 580.178.04, 0, 0, 0, 0, 0x0\n")))
    zeros = ("temperature_celsius", "power_watts", "sm_clock_hertz", "utilization_ratio")
    assert [found[f"gb10_gpu_{name} 1"] for name in zeros] == [0, 0, 0, 0]
    assert sum(name.startswith("gb10_gpu_clock_reason 1 ") for name in found) == 6
    assert found["gb10_gpu_readable"] == 1 and found["gb10_gpu_temperature_celsius 0"] == 62


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (
            {"head": True, "armed": False, "stalled": 0, "restarts": 0},
            {"armed": 0, "stalled_seconds": 0, "restarts": 0},
        ),
        ({"head": True, "armed": "x", "stalled": None, "restarts": 2.5}, {"restarts": 2.5}),
    ],
)
def test_a_state_of_the_watchdog_may_be_zero_or_unknown(status: dict[str, Any], expected: dict[str, float]) -> None:
    assert values(metrics.of_watchdog(status, 0)) == {
        f"gb10_watchdog_{name}": value for name, value in expected.items()
    }


def test_samples_of_a_metric_are_together_behind_its_type() -> None:
    samples = [
        Sample("gb10_gpu_power_watts", 0.1, {"gpu": "0", "x": "y"}),
        Sample("gb10_gpu_readable", 1795651200),
        Sample("gb10_gpu_power_watts", 38.123456789012345, {"gpu": "1"}),
        *metrics.version("vllm", "v" * 101),
        *metrics.version("kernel", ""),
        *metrics.of_settings({"links": {}, "certificate_expiry": 0, "golden": 5}),
    ]
    assert metrics.text(samples).split("\n") == [
        "# HELP gb10_gpu_power_watts Power of the GPU.",
        "# TYPE gb10_gpu_power_watts gauge",
        'gb10_gpu_power_watts{gpu="0",x="y"} 0.1',
        'gb10_gpu_power_watts{gpu="1"} 38.1234567890123',
        "# HELP gb10_gpu_readable Whether nvidia-smi answered.",
        "# TYPE gb10_gpu_readable gauge",
        "gb10_gpu_readable 1795651200",
        "# HELP gb10_golden_timestamp_seconds Day of the last golden answers.",
        "# TYPE gb10_golden_timestamp_seconds gauge",
        "gb10_golden_timestamp_seconds 5",
        "# HELP gb10_version_info Installed version of a component, always 1.",
        "# TYPE gb10_version_info gauge",
        f'gb10_version_info{{component="vllm",version="{"v" * 100}"}} 1',
        "",
    ]
    assert metrics.text([]) == ""


@pytest.mark.parametrize(
    ("head", "expected"),
    [("0,0", (0, 1)), ("7,1", (1, 1)), ("8,2", (-1, 0)), ("1234567,3", (-1, 0)), (f"4,{10**19}", (-1, 0))],
)
def test_only_the_kernel_itself_reports_errors(head: str, expected: tuple[int, int]) -> None:
    """A facility in the upper bits is that of a program, which can write the same text."""
    found = parse.counted(Counts(), "boot", [XID.replace("4,{}", head)])
    assert (found.last, found.found["xid"]) == expected


def test_the_records_of_a_run_may_come_in_any_order() -> None:
    found = parse.counted(Counts("boot", 3, {"xid": 5}), "boot", [XID.format(number) for number in (9, 4, 3, 2)])
    assert found == Counts("boot", 9, {"xid": 7, "no_memory": 0})


def test_an_endless_log_ends_and_a_record_is_read_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel refuses a buffer that is too small for a record; its own limit are 8 KiB."""
    reads: list[Any] = []
    monkeypatch.setattr(io_metrics, "os", changed(os, read=lambda *given: reads.append(given) or b"\xff"))
    monkeypatch.setattr(io_metrics, "_MOST_RECORDS", 3)
    assert list(io_metrics.records(5)) == ["\ufffd"] * 3
    assert reads == [(5, 8192)] * 3
    monkeypatch.setattr(io_metrics, "os", changed(os, read=lambda *_given: b""))
    assert list(io_metrics.records(5)) == []


def test_a_command_without_an_answer_has_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", f"{program(tmp_path / 'bin', 'fails', 'echo of stdout; exit 3')}:{os.defpath}")
    assert io_metrics._output(["fails"]) == io_metrics._output(["none"]) == io_metrics._output(["echo", "\0"]) == ""
    assert capsys.readouterr().out.startswith("fails: of stdout\nnone: [Errno 2]")
    monkeypatch.setattr(io_metrics, "_SECONDS", 0.01)
    assert io_metrics._output(["sleep", "5"]) == ""
    assert "timed out after 0.01 seconds" in capsys.readouterr().out


def test_an_unknown_file_of_counts_or_a_large_status_counts_as_none(
    host: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = host / "counts.json"
    known = Counts("b", 5, {"xid": 1})
    for text in ("[]", '{"other": 1}', "{", json.dumps(asdict(known)).ljust((1 << 16) + 1)):
        path.write_text(text, encoding="utf-8")
        assert io_metrics._counts(str(path)) == Counts()
    path.write_text(json.dumps(asdict(known)).ljust(1 << 16), encoding="utf-8")
    assert io_metrics._counts(str(path)) == known
    status = host / "credentials/watchdog.json"
    for size, expected in ((1 << 16, {"a": 1}), ((1 << 16) + 1, {})):
        status.write_text('{"a": 1}'.ljust(size), encoding="utf-8")
        assert io_metrics._watchdog() == expected
    assert "is longer than 65536 bytes" in capsys.readouterr().out
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    assert io_metrics._watchdog() == {} and capsys.readouterr().out == "", "a node without a watchdog"


def test_unchanged_counts_are_not_written_again(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (host / "kmsg").write_text(XID.format(1), encoding="utf-8")
    monkeypatch.setattr("sys.argv", ["metrics", str(host / "settings"), str(host)])
    monkeypatch.delenv("RUNTIME_DIRECTORY")
    inodes = set()
    for _run in range(2):
        assert io_metrics.main() == 0
        inodes.add((host / "counts.json").stat().st_ino)
        assert (host / "gb10.prom").exists()
    assert len(inodes) == 1


@pytest.mark.parametrize(
    ("environment", "expected"), [("{host}/environment", "0.33.0"), ("{host}/none", "i"), ("", "i")]
)
def test_the_version_is_the_environments_or_the_image(host: Path, environment: str, expected: str) -> None:
    found = values(io_metrics._versions({"environment": environment.format(host=host), "image": "i"}))
    assert found == {f"gb10_version_info kernel {os.uname().release}": 1, f"gb10_version_info vllm {expected}": 1}


def test_a_day_that_is_none_is_no_time_and_only_ray_has_a_second_port() -> None:
    worker_only = replace(SITE, golden="unknown")
    assert (
        json.loads(monitoring_plan.of_node(typed({}), SETTINGS, worker_only)[paths.MONITORING_SETTINGS])["golden"] == 0
    )
    assert monitoring_plan.ports(typed({}), 9100)[0] == 9100 and len(monitoring_plan.ports(typed({}), 9100)) == 2
    assert monitoring_plan.ports(typed({"executor": "mp"}), 9101) == [9101]

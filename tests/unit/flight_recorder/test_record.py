"""A record: its content, its text for a reader, and the limits of an untrusted one."""

from __future__ import annotations

import pytest
from flight_records import GIB, falling

from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder import messages, parse, record, report
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.schema import Engine, Sample, SampledRail
from ansible_collections.gb10.cluster.plugins.module_utils.flight_recorder.watch import Entry
from ansible_collections.gb10.cluster.plugins.module_utils.node.gpu import Gpu

END = 1764194621.0
XID = "[812.250] NVRM: Xid (PCI:000f:01:00): 79, pid=4711, GPU has fallen off the bus."


def recorded(verdict: str, entries: list[Entry]) -> record.Record:
    return record.parse(record.text("spark2", "spark1", END, verdict, entries))


def test_a_record_tells_what_happened() -> None:
    entries = [*falling(END, [40.0] * 25 + [30.0, 20.0, 10.0, 4.0, 1.0]), Entry(END, messages.KERNEL, XID)]
    entries.append(Entry(END + 12, record.NETCONSOLE, "BUG: soft lockup"))
    entries.append(Entry(END + 300, record.RETURNED, ""))
    assert report.lines(recorded(record.OFF, entries)) == [
        "spark2 fell silent at 2025-11-26 22:03:41 UTC, says spark1: it is off, or frozen with its network",
        "it was heard again after 5 min",
        "last sample, 0.0 s before: 1.0 of 119.0 GiB available, memory pressure 1.5 %, GPU 68 W, GPU 2405 MHz, GPU 62 °C, 2 requests "
        "running",
        "in the last 10 s: memory 40.0 -> 1.0 GiB, power 62 -> 68 W, clock 2405 -> 2405 MHz, temperature 62 -> 62 °C",
        "in the last 60 s: memory 40.0 -> 1.0 GiB, power 38 -> 68 W, clock 2405 -> 2405 MHz, temperature 62 -> 62 °C",
        f"kernel: {XID}",
        "netconsole (not authenticated): BUG: soft lockup",
        "next step: memory ran out (least 1.0 GiB): lower the context (gb10_max_model_len), or raise vllm_serve_memory_floor, so that "
        "the guard acts earlier; the GPU's driver reported Xid 79: look it up in NVIDIA's list of Xid errors; the kernel failed: "
        "compare it with docs/rules.md, and set host_guard_panic: 10, so that it reboots",
    ]


STEPS = {
    "memory": (record.OFF, falling(END, [1.0]), "memory ran out"),
    "refused memory": (
        record.OFF,
        [Entry(END, messages.KERNEL, "NVRM: x: Out of memory [NV_ERR_NO_MEMORY]")],
        "memory ran out",
    ),
    "heat": (record.OFF, falling(END, [40.0], heat=88.0), "the GPU was hot"),
    "adapter": (
        record.FROZEN,
        [
            Entry(
                END,
                messages.KERNEL,
                "pcieport 0002:00:00.0: AER: Multiple Uncorrectable (Fatal) error message received",
            ),
            Entry(END, record.NETCONSOLE, "watchdog: BUG: soft lockup - CPU#3 stuck for 26s!"),
        ],
        "the network adapter failed in hardware",
    ),
    "nothing": (record.OFF, falling(END, [40.0]), "power supply"),
    "power": (record.POWER, falling(END, [40.0]), "power supply"),
    "no sample": (record.FROZEN, [], "power supply"),
    # The host is well, so its values are no reason.
    "cable": (record.CABLE, falling(END, [1.0]), "check the QSFP cable"),
    "recorder": (record.RECORDER, falling(END, [1.0]), "journalctl -u gb10-flight-recorder on spark2"),
}


@pytest.mark.parametrize(("verdict", "entries", "expected"), STEPS.values(), ids=STEPS)
def test_the_next_step_follows_from_the_evidence(verdict: str, entries: list[Entry], expected: str) -> None:
    found = recorded(verdict, entries)
    assert expected in report.steps(found)[0]
    assert expected in report.short(found, END + 7200)
    assert "fell silent 2 h ago" in report.short(found, END + 7200)


def test_a_last_sample_without_values_is_told() -> None:
    assert report.lines(record.Record("a", "b", END, record.OFF, ((END, Sample(END, "a")),)))[1] == (
        "last sample, 0.0 s before: no value"
    )


PROBES = [
    (record.ANSWERS, [], record.RECORDER),
    (record.NOTHING, [record.ANSWERS], record.CABLE),
    (record.NOTHING, [record.NOTHING, record.ANSWERS], record.CABLE),
    (record.NOTHING, [record.NOTHING], record.OFF),
    (record.NOTHING, [record.ACCEPTS], record.FROZEN),
    (record.ACCEPTS, [record.NOTHING], record.FROZEN),
    (record.REFUSES, [], record.FROZEN),
    (record.NOTHING, [], record.UNCLEAR),
    # This host's own network is down.
    (record.UNREACHABLE, [record.UNREACHABLE], record.UNCLEAR),
]


@pytest.mark.parametrize(("fabric", "outside", "expected"), PROBES)
def test_a_pulled_cable_is_told_apart_from_a_silent_host(fabric: str, outside: list[str], expected: str) -> None:
    assert record.verdict(fabric, outside) == expected


def test_a_record_that_is_cut_keeps_its_whole_lines() -> None:
    text = record.text("spark2", "spark1", END, record.OFF, falling(END, [40.0, 30.0, 20.0]))
    head = len(text.partition("\n")[0]) + 1
    for length in range(head, len(text), 97):
        found = record.parse(text[:length])
        assert len(found.samples) == text[:length].count("\n") - 1 or text[:length].endswith("}")
    for length in (0, 1, 20):
        with pytest.raises(ValueError):
            record.parse(text[:length])


@pytest.mark.parametrize(
    "line", ["[]", "{}", '{"kind":1}', "\x00", '{"kind":"sample","time":"x","text":"{}"}', "[" * 500]
)
def test_a_hostile_line_is_left_out(line: str) -> None:
    text = record.text("spark2", "spark1", END, record.OFF, falling(END, [40.0]))
    assert record.parse(text + line + "\n") == record.parse(text)


def test_a_record_has_no_control_characters() -> None:
    found = record.parse(record.text("a\x1b[2J", "b", END, "\x1b", [Entry(END, record.NETCONSOLE, "\x1b]0;x\x07")]))
    assert not [line for line in report.lines(found) if not line.isprintable()]


def test_a_name_comes_from_the_plan_and_few_records_stay() -> None:
    assert record.name("../../etc/x", END) == ".._.._etc_x-20251126T220341Z.jsonl"
    names = [record.name("spark2", END + number) for number in range(8)]
    others = ["ring", "spark2-x.jsonl", record.name("spark22", END), record.name("a-spark2", END)]
    assert record.surplus([*reversed(names), *others], "spark2") == names[:4], "with a new one, five stay"
    assert record.surplus(names[:4], "spark2") == []
    assert all(map(record.is_name, names)) and not any(map(record.is_name, others[:2]))


METRICS = """# HELP vllm:num_requests_running x
vllm:num_requests_running{engine="0",model_name="tiny"} 2.0
vllm:num_requests_running{engine="1",model_name="tiny"} 1.0
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
vllm:generation_tokens_total{engine="0"} 1.5e+06
vllm:generation_tokens_created{engine="0"} 1.7e+09
vllm:num_requests_running_other 9
vllm:num_requests_waiting nan
vllm:prompt_tokens_total 1e
vllm:prefix_cache_hits_total 1e999
"""


def test_only_the_wanted_metrics_are_read() -> None:
    found = parse.engine(METRICS)
    assert found == Engine(running=3.0, generated=1.5e6, kv_cache=0.5, read=0.0, cache_hits=0.0)
    assert parse.engine("<html>") is None


def test_values_of_the_kernel() -> None:
    meminfo = "MemTotal: 125 kB\nMemAvailable: 25 kB\nSwapTotal: 8 kB\nSwapFree: 6 kB\nHugePages_Total: 0\n"
    assert parse.memory(meminfo) == (25 << 10, 125 << 10, 2 << 10)
    assert parse.memory("") == (None, None, None)
    assert parse.pressure("some avg10=1.53 avg60=0.00 avg300=0.00 total=1\nfull avg10=0.50 x\n") == 1.53
    assert parse.pressure("") is None and parse.load("") is None
    assert parse.load("3.20 1.00 0.50 1/100 4711\n") == 3.2
    assert parse.count("12\n", parse.RDMA_WORD) == 48
    assert parse.count("-1\n") is None and parse.count("") is None
    assert parse.port_state("4: ACTIVE\n") == "ACTIVE" and parse.port_state("") == ""


def test_lines_of_programs_in_the_kernels_log_are_left_out() -> None:
    assert parse.kernel_line("3,1234,812250000,-;NVRM: Xid 79\n SUBSYSTEM=pci\n") == "[812.250] NVRM: Xid 79"
    assert parse.kernel_line("30,1234,812250000,-;systemd[1]: Started x\n") == ""
    assert parse.kernel_line("broken") == ""


@pytest.mark.parametrize(
    ("sample", "text"),
    [
        (Sample(END, "a"), "no value"),
        (Sample(END, "a", memory_available=3 * GIB), "3.0 GiB available"),
        (Sample(END, "a", memory_total=4 * GIB, swap_used=0, pressure=0.0), "no value"),
        (Sample(END, "a", 3 * GIB, 4 * GIB), "3.0 of 4.0 GiB available"),
        (Sample(END, "a", swap_used=3 << 29, pressure=2.5), "swap 1.5 GiB, memory pressure 2.5 %"),
        (Sample(END, "a", gpus=(Gpu("0", "", None, 38.5, None, None, None),)), "GPU 38 W"),
        (
            Sample(END, "a", rails=(SampledRail("a", False), SampledRail("b", True), SampledRail("c"))),
            "no carrier on a",
        ),
        (Sample(END, "a", engine=Engine(waiting=1)), "no value"),
        (Sample(END, "a", engine=Engine(running=0)), "0 requests running"),
    ],
)
def test_a_report_has_the_values_of_a_sample_that_its_node_reports(sample: Sample, text: str) -> None:
    assert report.values(sample) == text


def test_a_clock_that_went_back_gives_no_negative_times() -> None:
    entries = [*falling(END + 5, [40.0]), Entry(END - 5, record.RETURNED, "")]
    found = recorded(record.OFF, entries)
    assert "fell silent 0 s ago" in report.short(found, END - 60)
    assert report.lines(found)[1] == "it was heard again after 0 s"
    assert report.lines(found)[2].startswith("last sample, 0.0 s before")

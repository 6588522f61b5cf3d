"""The comparison of settings: what Kafka's tool prints, and the table over all rounds."""

from __future__ import annotations

import io
import itertools

import pytest
from msgspec.structs import replace
from rich.console import Console

from blumfeld_bench.runs.machine import this_machine
from campaigns.bench.fairness import TOOL_LINE, Fairness, Sample, setting_words, table_of

PRINTED = """\
24940 records sent, 4986.0 records/sec (0.63 MB/sec), 1.3 ms avg latency, 236.0 ms max latency.
50000 records sent, 4997.0 records/sec (0.63 MB/sec), 0.98 ms avg latency, 236.00 ms max latency, 1 ms 50th, \
2 ms 95th, 14 ms 99th, 101 ms 99.9th.
30000 steady state records sent, 4999.0 records/sec (0.63 MB/sec), 0.61 ms avg latency, 20.00 ms max latency, \
0 ms 50th, 1 ms 95th, 3 ms 99th, 12 ms 99.9th.
"""
SAMPLE = Sample(
    server="blumfeld",
    round=0,
    driver_first=False,
    pinned=False,
    driver_placement=None,
    server_placement=None,
    records_per_s=5000.0,
    p50_us=200.0,
    p99_us=1000.0,
    late_us_p99=90.0,
    tool_p50_ms=0.0,
    tool_p99_ms=4.0,
)


def test_the_tools_last_line_is_the_one_without_its_warm_up() -> None:
    assert [line[1:] for line in TOOL_LINE.findall(PRINTED)] == [("1", "14"), ("0", "3")]


def test_a_setting_is_compared_with_our_own_figure_in_it() -> None:
    samples = [
        replace(
            SAMPLE, server=server, round=nth, pinned=pinned, p99_us=p99 * (1 + nth % 2) * (2 if pinned else 1)
        )
        for (server, p99), nth, pinned in itertools.product(
            (("blumfeld", 1000.0), ("Kafka 4.3.1", 3000.0)), (0, 2, 1), (False, True)
        )
    ]
    fairness = Fairness(machine=this_machine(), workload="ticks", step="5,000/s", samples=tuple(samples))
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table_of(fairness))
    printed = console.export_text()
    assert printed.count("3.00×") == 2
    assert "2,000" in printed
    assert printed.count("the default") == 2


@pytest.mark.parametrize(("pinned", "first"), [(True, False), (False, True), (True, True)])
def test_only_the_fair_setting_is_the_default(pinned: bool, first: bool) -> None:
    assert "default" in setting_words(pinned=False, first=False)
    assert "default" not in setting_words(pinned=pinned, first=first)

"""The figures of tiered storage: what is copied, what a store sees of the calls, and the table."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from blumfeld_bench.runs.machine import this_machine
from campaigns.bench.tiered import (
    RECORD_BYTES,
    Result,
    Sample,
    calls_of,
    contenders,
    cost_usd,
    increase,
    is_settled,
    requests_in,
    table_of,
)

METRICS = """\
# TYPE blumfeld_remote_store_requests_total counter
blumfeld_remote_store_requests_total{operation="put"} 12
blumfeld_remote_store_requests_total{operation="put_parts"} 4
blumfeld_remote_store_requests_total{operation="get_range"} 0
blumfeld_remote_store_errors_total{operation="put"} 7
"""
SAMPLE = Sample(
    server="blumfeld, tiered",
    round=0,
    records_per_s=1000.0,
    ack_p50_us=100.0,
    ack_p99_us=1000.0,
    tail_p50_us=200.0,
    tail_p99_us=2000.0,
    live_cpu_s=1.0,
    write_cpu_s_per_gb=2.0,
    settle_s=3.0,
    remote_share=0.96,
    cold_mb_per_s=300.0,
    cold_cpu_s_per_gb=1.5,
    warm_mb_per_s=900.0,
    warm_cpu_s_per_gb=0.5,
    rss_max_bytes=100_000_000,
    copy_calls={"put_parts": 30, "put": 100},
    cold_calls={"get_range": 240},
    load=0.1,
)


def test_a_topic_is_settled_when_each_partition_has_at_most_one_segment_on_the_disk() -> None:
    assert is_settled([900, 950], [1000, 1000], 100 * RECORD_BYTES)
    assert not is_settled([900, 899], [1000, 1000], 100 * RECORD_BYTES)


def test_calls_are_those_between_two_scrapes() -> None:
    before = calls_of(METRICS)
    assert before == {"put": 12, "put_parts": 4, "get_range": 0}
    assert increase(before, {"put": 15, "put_parts": 4, "get_range": 2}) == {"put": 3, "get_range": 2}
    assert increase({}, calls_of("")) == {}


def test_an_upload_in_parts_is_a_request_for_each_part_and_two_more() -> None:
    assert requests_in({"put_parts": 2, "head": 1}, 2 * (20 << 20)) == {"put_parts": 10, "head": 1}
    assert requests_in({"get_range": 5}, 0) == {"get_range": 5}


def test_a_deletion_costs_nothing() -> None:
    assert cost_usd({"put_parts": 1000, "get_range": 10_000, "delete": 5}) == pytest.approx(0.009)


def test_the_table_shows_medians_with_their_spread_and_what_a_gigabyte_asks_of_the_store() -> None:
    samples = [
        replace(SAMPLE, server=server, round=nth, cold_mb_per_s=cold, cold_calls=calls)
        for server, calls in (("blumfeld, tiered", SAMPLE.cold_calls), ("Kafka 4.3.1, tiered", {}))
        for nth, cold in enumerate((200.0, 400.0, 300.0))
    ]
    result = Result(
        machine=this_machine(), history_bytes=1_000_000_000, rate_per_s=1e4, samples=tuple(samples)
    )
    console = Console(width=200, record=True, file=io.StringIO())
    console.print(table_of(result))
    printed = console.export_text()
    assert printed.count("300 (200 to 400)") == 2
    assert printed.count("240 get_range: 0.010 ¢") == 1


def test_a_tiered_server_has_its_store_in_the_folder_of_its_turn() -> None:
    (tiered,) = (each for each in contenders(None) if each.tiered)
    manifest = " ".join(tiered.make(Path("/turn"), 1).variant.command)
    assert "storage.options.store=file:///turn/server/store" in manifest

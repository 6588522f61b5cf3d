"""How much lies where, and what it costs."""

from __future__ import annotations

import pytest

from blumfeld.spi.object_store import ObjectInfo
from blumfeld_storage_tiered.care.standing import PartitionEnds, TopicStanding, cost, standings
from blumfeld_storage_tiered.catalog.segment import TopicIdPartition
from blumfeld_storage_tiered.objects.names import SegmentName
from blumfeld_storage_tiered.objects.segments import StoredSegment
from blumfeld_storage_tiered.options import PriceList

TICKS = TopicIdPartition(bytes(range(1, 17)), 0, "ticks")
MIB = 1 << 20


def stored(start_offset: int, log_bytes: int) -> StoredSegment:
    sizes = {"log": log_bytes, "index": 10, "manifest": 90}
    objects = {suffix: ObjectInfo(suffix, size, 0) for suffix, size in sizes.items()}
    return StoredSegment(SegmentName(TICKS, start_offset, bytes(16)), objects)


def ends(local_start_offset: int, copied_end_offset: int) -> dict[tuple[str, int], PartitionEnds]:
    return {
        ("ticks", 0): PartitionEnds(
            local_bytes=5000,
            local_start_offset=local_start_offset,
            copied_end_offset=copied_end_offset,
            log_end_offset=250,
        )
    }


def test_what_lies_on_both_sides_is_not_pending() -> None:
    segments = [stored(0, 1000), stored(100, 2000)]
    (ticks,) = standings(segments, ends(100, 200))
    assert (ticks.segments, ticks.objects, ticks.remote_bytes) == (2, 6, 3200)
    assert (ticks.local_bytes, ticks.pending_bytes, ticks.lag_records) == (5000, 3000, 50)


def test_a_topic_of_which_nothing_is_copied_is_shown_too() -> None:
    (ticks,) = standings([], ends(40, 0))
    assert (ticks.remote_bytes, ticks.pending_bytes, ticks.lag_records) == (0, 5000, 210)


def test_without_a_broker_nothing_is_said_of_disks() -> None:
    (ticks,) = standings([stored(0, 1000)], None)
    assert (ticks.local_bytes, ticks.pending_bytes, ticks.lag_records) == (None, None, None)


@pytest.mark.parametrize(("log_bytes", "puts", "gets"), [(1000, 3, 3), (20 * MIB, 2 + 5, 7)])
def test_requests_are_those_of_parts_and_of_pieces(log_bytes: int, puts: int, gets: int) -> None:
    (ticks,) = standings([stored(0, log_bytes)], None)
    assert (ticks.puts, ticks.gets) == (puts, gets)


def test_the_cost_is_the_price_list_s() -> None:
    topic = TopicStanding(topic="t", objects=1000, remote_bytes=2 * 10**9, puts=3000, gets=500)
    prices = PriceList(gb_month=0.02, put_1000=0.005, get_1000=0.0004, gb_out=0.09)
    costs = cost([topic], prices)
    assert costs.month == pytest.approx(0.04)
    assert costs.written == pytest.approx(3 * 0.005 + 0.0004)
    assert costs.read_once == pytest.approx(0.0002 + 0.18)

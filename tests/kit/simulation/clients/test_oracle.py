"""The checker finds each kind of broken promise, and does not cry at what was never promised."""

from __future__ import annotations

import pytest

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.oracle import Oracle, PartitionLedger, ViolationError

AT = TopicPartition("topic", 0)


def a_ledger(*, flushed: bool = True) -> PartitionLedger:
    """Producer p sent p#0 to p#9; the first three are acknowledged at 0, 1 and 2."""
    oracle = Oracle()
    oracle.add(AT, flushed=flushed)
    oracle.sent(AT, [b"p#%d#" % n for n in range(10)])
    oracle.acked(AT, 0, [b"p#0#", b"p#1#", b"p#2#"])
    return oracle.partitions[AT]


def log(*numbers: int) -> list[tuple[int, bytes]]:
    """A log that holds these records."""
    return [(offset, b"p#%d#" % n) for offset, n in enumerate(numbers)]


def test_a_log_with_all_that_was_acknowledged_and_more_is_fine() -> None:
    assert a_ledger().check_whole(log(0, 1, 2, 3)) == 4


@pytest.mark.parametrize(
    ("found", "complaint"),
    [
        (log(0, 1), "acknowledged, and is lost"),
        (log(0, 2, 1), "stands at 2: doubled"),
        (log(0, 1, 3), "where b'p#2#' stood"),
        (log(0, 1, 2, 1), "doubled"),
        (log(0, 1, 2, 4, 3), "behind what was produced after it"),
        ([*log(0, 1, 2), (4, b"p#3#")], "a hole"),
        ([*log(0, 1, 2), (3, b"x#9#")], "nobody produced"),
    ],
)
def test_each_broken_promise_is_found(found: list[tuple[int, bytes]], complaint: str) -> None:
    with pytest.raises(ViolationError, match=complaint):
        a_ledger().check_whole(found)


def test_two_records_are_never_acknowledged_at_one_offset() -> None:
    with pytest.raises(ViolationError, match="stood"):
        a_ledger().ack(2, [b"p#3#"])


def test_a_reader_sees_what_was_acknowledged() -> None:
    ledger = a_ledger()
    ledger.saw(1, b"p#1#")
    with pytest.raises(ViolationError):
        ledger.saw(2, b"p#3#")


def test_a_power_cut_takes_nothing_that_was_flushed() -> None:
    ledger = a_ledger()
    ledger.power_cut()
    with pytest.raises(ViolationError, match="lost"):
        ledger.check_whole(log(0, 1))


def test_a_power_cut_may_take_the_end_of_what_was_cached() -> None:
    """And what is produced then takes its offsets."""
    ledger = a_ledger(flushed=False)
    ledger.power_cut()
    assert ledger.check_whole(log(0, 1, 5, 6)) == 4
    assert ledger.taken == 1


def test_without_a_power_cut_what_is_cached_stays() -> None:
    with pytest.raises(ViolationError, match="lost"):
        a_ledger(flushed=False).check_whole(log(0))


def test_what_was_read_unacknowledged_may_go_with_the_power_and_come_again() -> None:
    """Its producer never had an answer, and sent it again."""
    ledger = a_ledger()
    ledger.saw(3, b"p#3#")
    ledger.power_cut()
    ledger.ack(3, [b"p#4#"])
    ledger.ack(4, [b"p#3#"])


def test_a_producer_is_forgotten_only_by_a_power_cut_and_never_where_acks_are_flushed() -> None:
    for flushed in (True, False):
        oracle = Oracle()
        oracle.add(AT, flushed=flushed)
        with pytest.raises(ViolationError, match="forgot"):
            oracle.sequence_refused(AT, power_cuts=0)
        oracle.power_cut()
        if flushed:
            with pytest.raises(ViolationError, match="forgot"):
                oracle.sequence_refused(AT, power_cuts=0)
        else:
            oracle.sequence_refused(AT, power_cuts=0)


def test_a_commit_never_goes_back() -> None:
    oracle = Oracle()
    oracle.fetched("g", AT, -1)
    oracle.committed("g", AT, 5)
    oracle.fetched("g", AT, 7)
    with pytest.raises(ViolationError, match="5 was committed"):
        oracle.fetched("g", AT, 4)


def test_a_position_that_was_acknowledged_is_in_range() -> None:
    oracle = Oracle()
    oracle.add(AT, flushed=True)
    oracle.sent(AT, [b"p#0#"])
    oracle.acked(AT, 0, [b"p#0#"])
    oracle.out_of_range(AT, 9)
    with pytest.raises(ViolationError, match="out of range"):
        oracle.out_of_range(AT, 1)

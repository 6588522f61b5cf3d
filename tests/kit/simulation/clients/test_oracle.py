"""The checker finds each kind of broken promise, and does not cry at what was never promised."""

from __future__ import annotations

import pytest

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.oracle import Oracle, PartitionOracle, ViolationError

AT = TopicPartition("topic", 0)


def promises(*, flushed: bool = True) -> PartitionOracle:
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
    assert promises().check_whole(log(0, 1, 2, 3)) == 4


@pytest.mark.parametrize(
    ("readings", "complaint"),
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
def test_each_broken_promise_is_found(readings: list[tuple[int, bytes]], complaint: str) -> None:
    with pytest.raises(ViolationError, match=complaint):
        promises().check_whole(readings)


def test_two_records_are_never_acknowledged_at_one_offset() -> None:
    with pytest.raises(ViolationError, match="stood"):
        promises().ack(2, [b"p#3#"])


def test_a_reader_sees_what_was_acknowledged() -> None:
    it = promises()
    it.saw(1, b"p#1#")
    with pytest.raises(ViolationError):
        it.saw(2, b"p#3#")


def test_a_power_cut_takes_nothing_that_was_flushed() -> None:
    it = promises()
    it.excuse(1.0)
    with pytest.raises(ViolationError, match="lost"):
        it.check_whole(log(0, 1))


def test_a_power_cut_may_take_the_end_of_what_was_cached() -> None:
    """And what is produced then takes its offsets."""
    it = promises(flushed=False)
    it.excuse(1.0)
    assert it.check_whole(log(0, 1, 5, 6)) == 4
    assert it.taken == 1


def test_without_a_power_cut_what_is_cached_stays() -> None:
    with pytest.raises(ViolationError, match="lost"):
        promises(flushed=False).check_whole(log(0))


def test_what_was_read_unacknowledged_may_go_with_the_power_and_come_again() -> None:
    """Its producer never had an answer, and sent it again."""
    it = promises()
    it.saw(3, b"p#3#")
    it.excuse(1.0)
    it.ack(3, [b"p#4#"])
    it.ack(4, [b"p#3#"])


def test_a_producer_is_forgotten_only_by_a_power_cut_and_never_where_acks_are_flushed() -> None:
    for flushed in (True, False):
        it = PartitionOracle("topic-0", flushed=flushed)
        with pytest.raises(ViolationError, match="forgot"):
            it.sequence_refused(known_s=0.0)
        it.excuse(1.0)
        if flushed:
            with pytest.raises(ViolationError, match="forgot"):
                it.sequence_refused(known_s=0.0)
        else:
            it.sequence_refused(known_s=0.0)
            with pytest.raises(ViolationError, match="forgot"):
                it.sequence_refused(known_s=1.0)


def test_a_commit_never_goes_back() -> None:
    oracle = Oracle()
    oracle.offsets_fetched("g", AT, -1)
    oracle.offsets_committed("g", AT, 5)
    oracle.offsets_fetched("g", AT, 7)
    with pytest.raises(ViolationError, match="5 was committed"):
        oracle.offsets_fetched("g", AT, 4)


def test_a_position_that_was_acknowledged_is_in_range() -> None:
    flushed, cached = promises(), promises(flushed=False)
    assert flushed.is_promised(3)
    assert not flushed.is_promised(9)
    assert cached.is_promised(3)
    cached.excuse(1.0)
    assert not cached.is_promised(3)


def test_a_repetition_that_was_refused_stands_in_the_log_unless_an_excuse_took_it() -> None:
    it = promises()
    it.repetition_refused([b"p#5#"], known_s=0.0)
    it.check_claims(log(0, 1, 2, 5))
    with pytest.raises(ViolationError, match="the repetition of b'p#5#' was refused"):
        it.check_claims(log(0, 1, 2))
    it.excuse(1.0)
    it.check_claims(log(0, 1, 2))


def test_a_record_that_was_refused_for_good_is_in_no_log() -> None:
    oracle, at = Oracle(), TopicPartition("work", 0)
    oracle.add(at)
    oracle.sent(at, [b"a#0", b"b#0"])
    oracle.refused(at, [b"a#0"])
    oracle.sent(at, [b"b#1"])
    oracle.partitions[at].check_whole([(0, b"b#0"), (1, b"b#1")])
    with pytest.raises(ViolationError, match="nobody produced"):
        oracle.read(at, 2, b"a#0")

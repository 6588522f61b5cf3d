"""A follower's large answer is taken in slices: the loop is not held, and what changed meanwhile is not overwritten."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from blumfeld.spi.completion import Steps
from blumfeld.spi.peers import RawAnswer
from blumfeld.spi.scheduler import Lane
from blumfeld.wire.codec import encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from blumfeld_replication_isr import fetcher
from tests.plugins.replication_isr.test_fetcher import LEADER, TOPIC_ID, VERSION, Driver, data

COUNT = 6
ENDS = [10] * COUNT


@pytest.fixture(autouse=True)
def no_answer_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    """On virtual time a large answer is taken part by part."""
    monkeypatch.setattr(fetcher, "SMALL_PARTS", 1)


def answer(driver: Driver, *parts: PartitionData, between: Callable[[], None] = lambda: None) -> None:
    """Answer with a frame that is overwritten after its turn. ``between`` runs behind the first slice."""
    response = FetchResponse(
        session_id=9, responses=[FetchableTopicResponse(topic_id=TOPIC_ID, partitions=list(parts))]
    )
    frame = bytearray(encode(response, VERSION))

    def arrive() -> None:
        driver.only.sent[-1][1].complete(RawAnswer(memoryview(frame), VERSION))

    def next_turn() -> None:
        for log in driver.logs:  # the first slice is written by now
            log.appended = [(memoryview(bytes(entry[0])), entry[1], entry[2]) for entry in log.appended]
        frame[:] = bytes(len(frame))
        between()

    # Both are due in the same turn, so the second one's callback comes before that turn's own.
    def first_turn() -> None:
        driver.runtime.call_later(0, next_turn)

    driver.runtime.call_later(0, first_turn)
    driver.runtime.call_later(0, arrive)
    driver.turn()


def parts() -> list[PartitionData]:
    return [data(index, b"abc%d" % index) for index in range(COUNT)]


def appended(driver: Driver) -> list[bytes | None]:
    """What each log got."""
    return [bytes(log.appended[-1][0]) if log.appended else None for log in driver.logs]


ALL = [b"abc0", b"abc1", b"abc2", b"abc3", b"abc4", b"abc5"]


def test_a_turn_takes_some_parts() -> None:
    driver = Driver(*ENDS)
    counts: list[int] = []

    def count() -> None:
        counts.append(sum(len(log.appended) for log in driver.logs))
        if len(counts) < 12:
            driver.runtime.call_later(0, count)

    driver.runtime.call_later(0, count)
    answer(driver, *parts())
    assert max(b - a for a, b in pairwise(counts)) == 1
    assert counts[-1] == COUNT


def test_the_records_of_later_slices_are_kept_from_the_next_frame() -> None:
    driver = Driver(*ENDS)
    answer(driver, *parts())
    assert appended(driver) == ALL


def test_the_next_request_waits_for_the_last_slice_and_acknowledges_all() -> None:
    driver = Driver(*ENDS)
    requests: list[int] = []

    def write() -> None:
        for log in driver.logs[:1]:
            log.write()
        driver.runtime.call_later(0, lambda: requests.append(len(driver.only.sent)))

    answer(driver, *parts(), between=write)
    assert requests == [1]
    driver.asked(1)
    for log in driver.logs[1:]:
        log.write()
    driver.turn()
    assert driver.asked(2).session_epoch == 1
    assert driver.places() == dict.fromkeys(range(COUNT), 14)


def test_no_request_leaves_before_the_last_part_though_nothing_is_to_be_written() -> None:
    driver = Driver(*ENDS)
    requests: list[int] = []
    last = driver.logs[5]
    append = last.append_fetched

    def count(batches: memoryview, high_watermark: int, log_start_offset: int) -> bool:
        requests.append(len(driver.only.sent))
        return append(batches, high_watermark, log_start_offset)

    last.append_fetched = count  # type: ignore[method-assign]
    answer(driver, *(data(index) for index in range(COUNT)))
    assert requests == [1]
    driver.asked(2)


def test_a_partition_that_has_left_takes_nothing() -> None:
    driver = Driver(*ENDS)
    answer(driver, *parts(), between=driver.logs[5].follower.stop)
    assert appended(driver) == [*ALL[:5], None]
    for log in driver.logs[:5]:
        log.write()
    driver.turn()
    assert driver.asked(2).session_epoch == 0, "a full request, without it"
    assert sorted(driver.places()) == [0, 1, 2, 3, 4]


def test_a_partition_in_another_leader_epoch_takes_nothing_of_the_earlier_one() -> None:
    driver = Driver(*ENDS)

    def elect() -> None:
        driver.logs[5].follower.stop()
        driver.follow(driver.logs[5], epoch=5)

    answer(driver, *parts(), between=elect)
    assert appended(driver) == [*ALL[:5], None]
    for log in driver.logs[:5]:
        log.write()
    driver.turn()
    by_index = {p.partition: p for topic in driver.asked(2).topics for p in topic.partitions}
    assert (by_index[5].current_leader_epoch, by_index[5].fetch_offset) == (5, 10)


def test_a_log_that_was_cut_takes_nothing_from_behind_its_end() -> None:
    driver = Driver(*ENDS)

    def cut() -> None:
        driver.logs[5].log.placed_end_offset = 7
        driver.logs[5].follower.written(7)

    answer(driver, *parts(), between=cut)
    assert appended(driver) == [*ALL[:5], None]


def test_a_new_process_of_the_leader_ends_the_answer_of_the_earlier_one() -> None:
    driver = Driver(*ENDS, 10)
    late = driver.logs.pop()

    def restart() -> None:
        driver.brokers[LEADER] = driver.brokers[LEADER].__class__(
            broker_id=LEADER, epoch=8, incarnation_id=bytes(16), endpoints=()
        )
        late.follower.stop()
        driver.follow(late, epoch=5)

    lost = data(0, code=ErrorCode.OFFSET_OUT_OF_RANGE)
    answer(driver, lost, *parts()[1:], between=restart)
    assert appended(driver) == [None] * COUNT
    driver.turn()
    assert driver.asked(2).session_epoch == 0
    assert driver.places() == dict.fromkeys(range(COUNT + 1), 10)


def test_a_node_that_stops_takes_no_more() -> None:
    driver = Driver(*ENDS)

    def stop() -> None:
        driver.runtime.spawn(driver.replication.stop(), "stop")

    answer(driver, *parts(), between=stop)
    assert len([entry for entry in appended(driver) if entry is not None]) <= 4
    driver.asked(1)


def test_a_small_answer_waits_for_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetcher, "SMALL_PARTS", COUNT)
    seen: list[bytes | None] = []
    driver = Driver(*ENDS)

    def long() -> Steps[None]:
        for _ in range(50):
            yield None

    driver.runtime.scheduler.run(Lane.REPLICATION, long())
    answer(driver, *parts(), between=lambda: seen.extend(appended(driver)))
    assert seen == ALL

"""Fetch sessions as KIP-227 has them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from blumfeld.broker.fetch_sessions import (
    EPOCH_MAX,
    EVICTION_MS,
    SESSION_PARTITIONS_MAX,
    FetchPartition,
    FetchPlan,
    FetchSessions,
    PartitionKey,
)
from blumfeld.wire.errors import BrokerError, ErrorCode


def ids(*values: int) -> FetchSessions:
    source: Iterator[int] = iter(values)
    return FetchSessions(lambda: next(source), slots_max=2)


def of(*partitions: int, topic: str = "t") -> list[FetchPartition]:
    return [FetchPartition(topic, p, 0, 1 << 20) for p in partitions]


def begin(
    sessions: FetchSessions,
    session_id: int,
    epoch: int,
    partitions: Sequence[FetchPartition] = (),
    forgotten: Sequence[PartitionKey] = (),
    *,
    now_ms: float = 0,
    privileged: bool = False,
) -> FetchPlan:
    how: dict[str, Any] = {"uses_topic_ids": False, "privileged": privileged, "now_ms": now_ms}
    return sessions.begin(session_id, epoch, partitions, forgotten, **how)


def opened(sessions: FetchSessions, *partitions: int, now_ms: float = 0, privileged: bool = False) -> int:
    plan = begin(sessions, 0, 0, of(*partitions), now_ms=now_ms, privileged=privileged)
    return sessions.finish_full(plan, now_ms)


def error_of(
    sessions: FetchSessions, session_id: int, epoch: int, partitions: Sequence[FetchPartition] = ()
) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        begin(sessions, session_id, epoch, partitions)
    return caught.value.code


def test_a_full_request_is_answered_whole_and_makes_a_session() -> None:
    sessions = ids(7)
    plan = begin(sessions, 0, 0, of(0, 1))
    assert not plan.incremental
    assert [p.partition for p in plan.partitions] == [0, 1]
    assert sessions.finish_full(plan, 0) == 7


def test_a_named_partition_takes_the_new_offset_and_an_unknown_one_joins() -> None:
    sessions = ids(7)
    opened(sessions, 0)
    changed = FetchPartition("t", 0, 5, 99, 3, 2)
    plan = begin(sessions, 7, 1, [changed, *of(4)])
    first, second = plan.partitions
    assert (first.fetch_offset, first.partition_bytes_max, first.current_leader_epoch) == (5, 99, 3)
    assert second.partition == 4


def test_a_forgotten_partition_leaves_and_an_empty_session_is_closed() -> None:
    sessions = ids(7)
    opened(sessions, 0, 1)
    assert [p.partition for p in begin(sessions, 7, 1, forgotten=[("t", 0)]).partitions] == [1]
    plan = begin(sessions, 7, 2, forgotten=[("t", 1)])
    assert plan.session is None
    assert not plan.partitions
    assert error_of(sessions, 7, 3) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_partition_that_is_named_again_is_another_request_in_the_same_place() -> None:
    """The earlier fetch may still wait."""
    sessions = ids(7)
    opened(sessions, 0, 1)
    earlier = begin(sessions, 7, 1)
    assert earlier.partitions[0].changed(9, 2)
    earlier.partitions[0].found, earlier.partitions[0].found_in = "hosted", 4
    later = begin(sessions, 7, 2, [FetchPartition("t", 0, 5, 99)])
    assert [p.fetch_offset for p in earlier.partitions] == [0, 0]
    first, second = later.partitions
    assert (first.partition, first.fetch_offset, first.found, first.found_in) == (0, 5, "hosted", 4)
    assert not first.changed(9, 2), "as the last answer said"
    assert second is earlier.partitions[1]
    assert earlier.session is not None
    sessions.rotate(earlier.session, earlier.partitions[0])
    assert begin(sessions, 7, 3).partitions == [first, second]
    sessions.rotate(earlier.session, first)
    assert begin(sessions, 7, 4).partitions == [second, first]


def test_the_epoch_goes_up_by_one_and_wraps_to_one() -> None:
    sessions = ids(7)
    opened(sessions, 0)
    begin(sessions, 7, 1)
    assert error_of(sessions, 7, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    plan = begin(sessions, 7, 2)
    assert plan.session is not None
    plan.session.next_epoch = EPOCH_MAX
    begin(sessions, 7, EPOCH_MAX)
    begin(sessions, 7, 1)


@pytest.mark.parametrize("epoch", [0, -1])
def test_a_full_request_closes_the_session_that_it_names(epoch: int) -> None:
    sessions = ids(7, 8)
    opened(sessions, 0)
    plan = begin(sessions, 7, epoch, of(0))
    assert sessions.finish_full(plan, 0) == (8 if epoch == 0 else 0)
    assert error_of(sessions, 7, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_ids_are_drawn_until_one_is_free_and_positive() -> None:
    sessions = ids(7, 7, 0, -3, 9)
    assert opened(sessions, 0) == 7
    assert opened(sessions, 0) == 9


def test_what_was_told_is_not_told_again() -> None:
    partition = of(0)[0]
    assert partition.changed(10, 0)
    assert not partition.changed(10, 0)
    assert partition.changed(11, 0)
    assert partition.changed(11, 3)


def test_a_full_cache_gives_no_session() -> None:
    sessions = ids(1, 2, 3)
    assert [opened(sessions, 0) for _ in range(3)] == [1, 2, 0]


def test_the_longest_idle_session_makes_room() -> None:
    sessions = ids(1, 2, 3)
    opened(sessions, 0, now_ms=0)
    opened(sessions, 0, now_ms=1)
    begin(sessions, 1, 1, now_ms=100)
    assert opened(sessions, 0, now_ms=1 + EVICTION_MS) == 3
    assert error_of(sessions, 2, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_a_larger_or_a_followers_session_pushes_out_an_old_smaller_one_only() -> None:
    sessions = ids(1, 2, 3, 4)
    opened(sessions, 0)
    opened(sessions, 0, 1)
    later = EVICTION_MS + 1
    begin(sessions, 1, 1, now_ms=later)
    begin(sessions, 2, 1, now_ms=later)
    assert opened(sessions, 0, now_ms=later) == 0
    assert opened(sessions, 0, 1, now_ms=later) == 3
    assert error_of(sessions, 1, 2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert opened(sessions, 0, now_ms=later, privileged=True) == 4


def test_a_full_fetch_of_too_many_partitions_gets_no_session() -> None:
    sessions = ids(7, 8)
    fits = begin(sessions, 0, 0, of(*range(SESSION_PARTITIONS_MAX)))
    assert sessions.finish_full(fits, 0) == 7
    beyond = begin(sessions, 0, 0, of(*range(SESSION_PARTITIONS_MAX + 1)))
    assert sessions.finish_full(beyond, 0) == 0
    assert len(sessions) == 1


def test_a_session_that_would_grow_beyond_ends() -> None:
    sessions = ids(7)
    sessions.finish_full(begin(sessions, 0, 0, of(*range(SESSION_PARTITIONS_MAX))), 0)
    again = begin(sessions, 7, 1, of(*range(SESSION_PARTITIONS_MAX)))
    assert len(again.partitions) == SESSION_PARTITIONS_MAX, "the same partitions again are no more"
    beyond = of(SESSION_PARTITIONS_MAX)
    assert error_of(sessions, 7, 2, beyond) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert not len(sessions)


def test_the_partitions_of_a_session_are_known() -> None:
    sessions = ids(7)
    sessions.finish_full(begin(sessions, 0, 0, of(1, 2)), 0)
    assert ("t", 1) in sessions.partitions_of(7)
    assert ("t", 3) not in sessions.partitions_of(7)
    assert ("t", 1) not in sessions.partitions_of(8)

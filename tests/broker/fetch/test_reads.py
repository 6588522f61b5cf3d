"""The limits of a fetch over several partitions: whole first batches or none, from memory, a page cache and a disk."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from blumfeld.spi.storage import LogRead, LogStorage, OffsetOutOfRangeError
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.fetch import FetchRequest, FetchResponse
from blumfeld_kit.crash.machine import make_storage as local_storage
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_memory.storage import MemoryStorage
from tests.broker.batches import batch, fetch, produce
from tests.broker.harness import BrokerHarness, failing

VERSION = 12
SMALL, LARGE = 500, 20_000
"""Bytes of a value: the answer gets a copy of the small batch, and a region of the file with the large one."""
FOLLOWER = 2
MakeStorage = Callable[[FakeRuntime], LogStorage]
STORAGES = [
    pytest.param(MemoryStorage, id="storage_memory"),
    pytest.param(local_storage(), id="storage_local"),
]


def filled(make_storage: MakeStorage, *sizes: int) -> BrokerHarness:
    """A broker whose partition n of topic ``t`` has two batches with a value of ``sizes[n]`` bytes each."""
    broker = BrokerHarness(make_storage=make_storage, partitions=len(sizes))
    for index, size in enumerate(sizes):
        for _ in range(2):
            broker.ask(produce(batch(bytes(size)), partition=index), 9)
    return broker


def given(answer: FetchResponse) -> dict[int, tuple[int, int]]:
    """The error and the number of bytes of each partition in the answer."""
    return {
        p.partition_index: (p.error_code, len(p.records))  # type: ignore[arg-type]
        for topic in answer.responses
        for p in topic.partitions
    }


@pytest.mark.parametrize("make_storage", STORAGES)
@pytest.mark.parametrize("replica_id", [-1, FOLLOWER], ids=["consumer", "follower"])
@pytest.mark.parametrize("value_bytes", [SMALL, LARGE])
def test_a_later_partition_gives_no_piece_of_its_first_batch(
    make_storage: MakeStorage, replica_id: int, value_bytes: int
) -> None:
    """Kafka gives none either, and no error: the client makes progress in the partitions before it (KIP-74)."""
    broker = filled(make_storage, value_bytes, value_bytes)
    for index in (0, 1):
        broker.change_partition(index=index, replicas=(1, FOLLOWER), isr=(1,))
    size = len(batch(bytes(value_bytes)))
    for left in (0, 1, 16, 17, 61, size - 1, size):
        second = size if left == size else 0
        by_all = fetch(0, partitions=(0, 1), max_bytes=2 * size + left, replica_id=replica_id)
        assert given(broker.ask(by_all, VERSION)) == {0: (0, 2 * size), 1: (0, second)}, left
        by_one = fetch(0, partitions=(0, 1), partition_bytes_max=left, replica_id=replica_id)
        assert given(broker.ask(by_one, VERSION)) == {0: (0, size), 1: (0, second)}, left
    broker.stop()


@pytest.mark.parametrize("make_storage", STORAGES)
def test_a_batch_larger_than_every_limit_is_fetched_by_a_session(make_storage: MakeStorage) -> None:
    """An incremental fetch puts the partitions with records behind the others (KIP-227), so the one that was passed
    over comes first in the next fetch, and its batch is given whole.
    """
    broker = filled(make_storage, SMALL, LARGE)
    small, large = len(batch(bytes(SMALL))), len(batch(bytes(LARGE)))
    opened = broker.ask(fetch(0, partitions=(0, 1), partition_bytes_max=small, session_epoch=0), VERSION)
    assert given(opened) == {0: (0, small), 1: (0, 0)}
    for epoch, expected in ((1, {0: (0, small)}), (2, {1: (0, large)})):
        request = FetchRequest(
            session_id=opened.session_id, session_epoch=epoch, min_bytes=1, max_bytes=small
        )
        assert given(broker.ask(request, VERSION)) == expected
    broker.stop()


@pytest.mark.parametrize("make_storage", STORAGES)
def test_a_fetch_does_not_wait_for_bytes_that_no_wait_brings_into_its_answer(
    make_storage: MakeStorage,
) -> None:
    """A first batch that doesn't fit counts for ``min_bytes`` as far as the limits go, as in Kafka."""
    broker = filled(make_storage, SMALL, LARGE)
    small = len(batch(bytes(SMALL)))

    def answered_at_once(min_bytes: int) -> bool:
        asked = fetch(
            0, partitions=(0, 1), max_wait_ms=500, min_bytes=min_bytes, partition_bytes_max=3 * small
        )
        waiting = broker.send(asked, VERSION)
        at_once = waiting.settled
        broker.runtime.advance(501)
        assert given(broker.response(waiting, asked, VERSION)) == {0: (0, 2 * small), 1: (0, 0)}
        return at_once

    assert answered_at_once(5 * small)
    assert not answered_at_once(5 * small + 1)
    broker.stop()


@pytest.mark.parametrize("make_storage", STORAGES)
def test_limits_of_zero_give_the_first_batch(make_storage: MakeStorage) -> None:
    """As in Kafka, where the first batch of an answer has no limit."""
    broker = filled(make_storage, SMALL, SMALL)
    for asked in (
        fetch(0, partitions=(0, 1), max_bytes=0),
        fetch(0, partitions=(0, 1), partition_bytes_max=0),
    ):
        assert given(broker.ask(asked, VERSION)) == {0: (0, len(batch(bytes(SMALL)))), 1: (0, 0)}
    broker.stop()


DEFECTS = [IndexError("index out of range"), KeyError("t"), ValueError("a defect")]


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: type(defect).__name__)
def test_a_defect_of_a_read_gets_no_meaning(defect: Exception) -> None:
    """The answer is UNKNOWN_SERVER_ERROR and the log has the traceback. An IndexError is a LookupError: as such it was
    an OFFSET_OUT_OF_RANGE, for which a client goes to the end of the log.
    """
    broker = BrokerHarness(partitions=1)
    broker.ask(produce(batch()), 9)
    broker.log_of("t").read = failing(defect)  # type: ignore[method-assign]
    assert given(broker.ask(fetch(0), VERSION)) == {0: (ErrorCode.UNKNOWN_SERVER_ERROR, 0)}
    assert broker.log.events[-1][2]["exc_info"] is defect


@pytest.mark.parametrize(
    ("error", "code"),
    [
        *((defect, ErrorCode.UNKNOWN_SERVER_ERROR) for defect in DEFECTS),
        (OffsetOutOfRangeError("below the log start"), ErrorCode.OFFSET_OUT_OF_RANGE),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
def test_an_error_of_a_cold_read_has_its_own_code(error: Exception, code: ErrorCode) -> None:
    broker = BrokerHarness(partitions=2)
    for partition in (0, 1):
        broker.ask(produce(batch(), partition=partition), 9)
    log = broker.log_of("t", 1)
    log.cold = []
    request = fetch(0, partitions=(0, 1))
    waiting = broker.send(request, VERSION)
    log.cold[0].fail(error)
    assert given(broker.response(waiting, request, VERSION)) == {0: (0, len(batch())), 1: (code, 0)}
    logged = [event[2]["exc_info"] for event in broker.log.events if "exc_info" in event[2]]
    assert logged == ([error] if code == ErrorCode.UNKNOWN_SERVER_ERROR else [])


@pytest.mark.parametrize("bytes_max", [0, -1])
def test_after_a_cold_read_no_other_batch_exceeds_the_limits(bytes_max: int) -> None:
    broker = BrokerHarness(partitions=2)
    for partition, size in enumerate((SMALL, LARGE)):
        broker.ask(produce(batch(bytes(size)), partition=partition), 9)
    log = broker.log_of("t", 0)
    data = bytes(next(log.batches(0)).data)
    log.cold = []
    request = fetch(0, partitions=(0, 1), max_bytes=1_000)
    request.topics[0].partitions[0].partition_max_bytes = bytes_max
    waiting = broker.send(request, VERSION)
    log.cold[0].complete(LogRead([data], len(data), 1))
    assert given(broker.response(waiting, request, VERSION)) == {0: (0, len(data)), 1: (0, 0)}


def test_what_was_read_before_a_defect_is_given_back() -> None:
    broker = filled(local_storage(), LARGE, LARGE)
    broker.hosted("t", 1).log.read = failing(IndexError("index out of range"))  # type: ignore[method-assign]
    answer = broker.ask(fetch(0, partitions=(0, 1)), VERSION)
    assert {code for code, _ in given(answer).values()} == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert broker.runtime.disk.open_regions == 0

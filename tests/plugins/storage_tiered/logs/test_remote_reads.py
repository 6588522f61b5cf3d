"""Reads in remote segments. The local log that they were copied from says what is right."""

from __future__ import annotations

import pytest

from blumfeld.log.producers.aborted_transactions import ENTRY_BYTES, encode_aborted
from blumfeld.spi.compaction import AbortedTransaction
from blumfeld.spi.completion import Completion
from blumfeld.spi.object_store import StoreUnavailableError
from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import LogRead
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld_kit.storage_driver.node import Log
from blumfeld_storage_tiered.cache.chunk_cache import FOLDER, ChunkCache, ChunkKey
from blumfeld_storage_tiered.cache.segment_bytes import READ_AHEAD_MAX, SegmentBytes
from blumfeld_storage_tiered.catalog.segment import RemoteSegment
from blumfeld_storage_tiered.logs.remote_reads import RemoteReads
from blumfeld_storage_tiered.objects.names import SegmentFile
from tests.plugins.storage_local.local_node import Events
from tests.plugins.storage_tiered.remote_copies import copy_of, log_of


class Remote:
    """A log and the remote reads of its copy."""

    def __init__(
        self,
        log: Log,
        *aborted: AbortedTransaction,
        chunk_bytes: int = 256,
        cache_bytes: int = 1 << 20,
        **limits: int,
    ) -> None:
        self.log = log
        self.runtime = log.node.runtime
        self.files, self.history = copy_of(log, aborted)
        self.cache = ChunkCache(self.runtime, "/data", cache_bytes, Events())
        self.runtime.run(self.cache.start())
        self.source = SegmentBytes(
            self.runtime, self.files, self.cache, self._pace, chunk_bytes=chunk_bytes, **limits
        )
        self.reads = RemoteReads(self.runtime, self.source, self.history)

    async def _pace(self, size: int) -> None:
        pass

    def read(self, offset: int, bytes_max: int = 1 << 30, minimum: bool = True) -> LogRead:
        log_read = self.runtime.run(self.reads.read(offset, bytes_max, minimum))
        assert log_read is not None
        return log_read

    def batches(self, offset: int, bytes_max: int = 1 << 30, minimum: bool = True) -> list[bytes]:
        log_read = self.read(offset, bytes_max, minimum)
        data = join(log_read.parts)
        release(log_read.parts)
        assert len(data) == log_read.size_bytes
        whole = list(split_batches(memoryview(data), allow_partial=True))
        assert all(batch.next_offset <= log_read.end_offset for batch in whole)
        return [bytes(batch.data) for batch in whole]

    @property
    def end_offset(self) -> int:
        return self.history.copies[-1].end_offset + 1


SIZES = (1, 3, 2, 5, 1, 1, 4, 2, 3, 1, 2, 6, 1, 2)


@pytest.fixture(params=["brought", "in place"])
def remote(request: pytest.FixtureRequest) -> Remote:
    at = iter(range(0, 10_000, 10))
    remote = Remote(log_of([[next(at) for _ in range(size)] for size in SIZES], segment_bytes=500))
    if request.param == "in place":
        remote.files.files_of = remote.runtime.files
    return remote


def test_every_offset_is_read_as_the_local_log_reads_it(remote: Remote) -> None:
    assert len(remote.history.copies) > 2
    for offset in range(remote.end_offset):
        local = remote.log.read(offset)
        batches = remote.batches(offset)
        assert batches
        assert batches == [batch.data for batch in local[: len(batches)]]


@pytest.mark.parametrize("bytes_max", [1, 100, 250, 1000])
def test_a_reader_that_goes_on_gets_each_batch_once(remote: Remote, bytes_max: int) -> None:
    offset, given = 0, []
    while offset < remote.end_offset:
        batches = list(split_batches(memoryview(b"".join(remote.batches(offset, bytes_max)))))
        given += [batch.base_offset for batch in batches]
        offset = batches[-1].next_offset
    assert given == [start for start, end in remote.log.spans() if end <= remote.end_offset]


def test_a_first_batch_above_the_limit_comes_whole_or_not_at_all(remote: Remote) -> None:
    assert len(remote.batches(0, 1)) == 1
    assert remote.batches(0, 1, minimum=False) == []


def test_records_of_another_history_are_left_out(remote: Remote) -> None:
    remote = Remote(remote.log, chunk_bytes=1 << 16)
    assert len(remote.batches(remote.history.copies[1].start_offset)) > 2
    segment = remote.history.copies[1]
    third = [span for span in remote.log.spans() if span[0] >= segment.start_offset][2]
    remote.history.ends[segment.segment_id] = third[0]
    assert len(remote.batches(segment.start_offset)) == 2


def test_times_are_found_as_in_the_local_log(remote: Remote) -> None:
    async def first(timestamp_ms: int, from_offset: int) -> object:
        return await remote.reads.first_at(timestamp_ms, from_offset, remote.end_offset)

    for timestamp_ms in range(-5, remote.end_offset * 10 - 10, 5):
        assert remote.runtime.run(first(timestamp_ms, 0)) == remote.log.time(timestamp_ms)
    late = remote.runtime.run(first(0, 7))
    assert late == remote.log.time(70)
    assert remote.runtime.run(first(10_000, 0)) is None


def test_the_highest_timestamp_is_the_first_such_record() -> None:
    remote = Remote(log_of([[5, 9], [9, 1], [3, 3], [2, 2], [1]], segment_bytes=200))
    place = remote.runtime.run(remote.reads.highest_timestamp(0, remote.end_offset))
    assert place is not None
    assert (place.timestamp_ms, place.offset) == (9, 1)


def test_aborted_transactions_come_from_the_segment_of_their_marker() -> None:
    log = log_of([[1, 2]] * 10, segment_bytes=300)
    early = AbortedTransaction(7, 1, 9, 2)
    late = AbortedTransaction(8, 12, 13, 14)
    remote = Remote(log, early, late)
    marked = [segment for segment in remote.history.copies if not segment.txn_index_empty]
    assert len(marked) == 2
    log_read = remote.read(0)
    release(log_read.parts)
    assert log_read.end_offset <= 9
    assert list(log_read.aborted) == [early]
    log_read = remote.read(10, 1)
    release(log_read.parts)
    assert list(log_read.aborted) == ([] if log_read.end_offset <= 12 else [late])


def test_a_reader_that_goes_on_finds_the_next_pieces_there() -> None:
    remote = Remote(log_of([[n] for n in range(200)], segment_bytes=1 << 20))
    remote.log.roll()
    remote.files, remote.history = copy_of(remote.log)
    remote = Remote(remote.log, chunk_bytes=200)
    remote.batches(0, 100)
    remote.runtime.run_turn()
    first = len(remote.files.requests)
    assert first <= 4  # the index, a piece, and one ahead
    for offset in range(1, 60):
        remote.batches(offset, 100)
        remote.runtime.run_turn()
    starts = [start for kind, start in remote.files.requests if kind is SegmentFile.LOG]
    assert starts == sorted(set(starts))
    here = max(starts) // 200
    at = 60 * (remote.history.copies[0].size_bytes // 200) // 200
    assert here - at >= READ_AHEAD_MAX // 2


def test_a_reader_that_comes_to_the_end_of_a_segment_finds_as_much_of_the_next_one_there() -> None:
    remote = Remote(log_of([[1]] * 80, segment_bytes=2048), chunk_bytes=256)
    first, second, *_ = remote.history.copies
    pieces = -(-first.size_bytes // 256)
    assert pieces >= 4

    def here(segment: RemoteSegment) -> list[int]:
        keys = (ChunkKey(segment.segment_id, SegmentFile.LOG.value, number) for number in range(pieces))
        return [key.number for key in keys if remote.cache.is_here(key)]

    offset = 0
    while offset < first.end_offset + 1:
        assert not here(second) or len(here(first)) == pieces, "not before all of this one is on its way"
        offset += len(remote.batches(offset, 250))
    assert here(second)[:3] == [0, 1, 2]


def test_reads_that_would_wait_too_long_a_line_are_refused() -> None:
    remote = Remote(log_of([[n] for n in range(50)], segment_bytes=300), requests_max=1, waiting_max=0)
    errors: list[BrokerError] = []
    remote.files.gate = Completion()

    async def one(offset: int) -> None:
        try:
            log_read = await remote.reads.read(offset, 100, True)
        except BrokerError as error:
            errors.append(error)
        else:
            assert log_read is not None
            release(log_read.parts)

    for offset in (0, 20):
        remote.runtime.spawn(one(offset), "reader")
    remote.runtime.run_turn()
    remote.files.gate.complete(None)
    remote.runtime.run_turn()
    assert [error.code for error in errors] == [ErrorCode.KAFKA_STORAGE_ERROR]


def test_a_store_that_is_away_is_an_error_of_the_read(remote: Remote) -> None:
    remote.files.away = True
    with pytest.raises(StoreUnavailableError):
        remote.batches(0)
    remote.files.away = False
    assert remote.batches(0)


@pytest.mark.parametrize(
    "changed",
    [b"\xff" * ENTRY_BYTES, encode_aborted([AbortedTransaction(7, 3, 9, 4)])],
    ids=["no index", "an index with other offsets"],
)
def test_a_cached_index_that_has_changed_costs_one_retriable_error(changed: bytes) -> None:
    """It was a defect of the task before, which ends the node; or the wrong records were left out."""
    remote = Remote(log_of([[1, 2]] * 10, segment_bytes=300), AbortedTransaction(7, 1, 9, 2))
    release(remote.read(0).parts)
    remote.source = SegmentBytes(remote.runtime, remote.files, remote.cache, remote._pace, chunk_bytes=256)
    remote.reads = RemoteReads(remote.runtime, remote.source, remote.history)
    for name in remote.runtime.files.list_dir(f"/data/{FOLDER}"):
        file = remote.runtime.files.open(f"/data/{FOLDER}/{name}")
        if file.size() == ENTRY_BYTES:
            file.pwritev([changed], 0)
        file.close()
    with pytest.raises(BrokerError, match="changed") as refusal:
        remote.batches(0)
    assert refusal.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert remote.batches(0)


def test_a_small_cache_bounds_what_is_brought_ahead() -> None:
    log = log_of([[n] for n in range(200)], segment_bytes=1 << 20)
    log.roll()
    remote = Remote(log, chunk_bytes=200, cache_bytes=16 * 200)
    for offset in range(60):
        remote.batches(offset, 100)
        remote.runtime.run_turn()
    starts = [start for kind, start in remote.files.requests if kind is SegmentFile.LOG]
    assert starts == sorted(set(starts)), "each piece is brought once"
    at = 60 * (remote.history.copies[0].size_bytes // 200) // 200
    assert max(starts) // 200 - at <= 3

"""A fetch that waits for more bytes: it is told what moves, counts, and reads only to answer.

Each of its partitions tells it when the end moves that the reader may read to: the log end for a follower, the high
watermark or the last stable offset for a consumer. It adds up how many bytes there are at most. Once they may be
enough, it reads the partitions that moved, and nothing else. Anything else that happens to a partition has that
partition checked anew, and an error or a divergence ends the wait, as in Kafka's ``DelayedFetch``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from blumfeld.broker.fetch.reads import CHANGED, FetchAttempt, PartitionRead, Reader
from blumfeld.broker.fetch_sessions import FetchPlan
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.watching.written_bytes import WrittenBytes
from blumfeld.spi.completion import Completion
from blumfeld.wire.messages.fetch import FetchResponse

TakeAnswer: TypeAlias = Callable[[Reader, FetchPlan, FetchAttempt], FetchResponse | Completion[FetchResponse]]
"""Makes the answer from an attempt, after its cold reads are done."""


class ParkedFetch(Completion[FetchResponse]):
    """Waits until ``bytes_min`` bytes may be read, an error comes, or the time is up. Implements ``Expires``.

    It is the completion of its own answer, because one is made for each long poll.
    """

    __slots__ = (
        "_attempt",
        "_bytes_at_most",
        "_ended",
        "_plan",
        "_reader",
        "_take",
        "_wait_ms",
    )

    def __init__(
        self, take: TakeAnswer, reader: Reader, plan: FetchPlan, attempt: FetchAttempt, wait_ms: int
    ) -> None:
        """:param attempt: what was read in this turn, and was not enough; its bytes are given back"""
        Completion.__init__(self)
        self._take = take
        self._reader = reader
        self._plan = plan
        self._attempt = attempt
        self._wait_ms = wait_ms
        self._ended = False
        self._bytes_at_most = 0
        if attempt.size_bytes:
            attempt.release()
        reader.ports.parking.until(self, wait_ms, reader.context.received_ms)
        if self._ended:
            return
        for one in attempt.reads:
            assert one.partition is not None, "a fetch with an error is not parked"
            one.parked = self
            one.partition.watchers.add(one, reader.follower)
        if reader.bytes_min > 1:
            self._count()
        reader.context.when_gone(self.gone)

    def moved(self, one: PartitionRead) -> None:
        """Count a partition's new bytes, and answer if there may be enough of them."""
        reader, partition = self._reader, one.partition
        assert partition is not None, "it is watched"
        if reader.follower and reader.is_throttled(partition):
            return  # a read would give nothing, for each append anew
        if reader.bytes_min > 1:
            end = reader.end_of(partition)
            if end <= one.asked.fetch_offset:
                return
            grown = _counted(partition).at_most(end) - one.total_before
            self._bytes_at_most += one.bytes_counted + grown - one.bytes_at_most
            one.bytes_at_most = one.bytes_counted + grown
            if self._bytes_at_most < reader.bytes_min:
                return
        self._try()

    def changed(self, one: PartitionRead) -> None:
        """Answer if the partition has an error now, or diverges. It may have become another one of the same name."""
        before = one.partition
        one.run_again(self._reader, 0, minimum_one_batch=False)
        one.age = CHANGED  # nothing was read, so the answer must look again
        if one.error or one.diverging is not None:
            self._try()
            return
        partition = one.partition
        if partition is not before and partition is not None and before is not None:
            before.watchers.remove(one, self._reader.follower)
            partition.watchers.add(one, self._reader.follower)
            one.total_before = _counted(partition).at_least(partition.log.log_start_offset)
        self.moved(one)

    def expire(self) -> None:
        """As ``Expires.expire``: answer with the bytes that are there, without an error."""
        self._ended = True
        try:
            self._attempt.again(self._reader)
            self._answer()
        except Exception as error:
            self._defect(error)

    def gone(self) -> None:
        """End the wait, because the connection has closed: the time that the client asked for may be long."""
        self._reader.ports.parking.forget(self, self._wait_ms)
        self._leave()
        self.complete(FetchResponse())

    def _try(self) -> None:
        """Read what moved. If it isn't enough after all, wait on with an exact count."""
        attempt, reader = self._attempt, self._reader
        try:
            attempt.again(reader)
            if not attempt.enough(reader):
                attempt.release()
                if reader.bytes_min > 1:
                    self._count()
                return
            reader.ports.parking.completed(self, self._wait_ms)
            self._answer()
        except Exception as error:
            self._defect(error)

    def _count(self) -> None:
        """Begin to count at what the attempt has read."""
        reader = self._reader
        self._bytes_at_most = 0
        for one in self._attempt.reads:
            partition = one.partition
            assert partition is not None, "a fetch with an error is not parked"
            counted_to = max(reader.end_of(partition), one.asked.fetch_offset)
            one.total_before = _counted(partition).at_least(counted_to)
            one.bytes_at_most = one.bytes_counted
            self._bytes_at_most += one.bytes_counted

    def _answer(self) -> None:
        self._leave()
        reader = self._reader
        reader.context.when_gone(None)
        answer = self._take(reader, self._plan, self._attempt)
        if isinstance(answer, Completion):
            answer.when_done(self._take_cold)
        else:
            self.complete(answer)

    def _take_cold(self, done: Completion[FetchResponse]) -> None:
        if done.error is None:
            self.complete(done.result())
        else:
            self.fail(done.error)

    def _leave(self) -> None:
        self._ended = True
        log_end = self._reader.follower
        for one in self._attempt.reads:
            one.parked = None
            if one.partition is not None:
                one.partition.watchers.remove(one, log_end)

    def _defect(self, error: Exception) -> None:
        if not self._ended:
            self._reader.ports.parking.forget(self, self._wait_ms)
        self._leave()
        if not self.done:
            self.fail(error)


def _counted(partition: Partition) -> WrittenBytes:
    return partition.watchers.counted(partition.log.placed_end_offset)

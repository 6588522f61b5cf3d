"""A range of one partition, fetched from its leader: one request is under way while an answer is read."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import pyarrow as pa

from blumfeld.client.fetch import PartitionFetch
from blumfeld.wire.batches.record_batch import RecordBatch, UnsupportedMagic, split_batches
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.fetch import FetchRequest, FetchTopic, PartitionData
from blumfeld_sink_spark.errors import ArchiveError, AwayError
from blumfeld_sink_spark.fetching.batches import rows_of
from blumfeld_sink_spark.fetching.brokers import AWAY, Brokers, check
from blumfeld_sink_spark.fetching.connection import FRAME_BYTES_MAX, Connection, TooOldError
from blumfeld_sink_spark.range_counter import Skips
from blumfeld_sink_spark.range_counts import LOST
from blumfeld_sink_spark.records import OffsetRange

MAX_BYTES = 52_428_800
PARTITION_MAX_BYTES = 8_388_608
MAX_WAIT_MS = 100
RETRY_S = 0.1

Lost = Callable[[int], int]
"""Returns the partition's first offset, for a position that the partition doesn't have; or raises."""


class RangeReader:
    """Reads once. ``position`` is the next offset to read, also after a failure."""

    def __init__(
        self,
        brokers: Brokers,
        wanted: OffsetRange,
        *,
        committed: bool,
        with_headers: bool,
        patience_s: float,
        lost: Lost,
        skips: Skips | None = None,
    ) -> None:
        """
        :param committed: leave out records of aborted and open transactions
        :param skips: gets each offset that gives no row
        """
        self._skips = Skips() if skips is None else skips
        self.position = wanted.start
        self._brokers = brokers
        self._wanted = wanted
        self._committed = committed
        self._with_headers = with_headers
        self._patience_s = patience_s
        self._lost = lost
        self._fetching = PartitionFetch(wanted.partition, PARTITION_MAX_BYTES, FRAME_BYTES_MAX)
        self._name = f"{wanted.topic}-{wanted.partition}"
        self._heard = time.monotonic()

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Raw rows in the order of their offsets, until the range's end.

        :raises TooOldError: the broker, or the records at ``position``, are too old
        :raises AwayError: nothing came for as long as the patience
        :raises ArchiveError: records are lost or damaged, or the broker refuses
        """
        self._heard = time.monotonic()
        while self.position < self._wanted.end:
            try:
                yield from self._fetch()
            except AWAY as error:
                self._brokers.close()
                self._check_patience(error)
                time.sleep(RETRY_S)

    def _fetch(self) -> Iterator[pa.RecordBatch]:
        leader = self._brokers.leader(self._wanted.topic, self._wanted.partition)
        self._ask(leader, self.position, diverging=True)
        while self.position < self._wanted.end:
            answer: Any = leader.answer()
            check(answer.error_code, self._name)
            partition = self._of(answer)
            if partition.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                gone, self.position = self.position, max(self.position, self._lost(self.position))
                self._skips.add(LOST, gone, self.position)
                batches, after = [], self.position
            else:
                check(partition.error_code, f"{self._name} at offset {self.position}")
                batches = self._split(partition)
                after = max(self.position, batches[-1].next_offset) if batches else self.position
            if after < self._wanted.end:
                self._ask(leader, after)
            if batches:
                yield from self._rows(partition, batches)
            if after > self.position:
                self._heard = time.monotonic()
            self.position = after
            self._check_patience()

    def _ask(self, leader: Connection, offset: int, *, diverging: bool = False) -> None:
        """:param diverging: a new leader is to say if its log isn't the one that was read so far"""
        partition = self._fetching.wanted(offset, diverging=diverging)
        leader.send(
            FetchRequest(
                max_wait_ms=MAX_WAIT_MS,
                min_bytes=1,
                max_bytes=max(MAX_BYTES, self._fetching.partition_max_bytes),
                isolation_level=int(self._committed),
                topics=[FetchTopic(topic=self._wanted.topic, partitions=[partition])],
            )
        )

    def _of(self, answer: Any) -> PartitionData:
        for topic in answer.responses:
            for each in topic.partitions:
                if (topic.topic, each.partition_index) == (self._wanted.topic, self._wanted.partition):
                    partition: PartitionData = each
                    return partition
        raise ArchiveError(f"the broker's answer is not about {self._name}")

    def _split(self, partition: PartitionData) -> list[RecordBatch]:
        if partition.diverging_epoch.end_offset >= 0:
            raise ArchiveError(
                f"{self._name}: a new leader's log ends its epoch {partition.diverging_epoch.epoch} at offset "
                f"{partition.diverging_epoch.end_offset}, and {self.position} was read: the log was cut. Nothing was "
                "published"
            )
        try:
            batches = list(split_batches(_data_of(partition), allow_partial=True))
        except UnsupportedMagic as error:
            raise TooOldError(error.message) from error
        except BrokerError as error:
            raise ArchiveError(f"{self._name} at offset {self.position}: {error.message}") from error
        if batches:
            self._fetching.leader_epoch = batches[-1].partition_leader_epoch
        elif partition.records:
            self._grow()
        return batches

    def _grow(self) -> None:
        """Asks for more bytes after a response in which not even one batch was whole.

        :raises ArchiveError: the limit is reached already
        """
        if not self._fetching.grow():
            raise ArchiveError(
                f"{self._name} at offset {self.position}: the broker cuts off a batch of more than "
                f"{FRAME_BYTES_MAX} bytes"
            )

    def _rows(self, partition: PartitionData, batches: list[RecordBatch]) -> Iterator[pa.RecordBatch]:
        aborted = [(each.producer_id, each.first_offset) for each in partition.aborted_transactions or ()]
        left = msgspec.structs.replace(self._wanted, start=self.position)
        return rows_of(
            batches,
            _data_of(partition),
            aborted if self._committed else (),
            left,
            with_headers=self._with_headers,
            skips=self._skips,
        )

    def _check_patience(self, error: Exception | None = None) -> None:
        if time.monotonic() - self._heard <= self._patience_s:
            return
        raise AwayError(
            f"{self._brokers.bootstrap} gave nothing of {self._name} from offset {self.position} on for "
            f"{self._patience_s:g} s, {self._wanted.end} was its end. Is the broker up?"
            + (f" ({error})" if error else "")
        )


def _data_of(partition: PartitionData) -> memoryview:
    data = partition.records or b""
    assert isinstance(data, (bytes, memoryview))  # as they are decoded
    return memoryview(data)

"""The requests of transactional producers, encoded once, so that a send patches only a few bytes.

Version 2 of transactions (KIP-890) speaks Produce v12, which adds partitions by itself, and EndTxn v5, whose answer has
the epoch of the next transaction. Version 0 speaks AddPartitionsToTxn v3, Produce v11 and EndTxn v4. These are the
versions that Java's producer speaks for each, but for Produce v13, which names a topic by its id.

An answer without an error has a known length, and its error codes stand at equal distances. So it is not decoded.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

from crc32c import crc32c

from blumfeld.wire.api import ApiKey
from blumfeld.wire.batches.record_batch import CRC_FROM
from blumfeld.wire.codec import decode
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
)
from blumfeld.wire.messages.end_txn import EndTxnRequest
from blumfeld.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from blumfeld_bench.drivers.frames import REQUEST_TIMEOUT_MS, Frame

OWN_EPOCHS = 2
"""First ``transaction.version`` that gives each transaction an epoch of its own (KIP-890)."""
PRODUCE_VERSIONS = {0: 11, 2: 12}
END_VERSIONS = {0: 4, 2: 5}
ADD_PARTITIONS_VERSION = 3
PARTITIONS_MAX = 126
"""Most partitions of a request whose count takes one byte in the answer."""

_U32 = struct.Struct(">I")
_CRC_AT = 17
_PRODUCER_AT = 43
_PRODUCER = struct.Struct(">qhi")  # producer id, epoch, base sequence
_END_PRODUCER = struct.Struct(">qh")
_END_PRODUCER_FROM_END = 12  # producer id, epoch, committed, tags
_END_ANSWER = struct.Struct(">4xx4xh")
_END_ANSWER_PRODUCER = struct.Struct(">qh")
_BODY_AT = 5  # correlation id, tags of the header


class ProduceFrame(Frame):
    """The batches of one transaction for the partitions of one leader."""

    def __init__(
        self, transactional_id: str | None, topic: str, batches: Mapping[int, bytes], version: int
    ) -> None:
        self._version = PRODUCE_VERSIONS[version]
        data = [PartitionProduceData(index=index, records=batch) for index, batch in batches.items()]
        request = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=REQUEST_TIMEOUT_MS,
            topic_data=[TopicProduceData(name=topic, partition_data=data)],
        )
        super().__init__(request, self._version)
        self._batches: list[tuple[int, memoryview]] = []
        at = 0
        for index, batch in batches.items():
            at = self.data.index(batch, at)
            self._batches.append((index, memoryview(self.data)[at : at + len(batch)]))
            at += len(batch)
        start = _BODY_AT + 1 + 1 + len(topic.encode()) + 1
        self._codes = _Codes(len(batches), start + 4, 33, start + 33 * len(batches) + 6)

    def seal(self, producer_id: int, epoch: int, sequences: Mapping[int, int]) -> None:
        """Write producer and sequence into each batch, and its CRC.

        :param sequences: each partition's next sequence; 0 for a partition that isn't there
        """
        for index, batch in self._batches:
            _PRODUCER.pack_into(batch, _PRODUCER_AT, producer_id, epoch, sequences.get(index, 0))
            _U32.pack_into(batch, _CRC_AT, crc32c(batch[CRC_FROM:]))

    def codes(self, answer: bytes) -> Sequence[int]:
        """Returns the error codes of an answer that has some."""
        if self._codes.none_in(answer):
            return ()
        decoded = decode(ProduceResponse, memoryview(answer), self._version, _BODY_AT)
        return [
            partition.error_code for topic in decoded.responses for partition in topic.partition_responses
        ]


class AddPartitionsFrame(Frame):
    """AddPartitionsToTxn for all partitions of one transaction."""

    def __init__(
        self, transactional_id: str, producer: tuple[int, int], topic: str, partitions: Sequence[int]
    ) -> None:
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=transactional_id,
            v3_and_below_producer_id=producer[0],
            v3_and_below_producer_epoch=producer[1],
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=list(partitions))],
        )
        super().__init__(request, ADD_PARTITIONS_VERSION)
        start = _BODY_AT + 4 + 1 + 1 + len(topic.encode()) + 1
        self._codes = _Codes(len(partitions), start + 4, 7, start + 7 * len(partitions) + 2)

    def codes(self, answer: bytes) -> Sequence[int]:
        """Returns the error codes of an answer that has some."""
        if self._codes.none_in(answer):
            return ()
        decoded = decode(AddPartitionsToTxnResponse, memoryview(answer), ADD_PARTITIONS_VERSION, _BODY_AT)
        return [
            partition.partition_error_code
            for topic in decoded.results_by_topic_v3_and_below
            for partition in topic.results_by_partition
        ]


class EndFrame(Frame):
    """EndTxn that commits."""

    def __init__(self, transactional_id: str, version: int) -> None:
        self._own_epochs = version >= OWN_EPOCHS
        request = EndTxnRequest(transactional_id=transactional_id, committed=True)
        super().__init__(request, END_VERSIONS[version])

    def of(self, producer_id: int, epoch: int) -> None:
        """Write the producer into the frame."""
        _END_PRODUCER.pack_into(self.data, len(self.data) - _END_PRODUCER_FROM_END, producer_id, epoch)

    def outcome(self, answer: bytes) -> tuple[int, tuple[int, int] | None]:
        """Returns the error code, and the producer of the next transaction where the answer has it."""
        (code,) = _END_ANSWER.unpack_from(answer)
        if code or not self._own_epochs:
            return code, None
        return code, _END_ANSWER_PRODUCER.unpack_from(answer, _END_ANSWER.size)


class _Codes:
    """The places of the error codes in an answer without an error."""

    def __init__(self, count: int, first_at: int, stride: int, size: int) -> None:
        self._first_at, self._stride, self._size = first_at, stride, size
        self._end = first_at + count * stride

    def none_in(self, answer: bytes) -> bool:
        """Whether the answer has no error. It may also say False for one without an error, but of another form."""
        first, end, stride = self._first_at, self._end, self._stride
        return (
            len(answer) == self._size
            and not any(answer[first:end:stride])
            and not any(answer[first + 1 : end : stride])
        )


def api_versions(version: int) -> dict[int, int]:
    """Returns the versions by API key that the producers of this ``transaction.version`` speak."""
    spoken = {int(ApiKey.PRODUCE): PRODUCE_VERSIONS[version], int(ApiKey.END_TXN): END_VERSIONS[version]}
    if version < OWN_EPOCHS:
        spoken[int(ApiKey.ADD_PARTITIONS_TO_TXN)] = ADD_PARTITIONS_VERSION
    return spoken

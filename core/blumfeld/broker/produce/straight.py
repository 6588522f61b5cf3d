"""The straight way of Produce: a request with one batch, served without the message codec. Nearly all requests take it.

Anything unusual (another shape, an error, an internal topic) goes the general way. That is safe because nothing was
changed by then: the general way starts from the same state, finds the same error and answers it.

:class:`StraightTransactional` serves a batch of a transaction that is open in its partition. The first batch of a
transaction goes the general way, because the coordinator must verify its partition (KIP-890). From then on the
partition knows the transaction, and the following batches need no question.

:class:`FrameShape` and :class:`OneBatch` know the byte layout of a request with one topic and one partition, and of its
answer. A parity test holds this way and the general one to the same answers.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from blumfeld.broker.ports import Ports
from blumfeld.broker.replicas.partition import Partition
from blumfeld.broker.replicas.rules.append_rules import ZSTD_FROM
from blumfeld.broker.replicas.waiting_appends import ACKS_ALL
from blumfeld.broker.serving.dispatch import Dispatcher, Route
from blumfeld.broker.serving.request import ConnectionState
from blumfeld.spi.internal_topics import is_internal
from blumfeld.spi.security import Authorizer
from blumfeld.spi.transport import Exchange
from blumfeld.wire.api import ApiKey
from blumfeld.wire.batches.record_batch import TRANSACTIONAL_BIT, RecordBatch
from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.errors import BrokerError, ErrorCode

_OLD_START = struct.Struct(">hhiih")
"""Length of the transactional id, acks, timeout, number of topics, length of the topic's name."""
_NEW_START = struct.Struct(">BhiBB")
"""The same fields with compact lengths: each length or count is encoded as itself plus one."""
_NEW_START_BYTES = _NEW_START.size
_TWO_I32 = struct.Struct(">ii")
_COUNT_AND_INDEX = struct.Struct(">Bi")
_I32 = struct.Struct(">i")
_unpack_i16 = struct.Struct(">h").unpack_from
_unpack_i32 = _I32.unpack_from

FLEXIBLE_FROM = 9
TOPIC_ID_FROM = 13
UUID_BYTES = 16
NAME_BYTES_MAX = 126
"""Longest topic name whose compact length takes one byte. The general way serves longer names."""


class OneBatch:
    """The meaning of a request's prefix (all bytes up to and with the partition index), and its answer's layout.

    A client sends the same prefix with each request to the same partition, so one object per prefix is made and
    reused.
    """

    __slots__ = ("acks", "after_records", "answer", "before_base", "index", "timeout_ms", "topic")

    def __init__(self, version: int, acks: int, timeout_ms: int, topic: bytes, index: int) -> None:
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic = topic
        """The topic's name in UTF-8, or its 16-byte id from v13 on."""
        self.index = index
        if version >= FLEXIBLE_FROM:
            name = topic if version >= TOPIC_ID_FROM else bytes((len(topic) + 1,)) + topic
            self.before_base = b"\x00\x02" + name + b"\x02" + _I32.pack(index)
            # No record errors, no message, tags of partition and topic; throttle time and tags of the answer.
            self.after_records = b"\x01\x00\x00\x00" + bytes(4) + b"\x00"
        else:
            self.before_base = _I32.pack(1) + len(topic).to_bytes(2, "big") + topic + _TWO_I32.pack(1, index)
            self.after_records = (b"\x00\x00\x00\x00\xff\xff" if version >= 8 else b"") + bytes(4)
        start = f"{len(self.before_base)}s"
        offsets = "hqqq" if version >= 5 else "hqq"
        self.answer = struct.Struct(f">i{start}{offsets}{len(self.after_records)}s")

    def response(
        self, correlation_id: int, code: int, base_offset: int, append_ms: int, log_start_offset: int
    ) -> bytes:
        """Returns the whole answer, with the response header and without the frame's size."""
        return self.answer.pack(
            correlation_id,
            self.before_base,
            code,
            base_offset,
            append_ms,
            log_start_offset,
            self.after_records,
        )

    def response_v3(
        self, correlation_id: int, code: int, base_offset: int, append_ms: int, _log_start_offset: int
    ) -> bytes:
        """Returns the same answer for versions 3 and 4, which have no log start offset."""
        return self.answer.pack(
            correlation_id, self.before_base, code, base_offset, append_ms, self.after_records
        )


class FrameShape:
    """Byte layout of a Produce request of one version with one partition.

    A prefix is that of a request without a transactional id, unless the name says otherwise.
    """

    def __init__(self, version: int) -> None:
        self.version = version
        self.flexible = version >= FLEXIBLE_FROM
        self.topic_ids = version >= TOPIC_ID_FROM
        if self.topic_ids:
            self.prefix_bytes, self.name_length_at = _NEW_START_BYTES - 1 + UUID_BYTES + 5, 0
        elif self.flexible:
            self.prefix_bytes, self.name_length_at = _NEW_START_BYTES + 4, _NEW_START_BYTES - 1
        else:
            self.prefix_bytes, self.name_length_at = _OLD_START.size + 8, _OLD_START.size - 1
        """The prefix is ``prefix_bytes`` long, plus the value of its byte at ``name_length_at``. With topic ids that
        byte is the length of the transactional id, which is 0 in this shape. One byte is enough for the older
        versions, too: a name has at most 249 characters, and ``parse_prefix`` refuses any prefix that doesn't fit."""

    def transactional_id_bytes(self, frame: memoryview, position: int) -> int:
        """Returns the length of the transactional id of the request whose body begins at ``position``: 0 if it is
        empty, -1 if there is none, or one of more than 126 bytes.

        :raises IndexError: the frame is cut off
        :raises struct.error: the same
        """
        if not self.flexible:
            return int(_unpack_i16(frame, position)[0])
        length = frame[position] - 1
        return length if length <= NAME_BYTES_MAX else -1

    def prefix_end(self, frame: memoryview, start: int) -> int:
        """Returns the end of the prefix of a request with a transactional id.

        :param start: where the prefix would begin without the id: so many bytes later than it does
        :raises IndexError: the frame is cut off
        """
        # With topic ids the byte at ``name_length_at`` is the id's last one here.
        name = 0 if self.topic_ids else frame[start + self.name_length_at]
        return start + self.prefix_bytes + name

    def without_id(self, prefix: bytes, id_bytes: int) -> bytes:
        """Returns the prefix of the same request without its transactional id."""
        if self.flexible:
            return b"\x00" + prefix[1 + id_bytes :]
        return b"\xff\xff" + prefix[2 + id_bytes :]

    def parse_prefix(self, prefix: bytes) -> OneBatch | None:
        """Returns the meaning of the prefix, or ``None`` if the request has another shape."""
        try:
            return self._parse_flexible(prefix) if self.flexible else self._parse_old(prefix)
        except (struct.error, IndexError):
            return None

    def _parse_old(self, prefix: bytes) -> OneBatch | None:
        id_length, acks, timeout_ms, topics, name_length = _OLD_START.unpack_from(prefix)
        if id_length != -1 or topics != 1 or name_length < 0 or len(prefix) != 22 + name_length:
            return None
        partitions, index = _TWO_I32.unpack_from(prefix, 14 + name_length)
        if partitions != 1:
            return None
        return OneBatch(self.version, acks, timeout_ms, prefix[14 : 14 + name_length], index)

    def _parse_flexible(self, prefix: bytes) -> OneBatch | None:
        id_length, acks, timeout_ms, topics, name_length = _NEW_START.unpack_from(prefix)
        if id_length != 0 or topics != 2:
            return None
        start = _NEW_START_BYTES
        if self.topic_ids:
            start -= 1
            end = start + UUID_BYTES
        else:
            end = start + name_length - 1
            if not 1 <= name_length <= NAME_BYTES_MAX + 1:
                return None
        if len(prefix) != end + 5:
            return None
        partitions, index = _COUNT_AND_INDEX.unpack_from(prefix, end)
        return None if partitions != 2 else OneBatch(self.version, acks, timeout_ms, prefix[start:end], index)

    @staticmethod
    def old_records(frame: memoryview, position: int) -> int:
        """Returns the position of the first record batch; -1 if the records don't end with the frame.

        :param position: the end of the prefix
        :raises struct.error: the frame ends before the records' length does
        """
        at = position + 4
        return at if _unpack_i32(frame, position)[0] == len(frame) - at else -1

    @staticmethod
    def flexible_records(frame: memoryview, position: int) -> int:
        """The same for versions 9 and up; -1 also if tagged fields follow the records.

        :raises IndexError: the frame ends before the records' length does
        """
        end = len(frame)
        size = shift = 0
        while True:
            byte = frame[position]
            position += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                return -1
        # The last three bytes count the tagged fields of partition, topic and request. All must be 0.
        if size < 1 or position + size + 2 != end or frame[end - 3] or frame[end - 2] or frame[end - 1]:
            return -1
        return position


PREFIXES_MAX = 4096
"""Request prefixes that are remembered for each version. A client can send any number of them, so at this bound all are
forgotten and resolved again."""
_NONE = ErrorCode.NONE
_ZSTD = Codec.ZSTD.value
_PRODUCE = int(ApiKey.PRODUCE)


class StraightProduce:
    """Serves Produce of one version: implements ``dispatch.Serve`` in front of the general route."""

    def __init__(self, ports: Ports, dispatcher: Dispatcher, general: Route) -> None:
        self.flexible = general.flexible
        self.ports = ports
        self.general = general
        self.counts = None if dispatcher.metrics is None else dispatcher.metrics.counts_of(_PRODUCE)
        self.authorizer = dispatcher.authorizer
        self._manager = ports.hosted
        self.waiters: tuple[type[OneWritten], type[OneWritten]] = (OneWritten, OneCommitted)
        """What waits for a batch to be written, and to be committed."""
        self._shape = shape = FrameShape(general.version)
        self._prefix_bytes, self._name_length_at = shape.prefix_bytes, shape.name_length_at
        self._records = shape.flexible_records if general.flexible else shape.old_records
        self._tail = 3 if general.flexible else 0
        self.general_bits = TRANSACTIONAL_BIT | (_ZSTD if general.version < ZSTD_FROM else 0)
        """Attribute bits that send a batch the general way: transactional ones always, zstd before Produce v7
        (KIP-110). Among the codec numbers only zstd's has bit 2 set, so one mask tests for it."""
        self._targets: dict[bytes, Target] = {}
        self._transactional: StraightTransactional | None = None
        self.generation = -1
        """The partitions' generation for which the remembered targets hold."""

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> None:
        """As ``Serve.serve``."""
        # A partition came, went or changed its leader: every remembered target may be stale.
        if self.generation != self._manager.generation:
            self._targets.clear()
            self.generation = self._manager.generation
        try:
            end = position + self._prefix_bytes + frame[position + self._name_length_at]
            prefix = frame[position:end].tobytes()
            at = self._records(frame, end)
        except (IndexError, struct.error):  # the frame is cut off
            prefix, at = b"", -1
        target = self._targets.get(prefix) or self._resolve(prefix)
        if target is None or at < 0:
            self._otherwise(exchange, frame, position, correlation_id)
            return
        try:
            pending = target.waiter(self, exchange, target, correlation_id, len(frame))
            batch = RecordBatch(frame, at)
            if batch.size_bytes != len(frame) - at - self._tail or batch.attributes & self.general_bits:
                self.general.serve(exchange, frame, position, correlation_id)
                return
            pending.base_offset, pending.append_ms = target.partition.append(batch, target.acks, pending)
        except BrokerError:
            # append places nothing when it raises, so the general way may try again; it answers with the details.
            self.general.serve(exchange, frame, position, correlation_id)
            return
        pending.placed()

    def _otherwise(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> None:
        """Serve a request of another shape: with a transactional id perhaps the straight way, too."""
        try:
            with_id = self._shape.transactional_id_bytes(frame, position) > 0
        except (IndexError, struct.error):  # the frame is cut off
            with_id = False
        if with_id:
            transactional = self._transactional or self._load_transactional()
            if transactional.serve(exchange, frame, position, correlation_id):
                return
        self.general.serve(exchange, frame, position, correlation_id)

    def _load_transactional(self) -> StraightTransactional:
        self._transactional = StraightTransactional(self, self._shape)
        return self._transactional

    def _resolve(self, prefix: bytes) -> Target | None:
        target = self.target_of(prefix)
        if target is not None:
            if len(self._targets) >= PREFIXES_MAX:
                self._targets.clear()
            self._targets[prefix] = target
        return target

    def target_of(self, prefix: bytes) -> Target | None:
        """Returns the target of requests with this prefix; ``None`` if they go the general way."""
        request_head = self._shape.parse_prefix(prefix)
        if request_head is None or request_head.acks not in (ACKS_ALL, 0, 1):
            return None
        if self._shape.topic_ids:
            partition = self._manager.find_by_id(request_head.topic, request_head.index)
        else:
            try:
                partition = self._manager.find(request_head.topic.decode(), request_head.index)
            except UnicodeDecodeError:
                return None
        if partition is None or is_internal(partition.partition.topic):
            return None
        target = Target(request_head, partition, self.general.version, self.waiters)
        if self.authorizer is not None:
            target.guard(self.authorizer, ("Write", "Topic", partition.partition.topic))
        return target


class Target:
    """The partition that requests with one prefix append to, and the way to answer them."""

    __slots__ = ("acks", "one", "partition", "response", "waiter")

    def __init__(
        self,
        one_batch: OneBatch,
        partition: Partition,
        version: int,
        waiters: tuple[type[OneWritten], type[OneWritten]],
    ) -> None:
        self.one = one_batch
        self.acks = one_batch.acks
        self.partition = partition
        self.response = one_batch.response if version >= 5 else one_batch.response_v3
        self.waiter: Callable[[StraightProduce, Exchange, Target, int, int], OneWritten] = waiters[
            one_batch.acks == ACKS_ALL
        ]

    def guard(self, authorizer: Authorizer, right: tuple[str, str, str]) -> None:
        """Let only connections in that are known to have this right. A target is remembered across connections, so
        each request is looked at: its connection remembers what the authorizer allowed it. The general way asks the
        authorizer."""
        unguarded = self.waiter

        def guarded(
            way: StraightProduce, exchange: Exchange, target: Target, correlation_id: int, frame_bytes: int
        ) -> OneWritten:
            state: ConnectionState = exchange.connection.state
            if state.generation != authorizer.generation or right not in state.allowed:
                raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            return unguarded(way, exchange, target, correlation_id, frame_bytes)

        self.waiter = guarded


class OneWritten:
    """A request with acks=0 or acks=1 that waits until its batch is written. Implements ``AppendWaiter``."""

    __slots__ = (
        "append_ms",
        "base_offset",
        "correlation_id",
        "exchange",
        "frame_bytes",
        "received_ms",
        "target",
        "way",
    )

    append_ms: int
    base_offset: int
    received_ms: float
    """Monotonic time of the partition's first append in this turn: the start of the request's measured time. One clock
    reading serves all requests of the turn."""

    def __init__(
        self, way: StraightProduce, exchange: Exchange, target: Target, correlation_id: int, frame_bytes: int
    ) -> None:
        self.way = way
        self.exchange = exchange
        self.target = target
        self.correlation_id = correlation_id
        self.frame_bytes = frame_bytes

    @property
    def commit_wait_ms(self) -> float | None:
        """As ``AppendWaiter.commit_wait_ms``: nothing is waited for but the write."""
        return None

    def placed(self) -> None:
        """Let the connection's next request start: this batch has its offsets, so order is kept."""
        self.received_ms = self.target.partition.placing_began_ms
        self.exchange.let_next_start()

    def appended(self, code: ErrorCode) -> None:
        """As ``AppendWaiter.appended``."""
        target = self.target
        answer = b""
        if target.acks == 0:
            self.exchange.no_answer()
            if code is not _NONE:
                self._count_error(code)
                self.exchange.connection.close(f"produce with acks=0 failed: {code.name}")
        else:
            if code is _NONE:
                start = target.partition.log.log_start_offset
                answer = target.response(self.correlation_id, 0, self.base_offset, self.append_ms, start)
            else:
                self._count_error(code)
                answer = target.response(self.correlation_id, int(code), -1, -1, -1)
            self.exchange.answer((answer,))
        counts = self.way.counts
        if counts is not None:
            elapsed_ms = target.partition.told_ms - self.received_ms
            if counts.measured and not counts.above_ms < elapsed_ms <= counts.up_to_ms:
                counts.enter_bucket(elapsed_ms)
            counts.requests += 1
            counts.time_ms += elapsed_ms
            counts.request_bytes += self.frame_bytes
            counts.response_bytes += len(answer)

    def _count_error(self, code: ErrorCode) -> None:
        if self.way.counts is not None:
            self.way.counts.failed(int(code))


class OneCommitted(OneWritten):
    """A request with acks=all that waits until its batch is committed."""

    __slots__ = ()

    @property
    def commit_wait_ms(self) -> float | None:
        """As ``AppendWaiter.commit_wait_ms``."""
        return self.target.one.timeout_ms


class StraightTransactional:
    """Serves the transactional requests of one version, behind ``StraightProduce``."""

    def __init__(self, way: StraightProduce, shape: FrameShape) -> None:
        self._way = way
        self._shape = shape
        self._records = shape.flexible_records if shape.flexible else shape.old_records
        self._tail = 3 if shape.flexible else 0
        self._bits = way.general_bits
        self._targets: dict[bytes, Target] = {}
        self._generation = -1
        # Imported with the first transactional request, so that a start doesn't pay for it.
        from blumfeld.broker.produce.transactional import is_open_for

        self._is_open_for = is_open_for

    def serve(self, exchange: Exchange, frame: memoryview, position: int, correlation_id: int) -> bool:
        """Serve a request as ``Serve.serve``. Returns False if it must go the general way."""
        way = self._way
        if self._generation != way.generation:
            self._targets.clear()
            self._generation = way.generation
        try:
            id_bytes = self._shape.transactional_id_bytes(frame, position)
            if id_bytes <= 0:
                return False
            end = self._shape.prefix_end(frame, position + id_bytes)
            prefix = frame[position:end].tobytes()
            at = self._records(frame, end)
        except (IndexError, struct.error):  # the frame is cut off
            return False
        target = self._targets.get(prefix) or self._resolve(prefix, id_bytes)
        if target is None or at < 0:
            return False
        try:
            pending = target.waiter(way, exchange, target, correlation_id, len(frame))
            batch = RecordBatch(frame, at)
            if (
                batch.size_bytes != len(frame) - at - self._tail
                or batch.attributes & self._bits != TRANSACTIONAL_BIT
                or not self._is_open_for(target.partition.state.producers.producer(batch.producer_id), batch)
            ):
                return False
            pending.base_offset, pending.append_ms = target.partition.append(batch, target.acks, pending)
        except BrokerError:
            return False
        pending.placed()
        return True

    def _resolve(self, prefix: bytes, id_bytes: int) -> Target | None:
        if self._way.ports.transactions() is None:
            return None
        target = self._way.target_of(self._shape.without_id(prefix, id_bytes))
        if target is not None:
            if self._way.authorizer is not None:
                at = 1 if self._shape.flexible else 2
                try:
                    transactional_id = prefix[at : at + id_bytes].decode()
                except UnicodeDecodeError:
                    return None
                target.guard(self._way.authorizer, ("Write", "TransactionalId", transactional_id))
            if len(self._targets) >= PREFIXES_MAX:
                self._targets.clear()
            self._targets[prefix] = target
        return target

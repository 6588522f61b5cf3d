"""ListOffsets (key 2), v1-11 (Kafka's ``ListOffsetsRequest``).

v2  isolation level.  v4 leader epochs.  v5 OFFSET_NOT_AVAILABLE.  v6 flexible.
v7  -3: the record with the highest timestamp.  v8 -4: earliest local.  v9 -5: latest tiered.  v11 -6: earliest
pending upload. v10 a timeout for look-ups in a remote store. Without tiered storage -4 is -2, and -5 and -6 find
nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from blumfeld.broker.ports import Ports
from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.steps import STEP_ELEMENTS, Buckets, in_parts, result_of, small_at_once
from blumfeld.spi.storage import TimestampOffset
from blumfeld.spi.tiering import TieredLog, local_log_start_offset
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
EARLIEST_LOCAL, LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -4, -5, -6
SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
"""The first version that knows each special timestamp."""
CONSUMER = -1
READ_COMMITTED = 1
NOT_AVAILABLE_FROM = 5

Found = TimestampOffset | None


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of ListOffsets."""
    serve = small_at_once(ListOffsets(ports).serve)
    return [ApiHandler(key=2, min_version=1, max_version=11, handle=serve, error_response=failed)]


def failed(request: ListOffsetsRequest, code: int, _message: str | None) -> ListOffsetsResponse:
    """Returns an answer with this error for every partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, error_code=code)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


class ListOffsets:
    """Looks up one offset for each partition of a request."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def serve(self, request: ListOffsetsRequest, context: RequestContext) -> Steps[Any]:
        """Look the offsets up, some partitions at a time. Duplicates are found first: they have one entry, with an
        error. A look-up by time may have to wait for cold bytes."""
        twice = yield from _named_twice(request, few=not context.is_large)
        answered: set[tuple[str, int]] = set()

        def look_up(part: ListOffsetsRequest, context: RequestContext) -> Steps[ListOffsetsResponse]:
            response, waiting = self._looked_up(part, context, twice, answered)
            for cold, lookup in waiting:
                if not cold.done:
                    yield cold
                lookup.done(cold)
            return response

        path = ("topics", "partitions")
        response = yield from result_of(in_parts(look_up, failed, path, path)(request, context))
        yield from _one_entry_a_topic(response, few=not context.is_large)
        return response

    def _looked_up(
        self,
        request: ListOffsetsRequest,
        context: RequestContext,
        twice: Collection[tuple[str, int]],
        seen_keys: set[tuple[str, int]],
    ) -> tuple[ListOffsetsResponse, list[tuple[Completion[Found], Lookup]]]:
        """Returns the answer, with an entry for each topic of the request, and the look-ups that it waits for.

        :param seen_keys: those of ``twice`` that have their entry
        """
        response = ListOffsetsResponse()
        waiting: list[tuple[Completion[Found], Lookup]] = []
        for topic in request.topics:
            answers = ListOffsetsTopicResponse(name=topic.name)
            response.topics.append(answers)
            for partition in topic.partitions:
                key = (topic.name, partition.partition_index)
                if key in seen_keys:
                    continue
                answer = ListOffsetsPartitionResponse(partition_index=partition.partition_index)
                answers.partitions.append(answer)
                try:
                    if key in twice:
                        seen_keys.add(key)
                        raise BrokerError(ErrorCode.INVALID_REQUEST)
                    lookup = Lookup(self._ports, request, context, topic.name, partition, answer)
                    cold = lookup.run()
                except BrokerError as error:
                    answer.error_code = int(error.code)
                    continue
                if cold is not None:
                    waiting.append((cold, lookup))
        return response, waiting


def _one_entry_a_topic(response: ListOffsetsResponse, *, few: bool) -> Steps[None]:
    """Put the partitions of each topic into one entry, and leave topics without partitions out, as Kafka does."""
    named = Buckets(few=few)
    topics: list[ListOffsetsTopicResponse] = []
    for number, topic in enumerate(response.topics):
        if number % STEP_ELEMENTS == STEP_ELEMENTS - 1:
            yield None
        if not topic.partitions:
            continue
        first = named.of(topic.name).setdefault(topic.name, topic)
        if first is topic:
            topics.append(topic)
        else:
            first.partitions += topic.partitions
    response.topics = topics
    yield from named.let_go()


def _named_twice(request: ListOffsetsRequest, *, few: bool) -> Steps[set[tuple[str, int]]]:
    seen = Buckets(few=few)
    number = 0
    twice: set[tuple[str, int]] = set()
    for topic in request.topics:
        for partition in topic.partitions:
            key = (topic.name, partition.partition_index)
            bucket = seen.of(key)
            if key in bucket:
                twice.add(key)
            bucket[key] = True
            number += 1
            if not number % STEP_ELEMENTS:
                yield None
        number += 1
        if not number % STEP_ELEMENTS:
            yield None
    yield from seen.let_go()
    return twice


def _border(log: TieredLog, timestamp: int) -> int:
    """Returns the last offset in the remote store, or the first that waits for its copy; -1 if it isn't known."""
    copied_end_offset = log.copied_end_offset
    if timestamp == LATEST_TIERED:
        return max(copied_end_offset - 1, -1)
    if copied_end_offset >= 0:
        return max(copied_end_offset, log.log_start_offset)
    # With a start of its own the local part begins behind copies that this leader doesn't know yet.
    start = log.log_start_offset
    return start if log.local_log_start_offset == start else -1


class _InTime(Completion[Found]):
    """A look-up in a remote store, or REQUEST_TIMED_OUT. Implements ``Expires``."""

    __slots__ = ("_parking", "_wait_ms")

    def __init__(self, place: Completion[Found], ports: Ports, wait_ms: int) -> None:
        """:param wait_ms: the client's limit; 0 for ``remote.list.offsets.request.timeout.ms``"""
        super().__init__()
        self._parking = ports.parking
        self._wait_ms = wait_ms
        if wait_ms <= 0:
            self._wait_ms = ports.cluster.config.int("remote.list.offsets.request.timeout.ms")
        self._parking.until(self, self._wait_ms, ports.runtime.monotonic_ms())
        place.when_done(self._came)

    def expire(self) -> None:
        """The time is up."""
        self.fail(BrokerError(ErrorCode.REQUEST_TIMED_OUT))

    def _came(self, place: Completion[Found]) -> None:
        if self.done:
            return
        self._parking.completed(self, self._wait_ms)
        if place.error is None:
            self.complete(place.result())
        else:
            self.fail(place.error)


class Lookup:
    """The look-up for one partition."""

    def __init__(
        self,
        ports: Ports,
        request: ListOffsetsRequest,
        context: RequestContext,
        topic: str,
        offset_query: ListOffsetsPartition,
        answer: ListOffsetsPartitionResponse,
    ) -> None:
        self._ports = ports
        self._topic = topic
        self._asked = offset_query
        self._answer = answer
        self._context = context
        self._consumer = request.replica_id == CONSUMER
        self._read_committed = request.isolation_level == READ_COMMITTED
        self._wait_ms: int = request.timeout_ms
        """The client's limit for a look-up in a remote store; 0 for the broker's own."""
        self._last_fetchable = -1
        self._behind = False
        self._partition: Partition | None = None
        """The partition whose log is being searched, while a completion is pending."""

    def run(self) -> Completion[Found] | None:
        """Fill in the answer, or return the completion that it waits for. Raises BrokerError."""
        offset_query = self._asked
        if not self._context.authorize("Describe", "Topic", self._topic):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if offset_query.timestamp < EARLIEST_PENDING_UPLOAD or self._context.api_version < SINCE.get(
            offset_query.timestamp, 0
        ):
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        partition = self._ports.hosted.leading(self._topic, offset_query.partition_index)
        code = partition.check_leader_epoch(offset_query.current_leader_epoch)
        if code:
            raise BrokerError(code)
        end = partition.log.written_end_offset
        self._last_fetchable = partition.readable_end(self._read_committed) if self._consumer else end
        # A new leader's high watermark may lie below one that its predecessor has answered. It is right again when it
        # has passed the start of the leader's epoch (KIP-207).
        self._behind = self._consumer and partition.high_watermark < partition.leader_start_offset
        try:
            return self._look_up(partition)
        except OSError as error:
            partition.fail_if_bad(error)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR) from error

    def _look_up(self, partition: Partition) -> Completion[Found] | None:
        timestamp = self._asked.timestamp
        if timestamp == LATEST:
            if self._behind:
                raise self._not_available()
            self._tell(TimestampOffset(-1, self._last_fetchable, partition.leader_epoch))
        elif timestamp in (EARLIEST, EARLIEST_LOCAL):
            local = timestamp == EARLIEST_LOCAL
            start = local_log_start_offset(partition.log) if local else partition.log.log_start_offset
            self._tell(TimestampOffset(-1, start, partition.state.epochs.epoch_for_offset(start)))
        elif timestamp == MAX_TIMESTAMP or timestamp >= 0:
            log = partition.log
            place = log.max_timestamp() if timestamp == MAX_TIMESTAMP else log.offset_for_time(timestamp)
            if isinstance(place, Completion):
                self._partition = partition
                return place if partition.tiered is None else _InTime(place, self._ports, self._wait_ms)
            self._found(place)
        elif partition.tiered is not None:
            offset = _border(partition.tiered, timestamp)
            self._found(TimestampOffset(-1, offset, partition.state.epochs.epoch_for_offset(offset)))
        return None

    def _found(self, place: Found) -> None:
        if place is not None and place.offset < self._last_fetchable:
            self._tell(place)
        elif self._behind:
            raise self._not_available()

    def _tell(self, place: TimestampOffset) -> None:
        self._answer.timestamp = place.timestamp_ms
        self._answer.offset = place.offset
        if self._context.api_version >= 4:
            self._answer.leader_epoch = place.leader_epoch

    def _not_available(self) -> BrokerError:
        new = self._context.api_version >= NOT_AVAILABLE_FROM
        return BrokerError(ErrorCode.OFFSET_NOT_AVAILABLE if new else ErrorCode.LEADER_NOT_AVAILABLE)

    def done(self, done: Completion[Found]) -> None:
        """Take the result of the pending look-up."""
        try:
            self._found(done.result())
        except BrokerError as error:
            self._answer.error_code = int(error.code)
        except OSError as error:
            if self._partition is not None and self._partition.closed is None:
                self._partition.fail_if_bad(error)
            self._answer.error_code = int(ErrorCode.KAFKA_STORAGE_ERROR)

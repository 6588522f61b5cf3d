"""Fetch (key 1), v4-18.

v5  log start offset.  v7 sessions (KIP-227).  v9 leader epochs (KIP-320).  v11 rack.  v12 flexible, diverging epochs.
v13 topics by id.  v15 replica state.  v16 the leader's endpoint, on errors.  v17-18 for the metadata quorum.
Left out: client quotas. Followers of throttled partitions outside of the ISR wait for the replication quota (KIP-73).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.broker.fetch.reads import (
    CHANGED,
    READ_COMMITTED,
    FetchAttempt,
    ParkedFetch,
    PartitionRead,
    Reader,
)
from blumfeld.broker.fetch.straight_answer import STRAIGHT_FROM, straight
from blumfeld.broker.fetch_sessions import FetchPartition, FetchPlan, PartitionKey
from blumfeld.broker.membership.leaders import hinted_leader
from blumfeld.broker.ports import Ports
from blumfeld.config.replica_selectors import RACK_AWARE
from blumfeld.config.values import BrokerConfig
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.steps import CHUNK_ELEMENTS, STEP_ELEMENTS, Buckets, at_once, errors_by_elements, let_go
from blumfeld.spi.storage import LogRead
from blumfeld.wire.api import ApiKey
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
    SnapshotId,
)
from blumfeld.wire.messages.fetch import FetchPartition as AskedPartition
from blumfeld.wire.primitives import Records

TOPIC_ID_FROM = 13
PREFERRED_FROM = 11
"""Version from which on consumers read from followers, too, and name their rack."""
REPLICA_STATE_FROM = 15
LEADER_FROM = 12
ENDPOINTS_FROM = 16
STORAGE_ERROR_FROM = 6
# One value serves all answers, because it is replaced and never changed.
_FETCH = int(ApiKey.FETCH)
_NO_EPOCH = EpochEndOffset()
_NO_LEADER = LeaderIdAndEpoch()
_NO_SNAPSHOT = SnapshotId()
_LEADER_ERRORS = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of Fetch."""
    fetch = Fetch(ports)
    return [
        ApiHandler(
            key=1,
            min_version=4,
            max_version=18,
            handle=fetch.handle,
            error_response=errors_by_elements(failed, ("topics", "partitions"), ("responses", "partitions")),
        )
    ]


def failed(request: FetchRequest, code: int, _message: str | None) -> FetchResponse:
    """The error at the top, and for every partition named. One of authorization stands at the partitions alone."""
    return FetchResponse(
        error_code=0 if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED else code,
        responses=[
            FetchableTopicResponse(
                topic=topic.topic,
                topic_id=topic.topic_id,
                partitions=[_refused(p.partition, code) for p in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _refused(index: int, code: int) -> PartitionData:
    return PartitionData(
        partition_index=index, error_code=code, high_watermark=-1, aborted_transactions=None, records=b""
    )


def _asked(topic: FetchTopic, p: AskedPartition, by_id: bool) -> FetchPartition:
    return FetchPartition(
        topic.topic_id if by_id else topic.topic,
        p.partition,
        p.fetch_offset,
        p.partition_max_bytes,
        p.current_leader_epoch,
        p.last_fetched_epoch,
        p.log_start_offset,
    )


def _records(read: LogRead | None) -> Records:
    if read is None:
        return b""
    parts = read.parts
    return parts[0] if len(parts) == 1 else parts  # type: ignore[return-value]


class Fetch:
    """Answers the fetches of consumers and followers."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports
        self._defects = RepeatedEvents(ports.runtime)
        self._topic_bytes = ports.hosted.topic_bytes
        self._config: BrokerConfig | None = None
        self._bytes_max = 0
        """``fetch.max.bytes`` of :attr:`_config`, which is a value: a change at run time puts another in its place."""
        self._selects_by_rack = False
        """Whether ``replica.selector.class`` is Kafka's ``RackAwareReplicaSelector``."""

    def handle(
        self, request: FetchRequest, context: RequestContext
    ) -> FetchResponse | Completion[FetchResponse] | Steps[Any]:
        """Answer at once if there are enough bytes, an error, or no time to wait. Otherwise park the request
        (docs/design.md, rule 6)."""
        if context.is_large:
            return self._many(request, context)
        by_id = context.api_version >= TOPIC_ID_FROM
        reader = self._reader(request, context)
        fetch_partitions: list[FetchPartition] = []
        for topic in request.topics:
            for p in topic.partitions:
                fetch_partitions.append(_asked(topic, p, by_id))  # noqa: PERF401 - without a frame of its own
        forgotten: list[PartitionKey] = []
        for gone in request.forgotten_topics_data:
            forgotten += [(gone.topic_id if by_id else gone.topic, index) for index in gone.partitions]
        try:
            plan = self._plan(request, reader, fetch_partitions, forgotten)
        except BrokerError as error:
            return self._failed(error)
        return self._serve(reader, plan, FetchAttempt(reader, plan), request.max_wait_ms)

    def _failed(self, error: BrokerError) -> FetchResponse:
        self._ports.count_error(_FETCH, int(error.code))
        return FetchResponse(error_code=int(error.code))

    def _many(self, request: FetchRequest, context: RequestContext) -> Steps[Any]:
        """Serve many partitions. A partition that is named twice is fetched once, and its last mention
        counts, as in Kafka."""
        by_id = context.api_version >= TOPIC_ID_FROM
        reader = self._reader(request, context)
        named = Buckets()
        fetch_partitions: list[FetchPartition] = []
        seen = 0
        for topic in request.topics:
            for p in topic.partitions:
                fetch_partition = _asked(topic, p, by_id)
                known_as = named.of(fetch_partition.key).setdefault(fetch_partition.key, fetch_partition)
                if known_as is fetch_partition:
                    fetch_partitions.append(fetch_partition)
                else:
                    known_as.ask_again(fetch_partition)
                seen += 1
                if not seen % CHUNK_ELEMENTS:
                    yield None
            if not topic.partitions:
                yield None
        yield from named.let_go()
        forgotten: list[PartitionKey] = []
        known = self._ports.fetch_sessions.partitions_of(request.session_id)
        for gone in request.forgotten_topics_data:
            for index in gone.partitions:
                key = (gone.topic_id if by_id else gone.topic, index)
                if key in known:
                    forgotten.append(key)
                seen += 1
                if not seen % STEP_ELEMENTS:
                    yield None
            if not gone.partitions:
                yield None
        try:
            plan = self._plan(request, reader, fetch_partitions, forgotten)
        except BrokerError as error:
            return self._failed(error)
        attempt = FetchAttempt(reader, plan, read=False)
        for number, fetch_partition in enumerate(plan.partitions):
            attempt.add(reader, fetch_partition)
            if not number % CHUNK_ELEMENTS:
                yield None
        if request.max_wait_ms > 0 and plan.partitions and not attempt.enough(reader):
            # Much may have happened since the first steps, and to park the fetch is the work of one turn. No partition
            # had an error, so this node has a log for each: there are no more of them than the node has partitions.
            attempt.release()
            for read in attempt.reads:
                read.age = CHANGED
            attempt.again(reader)
            return self._serve(reader, plan, attempt, request.max_wait_ms)
        response = yield from self._answer(reader, plan, attempt)
        if not response.session_id:
            yield from let_go([attempt.reads, fetch_partitions])
        return response

    def _plan(
        self,
        request: FetchRequest,
        reader: Reader,
        fetch_partitions: Sequence[FetchPartition],
        forgotten: Sequence[PartitionKey],
    ) -> FetchPlan:
        context = reader.context
        return self._ports.fetch_sessions.begin(
            request.session_id,
            request.session_epoch,
            fetch_partitions,
            forgotten,
            uses_topic_ids=context.api_version >= TOPIC_ID_FROM,
            privileged=reader.follower,
            now_ms=context.received_ms,
        )

    def _reader(self, request: FetchRequest, context: RequestContext) -> Reader:
        new = context.api_version >= REPLICA_STATE_FROM
        replica_id = request.replica_state.replica_id if new else request.replica_id
        if replica_id >= 0 and not context.authorize("ClusterAction", "Cluster", "kafka-cluster"):
            raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        bytes_max = request.max_bytes
        if replica_id < 0:
            config = self._ports.cluster.config
            if config is not self._config:
                self._config, self._bytes_max = config, config.int("fetch.max.bytes")
                self._selects_by_rack = config.get("replica.selector.class") == RACK_AWARE
            if bytes_max > self._bytes_max:
                bytes_max = self._bytes_max
        return Reader(
            self._ports,
            context,
            replica_id=replica_id,
            replica_epoch=request.replica_state.replica_epoch if new else -1,
            read_committed=request.isolation_level == READ_COMMITTED and replica_id < 0,
            bytes_min=request.min_bytes,
            bytes_max=bytes_max,
            leader_only=replica_id >= 0 or context.api_version < PREFERRED_FROM,
            rack=request.rack_id if self._selects_by_rack and replica_id < 0 else "",
        )

    def _serve(
        self, reader: Reader, plan: FetchPlan, attempt: FetchAttempt, max_wait_ms: int
    ) -> FetchResponse | Completion[FetchResponse]:
        if max_wait_ms <= 0 or not plan.partitions or attempt.enough(reader):
            return self._take(reader, plan, attempt)
        return ParkedFetch(self._take, reader, plan, attempt, max_wait_ms)

    def _take(
        self, reader: Reader, plan: FetchPlan, attempt: FetchAttempt
    ) -> FetchResponse | Completion[FetchResponse]:
        """Make the answer from this attempt, after its cold reads are done."""
        if not attempt.waits_for_cold:
            answer = self._straight(reader, plan, attempt)
            if answer is not None:
                return answer
        answered: FetchResponse | Completion[FetchResponse] = at_once(self._answer(reader, plan, attempt))
        return answered

    def _settle(self, partition_read: PartitionRead) -> None:
        defect = partition_read.settle()
        if defect is not None:
            fetch_partition = partition_read.asked
            self._defects.say(
                self._ports.events.error,
                "a cold read failed",
                (fetch_partition.topic, fetch_partition.partition, type(defect)),
                topic=fetch_partition.topic,
                partition=fetch_partition.partition,
                exc_info=defect,
            )

    def _straight(self, reader: Reader, plan: FetchPlan, attempt: FetchAttempt) -> FetchResponse | None:
        """Returns the answer of one partition, if it can be written without the message codec."""
        reads = attempt.reads
        if len(reads) != 1 or not attempt.straight or reader.context.api_version < STRAIGHT_FROM:
            return None
        read = reads[0]
        if plan.session is not None and (read.read is None or not read.read.size_bytes):
            return None
        answer = straight(read, reader.read_committed)
        if answer is None:
            return None
        if self._topic_bytes:  # empty without a metrics endpoint
            self._went_out(reader, read)
        if reader.follower:
            self._count_throttled(reads)
        read.asked.changed(read.high_watermark, read.log_start_offset)
        return self._ended(reader, plan, answer)

    def _answer(self, reader: Reader, plan: FetchPlan, attempt: FetchAttempt) -> Steps[FetchResponse]:
        if attempt.waits_for_cold:
            for number, read in enumerate(attempt.reads):
                if read.cold is not None and not read.cold.done:
                    reader.context.when_gone(attempt.give_up)
                    yield read.cold
                self._settle(read)
                if not number % STEP_ELEMENTS:
                    yield None
            reader.context.when_gone(None)
            answer = self._straight(reader, plan, attempt)
            if answer is not None:
                return answer
        response = FetchResponse()
        topics: dict[str | bytes, FetchableTopicResponse] = {}
        for number, read in enumerate(attempt.reads):
            if number % CHUNK_ELEMENTS == CHUNK_ELEMENTS - 1:
                yield None
            if self._topic_bytes:
                self._went_out(reader, read)
            self._add(reader, plan, response, topics, read)
        if reader.follower:
            self._count_throttled(attempt.reads)
        return self._ended(reader, plan, response)

    def _count_throttled(self, reads: Sequence[PartitionRead]) -> None:
        """Count what leaves for followers of throttled partitions, members of the ISR too, as Kafka does (KIP-73)."""
        for read in reads:
            if read.size_bytes and read.partition is not None:
                quota = read.partition.throttles.of_leader(read.partition.partition, read.partition.config)
                if quota is not None:
                    quota.record(read.size_bytes, self._ports.runtime.monotonic_ms())

    def _went_out(self, reader: Reader, partition_read: PartitionRead) -> None:
        if partition_read.read is not None and partition_read.partition is not None and not reader.follower:
            counts = self._topic_bytes.get(partition_read.partition.partition.topic)
            if counts is not None:
                counts.went_out += partition_read.read.size_bytes

    def _add(
        self,
        reader: Reader,
        plan: FetchPlan,
        response: FetchResponse,
        topics: dict[str | bytes, FetchableTopicResponse],
        partition_read: PartitionRead,
    ) -> None:
        """Add a partition to the answer; with a session only if there is news.

        :param topics: the answer's topics by their name or id
        """
        fetch_partition = partition_read.asked
        changed = fetch_partition.changed(partition_read.high_watermark, partition_read.log_start_offset)
        if partition_read.diverging is not None:
            fetch_partition.untold()
        if plan.session is not None:
            if partition_read.read is not None and partition_read.read.size_bytes:
                self._ports.fetch_sessions.rotate(plan.session, fetch_partition)
            elif not (
                changed
                or partition_read.error
                or partition_read.diverging is not None
                or partition_read.preferred >= 0
            ):
                return
        topic = topics.get(fetch_partition.topic)
        if topic is None:
            topic = topics[fetch_partition.topic] = FetchableTopicResponse()
            if reader.context.api_version >= TOPIC_ID_FROM:
                topic.topic_id = fetch_partition.topic  # type: ignore[assignment]
            else:
                topic.topic = fetch_partition.topic  # type: ignore[assignment]
            response.responses.append(topic)
        topic.partitions.append(self._data(reader, partition_read, response))

    def _ended(self, reader: Reader, plan: FetchPlan, response: FetchResponse) -> FetchResponse:
        if plan.session is not None:
            response.session_id = plan.session.id
        else:
            response.session_id = self._ports.fetch_sessions.finish_full(plan, reader.context.received_ms)
        return response

    def _data(self, reader: Reader, partition_read: PartitionRead, response: FetchResponse) -> PartitionData:
        version = reader.context.api_version
        aborted = partition_read.aborted(reader)
        data = PartitionData(
            partition_index=partition_read.asked.partition,
            error_code=int(partition_read.error),
            high_watermark=partition_read.high_watermark,
            last_stable_offset=partition_read.stable,
            log_start_offset=partition_read.log_start_offset,
            aborted_transactions=None
            if aborted is None
            else [AbortedTransaction(producer_id=p, first_offset=first) for p, first in aborted],
            records=_records(partition_read.read),
            preferred_read_replica=partition_read.preferred,
            diverging_epoch=_NO_EPOCH,
            current_leader=_NO_LEADER,
            snapshot_id=_NO_SNAPSHOT,
        )
        if partition_read.diverging is not None and version >= LEADER_FROM:
            epoch, end_offset = partition_read.diverging
            data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        if partition_read.error:
            if partition_read.error == ErrorCode.KAFKA_STORAGE_ERROR and version < STORAGE_ERROR_FROM:
                data.error_code = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self._ports.count_error(_FETCH, data.error_code)
            if partition_read.error in _LEADER_ERRORS and version >= LEADER_FROM:
                self._hint_leader(reader, partition_read, data, response)
        return data

    def _hint_leader(
        self, reader: Reader, partition_read: PartitionRead, data: PartitionData, response: FetchResponse
    ) -> None:
        cluster, topic = self._ports.cluster, partition_read.asked.topic
        image = (
            cluster.image.topic_by_id(topic) if isinstance(topic, bytes) else cluster.image.topics.get(topic)
        )
        partition = None if image is None else image.partitions.get(partition_read.asked.partition)
        if partition is None:
            return
        data.current_leader = LeaderIdAndEpoch(
            leader_id=partition.leader, leader_epoch=partition.leader_epoch
        )
        listener = reader.context.listener.name
        hint = hinted_leader(cluster, partition, listener)
        if hint is None or reader.follower or reader.context.api_version < ENDPOINTS_FROM:
            return
        node, endpoint = hint
        if all(n.node_id != node.broker_id for n in response.node_endpoints):
            response.node_endpoints.append(
                NodeEndpoint(node_id=node.broker_id, host=endpoint.host, port=endpoint.port, rack=node.rack)
            )

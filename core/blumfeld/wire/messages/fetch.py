# Written by tools/convert_messages.py from the message schemas of Apache Kafka 4.3.1; README.md lists the modules.
# A change by hand is lost at the next run. Docstrings lie in tools/message_docs.toml, the rest comes from the schemas.
"""Fetch, API key 1: request and response."""

from typing import Annotated, ClassVar

from msgspec import field

from blumfeld.wire.primitives import ZERO_UUID, Records
from blumfeld.wire.schema import Api, Message, Struct, Wire


class ReplicaState(Struct):
    """Part of FetchRequest."""

    replica_id: Annotated[int, Wire("int32", versions="15+")] = -1
    replica_epoch: Annotated[int, Wire("int64", versions="15+")] = -1


class FetchPartition(Struct):
    """From where to read one partition.

    ``current_leader_epoch`` fences old leaders (-1: do not check); ``last_fetched_epoch`` (version 12) asks
    whether the reader's log has diverged; ``log_start_offset`` is the follower's own.
    """

    partition: Annotated[int, Wire("int32")] = 0
    current_leader_epoch: Annotated[int, Wire("int32", versions="9+", ignorable=True)] = -1
    fetch_offset: Annotated[int, Wire("int64")] = 0
    last_fetched_epoch: Annotated[int, Wire("int32", versions="12+")] = -1
    log_start_offset: Annotated[int, Wire("int64", versions="5+", ignorable=True)] = -1
    partition_max_bytes: Annotated[int, Wire("int32")] = 0
    replica_directory_id: Annotated[
        bytes, Wire("uuid", versions="17+", tag=0, tagged="17+", ignorable=True)
    ] = ZERO_UUID
    high_watermark: Annotated[int, Wire("int64", versions="18+", tag=1, tagged="18+", ignorable=True)] = (
        2**63 - 1
    )


class FetchTopic(Struct):
    """Part of FetchRequest."""

    topic: Annotated[str, Wire("string", versions="0-12", ignorable=True)] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="13+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[list[FetchPartition], Wire("[]struct")] = field(default_factory=list)


class ForgottenTopic(Struct):
    """Part of FetchRequest."""

    topic: Annotated[str, Wire("string", versions="7-12", ignorable=True)] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="13+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[list[int], Wire("[]int32", versions="7+")] = field(default_factory=list)


class FetchRequest(Message):
    """Read batches, as a consumer, a follower or a KRaft replica. Versions 4-18, flexible from 12.

    ``max_wait_ms`` and ``min_bytes`` make it wait; ``max_bytes`` bounds the answer but for its first batch. A
    session (version 7, KIP-227) is asked for by ``session_epoch`` 0, continued by 1 and up, given up by -1;
    its requests list only what changed, and ``forgotten_topics_data`` what is to leave it. From version 13
    topics are named by id. A replica says so by ``replica_id`` up to version 14, by ``replica_state`` after
    (KIP-903).
    """

    meta: ClassVar[Api] = Api("FetchRequest", 1, "request", valid="4-18", flexible="12+")

    cluster_id: Annotated[
        str | None, Wire("string", versions="12+", nullable="12+", tag=0, tagged="12+", ignorable=True)
    ] = None
    replica_id: Annotated[int, Wire("int32", versions="0-14")] = -1
    replica_state: Annotated[ReplicaState, Wire("struct", versions="15+", tag=1, tagged="15+")] = field(
        default_factory=ReplicaState
    )
    max_wait_ms: Annotated[int, Wire("int32")] = 0
    min_bytes: Annotated[int, Wire("int32")] = 0
    max_bytes: Annotated[int, Wire("int32", versions="3+", ignorable=True)] = 2**31 - 1
    isolation_level: Annotated[int, Wire("int8", versions="4+", ignorable=True)] = 0
    session_id: Annotated[int, Wire("int32", versions="7+", ignorable=True)] = 0
    session_epoch: Annotated[int, Wire("int32", versions="7+", ignorable=True)] = -1
    topics: Annotated[list[FetchTopic], Wire("[]struct")] = field(default_factory=list)
    forgotten_topics_data: Annotated[list[ForgottenTopic], Wire("[]struct", versions="7+")] = field(
        default_factory=list
    )
    rack_id: Annotated[str, Wire("string", versions="11+", ignorable=True)] = ""


class EpochEndOffset(Struct):
    """Part of FetchResponse."""

    epoch: Annotated[int, Wire("int32", versions="12+")] = -1
    end_offset: Annotated[int, Wire("int64", versions="12+")] = -1


class LeaderIdAndEpoch(Struct):
    """Part of FetchResponse."""

    leader_id: Annotated[int, Wire("int32", versions="12+")] = -1
    leader_epoch: Annotated[int, Wire("int32", versions="12+")] = -1


class SnapshotId(Struct):
    """Part of FetchResponse."""

    end_offset: Annotated[int, Wire("int64")] = -1
    epoch: Annotated[int, Wire("int32")] = -1


class AbortedTransaction(Struct):
    """Part of FetchResponse."""

    producer_id: Annotated[int, Wire("int64", versions="4+")] = 0
    first_offset: Annotated[int, Wire("int64", versions="4+")] = 0


class PartitionData(Struct):
    """One partition's batches and ends.

    ``records`` may hold file regions when encoding. Null is legal, but a zero-length value is what Java sends
    for "nothing", and what some clients need. ``aborted_transactions`` is null for read_uncommitted. A
    ``diverging_epoch`` other than the default tells the reader to truncate; ``preferred_read_replica`` other
    than -1 to read there.
    """

    partition_index: Annotated[int, Wire("int32")] = 0
    error_code: Annotated[int, Wire("int16")] = 0
    high_watermark: Annotated[int, Wire("int64")] = 0
    last_stable_offset: Annotated[int, Wire("int64", versions="4+", ignorable=True)] = -1
    log_start_offset: Annotated[int, Wire("int64", versions="5+", ignorable=True)] = -1
    diverging_epoch: Annotated[EpochEndOffset, Wire("struct", versions="12+", tag=0, tagged="12+")] = field(
        default_factory=EpochEndOffset
    )
    current_leader: Annotated[LeaderIdAndEpoch, Wire("struct", versions="12+", tag=1, tagged="12+")] = field(
        default_factory=LeaderIdAndEpoch
    )
    snapshot_id: Annotated[SnapshotId, Wire("struct", versions="12+", tag=2, tagged="12+")] = field(
        default_factory=SnapshotId
    )
    aborted_transactions: Annotated[
        list[AbortedTransaction] | None, Wire("[]struct", versions="4+", nullable="4+", ignorable=True)
    ] = field(default_factory=list)
    preferred_read_replica: Annotated[int, Wire("int32", versions="11+")] = -1
    records: Annotated[Records | None, Wire("records", nullable="0+")] = None


class FetchableTopicResponse(Struct):
    """Part of FetchResponse."""

    topic: Annotated[str, Wire("string", versions="0-12", ignorable=True)] = ""
    topic_id: Annotated[bytes, Wire("uuid", versions="13+", ignorable=True)] = ZERO_UUID
    partitions: Annotated[list[PartitionData], Wire("[]struct")] = field(default_factory=list)


class NodeEndpoint(Struct):
    """Part of FetchResponse."""

    node_id: Annotated[int, Wire("int32", versions="16+")] = 0
    host: Annotated[str, Wire("string", versions="16+")] = ""
    port: Annotated[int, Wire("int32", versions="16+")] = 0
    rack: Annotated[str | None, Wire("string", versions="16+", nullable="16+")] = None


class FetchResponse(Message):
    """The batches read. Versions 4-18, flexible from 12.

    ``error_code`` (version 7) is the session's; ``session_id`` 0 means that there is none. An incremental
    answer lists only partitions that have something to say. ``node_endpoints`` (version 16) go with each
    ``current_leader``.
    """

    meta: ClassVar[Api] = Api("FetchResponse", 1, "response", valid="4-18", flexible="12+")

    throttle_time_ms: Annotated[int, Wire("int32", versions="1+", ignorable=True)] = 0
    error_code: Annotated[int, Wire("int16", versions="7+", ignorable=True)] = 0
    session_id: Annotated[int, Wire("int32", versions="7+")] = 0
    responses: Annotated[list[FetchableTopicResponse], Wire("[]struct")] = field(default_factory=list)
    node_endpoints: Annotated[list[NodeEndpoint], Wire("[]struct", versions="16+", tag=0, tagged="16+")] = (
        field(default_factory=list)
    )

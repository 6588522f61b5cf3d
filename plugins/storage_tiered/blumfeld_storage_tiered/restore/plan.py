"""The plan of a restored cluster: from the content of a store to topics, logs and records. Pure.

The same store and the same nodes give the same plan: each node of a cluster may be restored on its own machine.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from blumfeld.log.producers.snapshot import ProducerEntry, decode_snapshot
from blumfeld.spi.internal_topics import REMOTE_LOG_METADATA_TOPIC
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.wire.primitives import uuid_text
from blumfeld_storage_tiered.catalog.records import metadata_partition
from blumfeld_storage_tiered.catalog.segment import Change, RemoteSegment, SegmentState, TopicIdPartition
from blumfeld_storage_tiered.metadata_topic.topic import MetadataTopicSettings, topic_settings
from blumfeld_storage_tiered.objects.names import SegmentName, partition_prefix
from blumfeld_storage_tiered.restore.found import FoundPartition, FoundTopic, StoreContent
from blumfeld_storage_tiered.restore.history import NO_HISTORY, RestoredHistory, copy_records, history_of

ENABLE = "remote.storage.enable"
KEEP_ALL = {"retention.ms": "-1", "retention.bytes": "-1"}
"""The retention of a topic whose settings aren't known: with Kafka's defaults its history would be deleted at once."""
EPOCH_MARGIN = 1_000
"""Elections that the old cluster may have had since its last copy. Clients may know epochs that the store doesn't, and
they refuse metadata with older ones."""
PRODUCER_ID_MARGIN = 1_000_000_000
"""Producer ids that the old cluster may have given since its last copy. A producer of before that still runs has one,
and a new producer with the same id would be taken for it: its first batches would be acknowledged as repetitions."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that an operator should know of."""

    kind: str
    """``hole``, ``damaged``, ``unreadable``, ``older namesake`` with segments: records are lost. ``no description``,
    ``deleted``, ``unfinished``, ``open transaction``, ``expired``, ``empty``: they aren't."""
    about: str
    """A key, a prefix of keys, or a topic."""
    text: str
    loses: bool = False
    """Records that the old cluster had copied aren't restored: an operator must accept it."""


class RestoredPartition(msgspec.Struct, frozen=True, kw_only=True):
    """One partition of a restored topic."""

    number: int
    history: RestoredHistory = NO_HISTORY
    producers: bytes | None = None
    open_transactions: tuple[ProducerEntry, ...] = ()
    """Producers whose transactions had begun in copied segments and ended in later ones. They are aborted."""
    unfinished: tuple[RemoteSegment, ...] = ()
    """Copies that are known as begun: the leader deletes them after ``sweep.copy_grace_ms``."""
    leader_epoch: int
    """Above every epoch of the old cluster."""
    replicas: tuple[int, ...]


class RestoredTopic(msgspec.Struct, frozen=True, kw_only=True):
    """One topic."""

    name: str
    topic_id: bytes
    configs: Mapping[str, str]
    partitions: tuple[RestoredPartition, ...]


class RestorePlan(msgspec.Struct, frozen=True, kw_only=True):
    """A restored cluster."""

    cluster_id: str
    time_ms: int
    """The time of all records: behind that of every object, by the store's clock. So objects that no record speaks of
    are older than all records of their partition, and no sweep deletes them."""
    topics: tuple[RestoredTopic, ...]
    metadata_topic: RestoredTopic
    changes: Mapping[int, Sequence[Change]]
    """Partition of the metadata topic → its records."""
    next_producer_id: int
    findings: tuple[Finding, ...]

    @property
    def loses(self) -> bool:
        """Whether records that were copied aren't restored."""
        return any(finding.loses for finding in self.findings)


class Retention(msgspec.Struct, frozen=True, kw_only=True):
    """Says which segments a restored cluster deletes at its first start."""

    keep_all: bool = False
    """Topics get :data:`KEEP_ALL` in the place of their own retention."""
    broker_ms: int = 7 * 24 * 3_600_000
    """``log.retention.ms`` of the brokers: for topics without a retention of their own."""
    now_ms: int = 0


def plan_restore(
    content: StoreContent,
    brokers: Sequence[int],
    settings: MetadataTopicSettings,
    retention: Retention | None = None,
) -> RestorePlan:
    """Returns the cluster that this store and these brokers make up.

    :param brokers: the ids of the brokers, at least one
    :param settings: of ``__remote_log_metadata``
    """
    planning = _Planning(content, sorted(brokers), settings, retention or Retention())
    topics = tuple(planning.topic(topic) for topic in planning.wanted())
    return RestorePlan(
        cluster_id=content.cluster_id,
        time_ms=planning.time_ms,
        topics=topics,
        metadata_topic=planning.metadata_topic(),
        changes=planning.changes(topics),
        next_producer_id=_next_producer_id(topics),
        findings=tuple(planning.findings),
    )


class _Planning:
    def __init__(
        self,
        content: StoreContent,
        brokers: Sequence[int],
        settings: MetadataTopicSettings,
        retention: Retention,
    ) -> None:
        self._retention = retention
        self._content = content
        self._brokers = brokers
        self._settings = settings
        self.time_ms = content.modified_ms + 1
        self.findings = [
            Finding(
                kind="damaged",
                about=damage.key,
                text=f"found {damage.found}; written: {damage.written}. It stays in the store as it is",
                loses=True,
            )
            for damage in content.damages
        ]

    def _note(self, kind: str, about: str, text: str, *, loses: bool = False) -> None:
        self.findings.append(Finding(kind=kind, about=about, text=text, loses=loses))

    def wanted(self) -> list[FoundTopic]:
        """Returns the topics to restore: none that was deleted, and one of each name, that which was written last."""
        newest: dict[str, FoundTopic] = {}
        for topic in self._content.topics:
            if topic.description is not None and topic.description.deleted:
                self._note(
                    "deleted", _shown(topic), "its deletion had begun: what is left of it stays in the store"
                )
                continue
            before = newest.get(topic.topic)
            if before is not None:
                self._tell_namesake(before, topic)
            newest[topic.topic] = topic
        return list(newest.values())

    def _tell_namesake(self, older: FoundTopic, newer: FoundTopic) -> None:
        """Tell that a topic isn't restored, because another one has its name. Nobody has deleted it: it may be that
        a node was started without a restore, and made a topic anew."""
        has_segments = any(partition.segments for partition in older.partitions.values())
        text = (
            f"{_shown(newer)} has the name now: this one stays in the store as it is. To restore this one, move away"
            f" what the store has of the other: all objects with its id in their names"
        )
        self._note("older namesake", _shown(older), text, loses=has_segments)

    def topic(self, found: FoundTopic) -> RestoredTopic:
        """Returns one topic."""
        description = found.description
        count = max(found.partitions, default=0) + 1
        configs = {**KEEP_ALL, ENABLE: "true"}
        factor = len(self._brokers)
        if description is None:
            text = (
                f"{count} partitions, {factor} replicas, retention.ms and retention.bytes -1: the store doesn't say "
                "what it had. An older build has written it"
            )
            self._note("no description", _shown(found), text)
        else:
            count = max(count, description.partitions)
            configs = {**description.configs, ENABLE: "true"}
            factor = min(description.replication_factor, len(self._brokers))
        if self._retention.keep_all:
            configs |= KEEP_ALL
        partitions = [self._partition(found, number, factor) for number in range(count)]
        self._tell_expired(found, configs, partitions)
        return RestoredTopic(
            name=found.topic, topic_id=found.topic_id, configs=configs, partitions=tuple(partitions)
        )

    def _tell_expired(
        self, found: FoundTopic, configs: Mapping[str, str], partitions: Sequence[RestoredPartition]
    ) -> None:
        retention_ms = int(configs.get("retention.ms", self._retention.broker_ms))
        if retention_ms < 0:
            return
        oldest_ms = self._retention.now_ms - retention_ms
        segments = [each for partition in partitions for each in partition.history.segments]
        expired = [each for each in segments if each.max_timestamp_ms <= oldest_ms]
        if expired:
            text = (
                f"{len(expired)} of {len(segments)} segments are older than retention.ms ({retention_ms}): the first"
                " start deletes them. To keep them, restore with --keep-all"
            )
            self._note("expired", _shown(found), text)

    def _partition(self, topic: FoundTopic, number: int, factor: int) -> RestoredPartition:
        at = TopicIdPartition(topic.topic_id, number, topic.topic)
        found = topic.partitions.get(number, FoundPartition(at))
        replicas = _replicas(self._brokers, number, factor)
        segments = [
            replace(segment, broker_id=replicas[0], event_timestamp_ms=self.time_ms)
            for segment in found.segments
        ]
        history = history_of(at, segments, found.epochs) if segments else NO_HISTORY
        self._tell(at, history, found)
        producers = found.producers if history.segments else None
        return RestoredPartition(
            number=number,
            history=history,
            producers=producers,
            open_transactions=self._open_transactions(at, producers),
            unfinished=tuple(self._unfinished(name, replicas[0]) for name in found.unfinished),
            leader_epoch=_highest_epoch(found) + EPOCH_MARGIN,
            replicas=replicas,
        )

    def _tell(self, at: TopicIdPartition, history: RestoredHistory, found: FoundPartition) -> None:
        prefix = partition_prefix(at)
        for hole in history.holes:
            text = (
                f"no segment has the offsets {hole.start_offset} to {hole.end_offset - 1}: the log begins at "
                f"{history.start_offset}, and the segments before the last hole stay in the store as they are"
            )
            self._note("hole", prefix, text, loses=True)
        if found.segments and not history.segments:
            self._note("unreadable", prefix, "no segment belongs to its leader epochs", loses=True)
        elif not found.segments:
            self._note("empty", prefix, "no whole segment: it begins anew, at offset 0")
        if found.unfinished:
            text = f"{len(found.unfinished)} copies without a manifest: not restored, their leader deletes them later"
            self._note("unfinished", prefix, text)

    def _open_transactions(self, at: TopicIdPartition, producers: bytes | None) -> tuple[ProducerEntry, ...]:
        """Return the transactions without an end in the store. A segment is copied once they have ended, but the marker
        may stand in the next one. Without a marker no read_committed reader would ever come past their first record."""
        entries = () if producers is None else decode_snapshot(producers)
        open_ = tuple(entry for entry in entries if entry.txn_first_offset >= 0)
        if open_:
            offsets = ", ".join(str(entry.txn_first_offset) for entry in open_)
            text = f"transactions from offset {offsets} on end behind what was copied: they are aborted"
            self._note("open transaction", partition_prefix(at), text)
        return open_

    def _unfinished(self, name: SegmentName, broker_id: int) -> RemoteSegment:
        """Returns a copy that was begun. Nothing but its place is known, and nothing else is needed to delete it."""
        return RemoteSegment(
            partition=name.partition,
            segment_id=name.segment_id,
            start_offset=name.start_offset,
            end_offset=name.start_offset,
            broker_id=broker_id,
            max_timestamp_ms=-1,
            event_timestamp_ms=self.time_ms,
            leader_epochs=(EpochEntry(0, name.start_offset),),
            size_bytes=0,
            state=SegmentState.COPY_STARTED,
        )

    def metadata_topic(self) -> RestoredTopic:
        """Returns ``__remote_log_metadata``. Its id is a new one, the same on every node."""
        factor = min(self._settings.replication_factor, len(self._brokers))
        text = f"{REMOTE_LOG_METADATA_TOPIC} {self._content.cluster_id} {self.time_ms}"
        digest = hashlib.blake2b(text.encode(), digest_size=16).digest()
        partitions = [
            RestoredPartition(
                number=number, leader_epoch=0, replicas=_replicas(self._brokers, number, factor)
            )
            for number in range(self._settings.num_partitions)
        ]
        return RestoredTopic(
            name=REMOTE_LOG_METADATA_TOPIC,
            topic_id=bytes([digest[0] & 0x7F]) + digest[1:],  # as Kafka's: none begins with a dash
            configs=topic_settings(self._settings, factor),
            partitions=tuple(partitions),
        )

    def changes(self, topics: Iterable[RestoredTopic]) -> dict[int, list[Change]]:
        """Returns the records of ``__remote_log_metadata``."""
        changes: dict[int, list[Change]] = {}
        for topic in topics:
            for partition in topic.partitions:
                at = TopicIdPartition(topic.topic_id, partition.number, topic.name)
                records = changes.setdefault(metadata_partition(at, self._settings.num_partitions), [])
                for segment in partition.history.segments:
                    records += copy_records(segment)
                records += partition.unfinished
        return changes


def _replicas(brokers: Sequence[int], number: int, factor: int) -> tuple[int, ...]:
    """Returns the replicas of a partition, the preferred leader first. Leaders are spread evenly."""
    return tuple(brokers[(number + nth) % len(brokers)] for nth in range(factor))


def _highest_epoch(found: FoundPartition) -> int:
    epochs = [entry.epoch for segment in found.segments for entry in segment.leader_epochs]
    return max(epochs, default=0)


def _next_producer_id(topics: Iterable[RestoredTopic]) -> int:
    snapshots = (partition.producers for topic in topics for partition in topic.partitions)
    highest = max(
        (entry.producer_id for data in snapshots if data is not None for entry in decode_snapshot(data)),
        default=-1,
    )
    return highest + 1 + PRODUCER_ID_MARGIN


def _shown(topic: FoundTopic) -> str:
    return f"{topic.topic} (id {uuid_text(topic.topic_id)})"

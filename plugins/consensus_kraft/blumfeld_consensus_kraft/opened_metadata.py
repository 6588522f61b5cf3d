"""The metadata log of this node, opened and loaded: whose it is, what it holds, and what a new cluster begins with."""

from __future__ import annotations

from collections.abc import Callable
from errno import EIO
from typing import NamedTuple

from blumfeld.config.values import TopicConfig
from blumfeld.metadata.brokers.feature_levels import default_levels, supported_features
from blumfeld.metadata.image.bootstrap import bootstrap_checkpoint
from blumfeld.metadata.image.checkpoint import BOOTSTRAP_NAME, decode_checkpoint
from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE
from blumfeld.metadata.image.needs import NEEDING, needs_of
from blumfeld.metadata.image.record_frame import METADATA_VERSION
from blumfeld.metadata.image.records import feature_records
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.spi.consensus import MetadataNeeds
from blumfeld.spi.hooks import Composition
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC, CLUSTER_METADATA_TOPIC_ID
from blumfeld.spi.storage import LogDirInfo, PartitionLog, TopicPartition, lasting
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.messages.metadata_records import FeatureLevelRecord
from blumfeld.wire.messages.raft_records import VotersRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.stored_state import Loaded, load

METADATA_PARTITION = TopicPartition(CLUSTER_METADATA_TOPIC, 0)


class OpenedMetadata(NamedTuple):
    """A log that this build can go on with."""

    log: PartitionLog
    """In the first of the log directories."""
    loaded: Loaded
    bootstrap: list[Message]
    """Records that a new cluster begins with; none where the log has a ``metadata.version``."""
    needs: MetadataNeeds
    """What all of it needs of the build."""


async def open_metadata(
    composition: Composition,
    warn: Callable[[str], None],
    is_alone: Callable[[VotersRecord | None], bool],
    *,
    force_empty_metadata: bool = False,
) -> OpenedMetadata:
    """Open the log and load snapshot and records; format a directory that nobody formatted.

    :param warn: is told of a snapshot that can't be read
    :param force_empty_metadata: begin a new cluster even if logs of topics are there: they become strays
    :param is_alone: whether this node is the quorum, given the newest voter set of the log
    :raises OSError: the metadata directory can't be used
    :raises ValueError: the log can't be read, or has a ``metadata.version`` that this build does not
        write; or this node is the quorum, holds no metadata, and logs of topics are there
    """
    directory = composition.local_storage.log_dirs()[0]
    if not directory.online:
        raise OSError(EIO, "the directory of the cluster's metadata is offline", directory.path)
    kept = lasting(composition.local_storage)
    partitions = [] if kept is None else [partition for partition, _ in kept.partitions()]
    may_be_lost = not force_empty_metadata and is_alone(None)
    others = (
        []
        if not may_be_lost
        else sorted(str(partition) for partition in partitions if partition != METADATA_PARTITION)
    )
    # To open a log is to create its directory, and a refused start leaves nothing behind.
    if others and METADATA_PARTITION not in partitions:
        raise _metadata_is_lost(directory, others)
    log = await open_log(composition)
    section_kinds = SectionKinds(composition.image_sections)
    loaded = load(log, composition.cluster_id, warn, section_kinds, is_alone)
    behind = [record for placed in loaded.tail for record in placed.decoded() if type(record) in NEEDING]
    needs = needs_of(loaded.image, behind)
    level = needs.features.get(METADATA_VERSION_FEATURE)
    if level is None and others:
        log.close()
        raise _metadata_is_lost(directory, others)
    votes = "controller" in composition.roles
    bootstrap = _bootstrap(composition, directory.path) if level is None and votes else []
    if composition.migration is not None:
        bootstrap = [record for record in bootstrap if _is_of_quorum(record)]
    if bootstrap:
        needs = needs_of(loaded.image, [*behind, *bootstrap])
        level = needs.features.get(METADATA_VERSION_FEATURE)
    if level not in (METADATA_VERSION, None):
        raise ValueError(
            f"the cluster has {METADATA_VERSION_FEATURE} {level}, this build writes {METADATA_VERSION} only: "
            f"upgrade it with Apache Kafka's kafka-features first"
        )
    return OpenedMetadata(log, loaded, bootstrap, needs)


async def open_log(composition: Composition) -> PartitionLog:
    """Open the log in the first of the log directories.

    :raises OSError, ValueError: as :func:`open_metadata`
    """
    directory = composition.local_storage.log_dirs()[0]
    log = await composition.local_storage.open_log(
        METADATA_PARTITION,
        CLUSTER_METADATA_TOPIC_ID,
        _log_config(composition),
        _Silent(),
        directory_id=directory.directory_id,
    )
    if log.directory_id != directory.directory_id:
        log.close()
        raise ValueError(
            f"{METADATA_PARTITION} does not lie in {directory.path}, the first of the log directories"
        )
    return log


def _metadata_is_lost(directory: LogDirInfo, others: list[str]) -> ValueError:
    """The error of a start without metadata beside logs of topics. A topic's log is made after its record is flushed.
    So these logs are those of a controller that lost its disk, and a cluster that began here would set all of them
    aside.
    """
    return ValueError(
        f"{directory.path}/{METADATA_PARTITION} holds no metadata, but {len(others)} logs of topics are there "
        f"({', '.join(others[:3])}{', …' if len(others) > 3 else ''}): the cluster's metadata is lost. Put "
        f"{METADATA_PARTITION} back from a copy. Or start once with --force-empty-metadata: the node begins a new "
        "cluster without topics, and renames these logs to …-stray"
    )


def _bootstrap(composition: Composition, directory: str) -> list[Message]:
    """Returns the records that formatting left to be finalized. A directory that nobody formatted is formatted now."""
    files = composition.runtime.files
    path = f"{directory}/{BOOTSTRAP_NAME}"
    if files.exists(path):
        return decode_checkpoint(files.read_bytes(path), path).records
    levels = default_levels(supported_features(composition.features))
    if files.is_dir(directory):
        files.write_atomically(path, bootstrap_checkpoint(levels, composition.runtime.now_ms()))
    return feature_records(levels)


def _is_of_quorum(record: Message) -> bool:
    """Whether a cluster that is brought from elsewhere begins with a record: it brings its own feature levels."""
    return not isinstance(record, FeatureLevelRecord) or record.name == METADATA_VERSION_FEATURE


class _Silent:
    """The metadata log keeps no producer state, so rolls and recovered batches concern nobody."""

    def rolled(self, base_offset: int) -> None:
        """Nothing to keep."""

    def recovered(self, batch: RecordBatch) -> None:
        """Read again when the log is loaded."""


def _log_config(composition: Composition) -> TopicConfig:
    """The metadata log is cut by snapshots, never by retention."""
    config = composition.config
    values: dict[str, int | str] = {
        "segment.bytes": config.int("metadata.log.segment.bytes"),
        "segment.ms": config.int("metadata.log.segment.ms"),
        "retention.bytes": -1,
        "retention.ms": -1,
        "cleanup.policy": "delete",
        "max.message.bytes": config.int("internal.metadata.max.batch.size.in.bytes"),
    }
    return TopicConfig(values)

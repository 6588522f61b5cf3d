"""From files to an image: the newest snapshot that can be read, then the log behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec

from blumfeld.log.checkpoints import MalformedFile
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS_NAME
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.quorum_state import EPOCH_MAX
from blumfeld.metadata.image.checkpoint import CheckpointId, batch_records
from blumfeld.metadata.image.checkpoint_reader import CheckpointReader
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.records import image_of
from blumfeld.metadata.image.sections import NO_SECTIONS, SectionKinds
from blumfeld.metadata.image.step import BrokenMetadata, ImageStep, TransactionGate
from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld.spi.storage import PartitionLog
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.messages.raft_records import VotersRecord
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.control_records import RecordedVoters, recorded_changes
from blumfeld_consensus_kraft.publisher import Placed

NO_EPOCH = -1
OFFSET_MAX = 2**63 - 1
_IMPOSSIBLE = (
    f"no quorum comes to it ({EPOCH_MAX} is the last epoch, {OFFSET_MAX} the last offset). To go on, move "
    "__cluster_metadata-0 away while the other voters have a leader: this node fetches it from them. A voter without "
    "others needs a copy of it"
)


class Loaded(msgspec.Struct):
    """The state that the files hold."""

    image: MetadataImage
    last_epoch: int = NO_EPOCH
    """The leader epoch of the last batch or snapshot."""
    last_timestamp_ms: int = 0
    snapshot: CheckpointId | None = None
    transaction_open: bool = False
    """The last controller died within a transaction: the next one aborts it."""
    kraft_version: int = 0
    voters: VotersRecord | None = None
    voter_changes: list[RecordedVoters] = []
    """Each voter set that the files hold, oldest first."""
    bytes_since_snapshot: int = 0
    tail: list[Placed] = []
    """Batches behind the snapshot, where other voters say which of them are committed. The image lacks them."""


def checkpoints(log: PartitionLog) -> list[CheckpointId]:
    """The finished snapshots beside the log, oldest first.

    :raises ValueError: one has an epoch or an offset that no log comes to
    """
    checkpoint_ids = sorted(
        checkpoint_id for name in log.aux.names() if (checkpoint_id := CheckpointId.of(name)) is not None
    )
    for checkpoint_id in checkpoint_ids:
        if checkpoint_id.epoch > EPOCH_MAX or checkpoint_id.end_offset > OFFSET_MAX:
            raise ValueError(f"__cluster_metadata-0/{checkpoint_id.name}: {_IMPOSSIBLE}")
    return checkpoint_ids


def load(
    log: PartitionLog,
    cluster_id: str,
    warn: Callable[[str], None],
    section_kinds: SectionKinds = NO_SECTIONS,
    is_alone: Callable[[VotersRecord | None], bool] = lambda _: True,
) -> Loaded:
    """Read it all. If this node is the only voter, everything in the log is committed and goes into the image.

    A log that lacks the last record of the newest snapshot is emptied: the node died when it had fetched the snapshot
    from the leader and had not cut its log (Kafka's ``truncateToLatestSnapshot``). ``leader-epoch-checkpoint`` is
    written anew where it differs from what the log holds.

    :param warn: told of a snapshot that can't be read, where an older one or the log itself can stand in
    :param is_alone: whether this node is the quorum, given the newest voter set of the files
    :raises ValueError: the log is damaged, or begins behind every snapshot that can be read
    :raises OSError: it can't be read
    """
    loaded = _newest_snapshot(log, cluster_id, warn, section_kinds)
    start = 0 if loaded.snapshot is None else loaded.snapshot.end_offset
    if loaded.snapshot is not None and _lacks(log, loaded.snapshot):
        warn(f"__cluster_metadata-0 ends before {loaded.snapshot.name}: the log goes on behind this snapshot")
        log.truncate_fully(start)
    if log.log_start_offset > start:
        raise ValueError(
            f"__cluster_metadata-0 begins at offset {log.log_start_offset}, and no snapshot reaches that far"
        )
    epochs = LeaderEpochCache(_epochs_before(log, start))
    for batch in log.batches(start) if start < log.written_end_offset else ():
        if batch.base_offset < start:
            continue
        try:
            batch.verify_crc()
            if batch.partition_leader_epoch > EPOCH_MAX:
                raise ValueError(f"epoch {batch.partition_leader_epoch}: {_IMPOSSIBLE}")
            _add(loaded, batch)
            epochs.assign(batch.partition_leader_epoch, batch.base_offset)
        except (BrokerError, DecodeError, BrokenMetadata, ValueError) as error:
            raise ValueError(f"__cluster_metadata-0 at offset {batch.base_offset}: {error}") from error
    if is_alone(loaded.voters):
        _replay(loaded)
    if epochs.encode() != (log.aux.read(EPOCHS_NAME) or LeaderEpochCache().encode()):
        log.aux.write(EPOCHS_NAME, epochs.encode())
    return loaded


def _lacks(log: PartitionLog, snapshot: CheckpointId) -> bool:
    """Whether the snapshot contains a record that this log doesn't have: it ends before, or in an older epoch.

    The epoch is that of the last batch, not of ``leader-epoch-checkpoint``: a lost file must not cost the log.
    """
    end_offset = log.written_end_offset
    if snapshot.end_offset > end_offset:
        return True
    if log.log_start_offset >= end_offset:
        return False
    return snapshot.epoch > next(log.batches(end_offset - 1)).partition_leader_epoch


def _epochs_before(log: PartitionLog, start: int) -> list[EpochEntry]:
    """Epochs that begin below ``start``: from the file, and from the log where the file doesn't know them.

    A crash may bring the log back to an earlier start than the file has: the file begins anew with each snapshot that
    the log starts behind, and the start itself is written later. A leader that lacks its older epochs would take the
    log of a replica that diverged in them for its own.

    From ``start`` on the log itself is asked: the file is written after it.
    """
    if start <= log.log_start_offset:
        return []
    try:
        known = LeaderEpochCache.decode(log.aux.read(EPOCHS_NAME) or b"").entries
    except MalformedFile:
        known = []
    epochs = LeaderEpochCache()
    known_from = known[0].start_offset if known else start
    for batch in log.batches(log.log_start_offset) if log.log_start_offset < known_from else ():
        if batch.base_offset >= known_from:
            break
        epochs.assign(batch.partition_leader_epoch, batch.base_offset)
    for entry in known:
        epochs.assign(*entry)
    return [entry for entry in epochs.entries if entry.start_offset < start]


def _newest_snapshot(
    log: PartitionLog, cluster_id: str, warn: Callable[[str], None], section_kinds: SectionKinds
) -> Loaded:
    for snapshot in reversed(checkpoints(log)):
        data = log.aux.read(snapshot.name)
        reader = CheckpointReader(snapshot.name)
        try:
            content = _snapshot_records(reader, data or b"", snapshot.name)
            image = image_of(cluster_id, content, snapshot.end_offset - 1, snapshot.epoch, section_kinds)
            reader.finish()
        except ValueError as error:
            warn(str(error))
            continue
        changes = []
        if reader.voters is not None:
            changes.append(RecordedVoters(snapshot.end_offset - 1, reader.voters, reader.kraft_version))
        return Loaded(
            image=image,
            voter_changes=changes,
            last_epoch=snapshot.epoch,
            last_timestamp_ms=reader.last_contained_ms,
            snapshot=snapshot,
            kraft_version=reader.kraft_version,
            voters=reader.voters,
        )
    return Loaded(image=MetadataImage(cluster_id, section_kinds))


def _snapshot_records(reader: CheckpointReader, data: bytes, name: str) -> Iterator[Message]:
    """Yield the records one by one: a list of a million partitions would take as much memory as their image.

    :raises ValueError: the snapshot is damaged, or holds a record that this build can't read
    """
    try:
        for batch in reader.feed(data):
            yield from batch_records(batch)
    except (BrokerError, DecodeError) as error:
        raise ValueError(f"{name}: {error}") from error


def _add(loaded: Loaded, batch: RecordBatch) -> None:
    if batch.is_control:
        _replay_controls(loaded, batch)
    loaded.tail.append(placed_batch(batch))
    loaded.last_epoch = batch.partition_leader_epoch
    loaded.last_timestamp_ms = batch.max_timestamp


def placed_batch(batch: RecordBatch, *, decode: bool = True) -> Placed:
    """Returns a batch of the log. A control batch has no records that concern the image.

    :param decode: false: the records are decoded when they are published, bit by bit
    """
    records: Sequence[Message] | RecordBatch = () if batch.is_control else batch
    if decode and isinstance(records, RecordBatch):
        records = batch_records(batch)
    return Placed(
        batch.base_offset,
        batch.next_offset,
        batch.partition_leader_epoch,
        records,
        batch.size_bytes,
        batch.max_timestamp,
    )


def _replay(loaded: Loaded) -> None:
    """Put the tail into the image.

    :raises ValueError: the records contradict each other
    """
    gate = TransactionGate()
    for placed in loaded.tail:
        step = ImageStep(loaded.image)
        try:
            for record in placed.decoded():
                for ready in gate.pass_on(record):
                    step.replay(ready)
            step.finish(placed.end_offset - 1, placed.epoch)
        except BrokenMetadata as error:
            raise ValueError(f"__cluster_metadata-0 at offset {placed.base_offset}: {error}") from error
        loaded.image.offset = placed.end_offset - 1
        loaded.image.epoch = placed.epoch
        loaded.bytes_since_snapshot += placed.size_bytes
    loaded.transaction_open = gate.is_open
    loaded.tail = []


def _replay_controls(loaded: Loaded, batch: RecordBatch) -> None:
    for change in recorded_changes(batch, loaded.kraft_version):
        loaded.voter_changes.append(change)
        loaded.voters, loaded.kraft_version = change.voters, change.kraft_version

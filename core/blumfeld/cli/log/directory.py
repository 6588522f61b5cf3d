"""A data directory, or one partition in it, as tables. Read only and without a lock, because a broker may be
running.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from blumfeld.cli.log.files import (
    RECORD_COLUMNS,
    Window,
    log_listing,
    read,
    snapshot_listing,
    time_text,
    topic_of,
)
from blumfeld.cli.log.listing import Listing
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LAST_CLEAN_SHUTDOWN,
    LOCK,
    LOG_STARTS,
    META_PROPERTIES,
    PARTITION_METADATA,
    RECOVERY_POINTS,
    MalformedFile,
    decode_clean_shutdown,
    decode_meta_properties,
    decode_offsets,
    decode_partition_metadata,
)
from blumfeld.log.leader_epochs import FILE_NAME as EPOCHS
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.aborted_transactions import decode_aborted
from blumfeld.log.producers.snapshot import CorruptSnapshot
from blumfeld.log.segments.file_names import (
    DirState,
    PartitionDir,
    SegmentFile,
    Suffix,
    parse_partition_dir,
    parse_segment_name,
)
from blumfeld.log.segments.inspection import Damage, inspect_segment
from blumfeld.metadata.image.checkpoint import BOOTSTRAP_NAME
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.primitives import uuid_text

_FILES = RealFiles()
CHECKPOINTS = {
    "log start": LOG_STARTS,
    "recovery point": RECOVERY_POINTS,
    "high watermark": HIGH_WATERMARKS,
    "cleaned to": CLEANER_OFFSETS,
}
KAFKAS_FILES = frozenset(
    {META_PROPERTIES, LOCK, CLEAN_SHUTDOWN, LAST_CLEAN_SHUTDOWN, BOOTSTRAP_NAME, *CHECKPOINTS.values()}
)
"""Files of a log directory that belong to no partition."""
FOREIGN_SHOWN = 3


class LogFolder(msgspec.Struct, frozen=True):
    """A partition's directory."""

    path: str
    name: PartitionDir

    @property
    def partition(self) -> TopicPartition:
        """The partition that the directory belongs to."""
        return self.name.partition


def is_data_directory(path: str) -> bool:
    """Whether the path is a log directory, not a partition's directory."""
    return _FILES.exists(f"{path}/{META_PROPERTIES}") or any(True for _ in log_folders(path))


def log_folders(path: str) -> Iterator[LogFolder]:
    """The partitions' directories in a log directory, by name."""
    for name in _FILES.list_dir(path):
        parsed = parse_partition_dir(name)
        if parsed is not None and _FILES.is_dir(f"{path}/{name}"):
            yield LogFolder(f"{path}/{name}", parsed)


def segment_files(path: str) -> list[SegmentFile]:
    """The segment files in a partition's directory."""
    return [file for name in _FILES.list_dir(path) if (file := parse_segment_name(name)) is not None]


def segment_bases(path: str) -> list[int]:
    """Base offsets of the segments, oldest first."""
    return sorted(f.base_offset for f in segment_files(path) if f.suffix is Suffix.LOG and not f.mark)


def is_locked(path: str) -> bool:
    """Whether a broker runs on the directory."""
    if not _FILES.exists(f"{path}/{LOCK}"):
        return False
    try:
        _FILES.lock(f"{path}/{LOCK}")()
    except OSError:
        return True
    return False


def checkpoint(path: str, name: str) -> dict[TopicPartition, int]:
    """The entries of an offset checkpoint; empty if it is missing or cannot be read."""
    try:
        return decode_offsets(_FILES.read_bytes(f"{path}/{name}"), name)
    except (FileNotFoundError, MalformedFile):
        return {}


def overview(path: str) -> list[Listing]:
    """The directory's cluster and node, and all of its logs."""
    return [_facts(path)] if foreign_to_kafka(path) else [_facts(path), _logs(path)]


def _facts(path: str) -> Listing:
    listing = Listing(path, ("what", "value"), [], [])
    source = f"{path}/{META_PROPERTIES}"
    try:
        meta = decode_meta_properties(_FILES.read_bytes(source), source, zookeeper=True)
        listing.add("cluster", meta.cluster_id)
        listing.add("node", str(meta.node_id))
        listing.add("directory id", uuid_text(meta.directory_id))
    except FileNotFoundError:
        listing.notes.append(f"no {META_PROPERTIES}: never formatted, or lost")
    except MalformedFile as error:
        listing.notes.append(str(error))
    if is_locked(path):
        listing.add("in use", "a broker runs on it: the ends of active segments may be on their way")
    clean = f"{path}/{CLEAN_SHUTDOWN}"
    if _FILES.exists(clean):
        listing.add("last stop", f"clean, broker epoch {decode_clean_shutdown(_FILES.read_bytes(clean))}")
    elif foreign := foreign_to_kafka(path):
        listing.add("last stop", "unknown: nothing here says how the node stopped")
        listing.notes.append(foreign)
    else:
        listing.add(
            "last stop", "not clean, or not yet: the next start recovers what is above the recovery points"
        )
    return listing


def foreign_to_kafka(path: str) -> str:
    """The reason why a data directory or a partition's directory cannot be read here, if a storage other than
    storage_local keeps its records; empty otherwise. A partition of Kafka has a segment from the start.
    """
    folders = [folder.path for folder in log_folders(path)] if is_data_directory(path) else [path]
    names = sorted(set(_FILES.list_dir(path)) - KAFKAS_FILES)
    if not names or any(segment_files(folder) for folder in folders):
        return ""
    shown = ", ".join(names[:FOREIGN_SHOWN]) + (", …" if len(names) > FOREIGN_SHOWN else "")
    return (
        f"no log in Kafka's form lies here, but {shown}: the node's storage is not storage_local. blumfeld log reads "
        "the logs of storage_local and of Apache Kafka; another storage's own tools read its"
    )


def _logs(path: str) -> Listing:
    columns = (
        "log",
        "topic id",
        "segments",
        "bytes",
        "first offset",
        "end offset",
        "last time",
        *CHECKPOINTS,
        "state",
    )
    listing = Listing("logs", columns, [], [])
    offsets = {title: checkpoint(path, name) for title, name in CHECKPOINTS.items()}
    for folder in log_folders(path):
        bases = segment_bases(folder.path)
        sizes = [len(read(f"{folder.path}/{base:020d}.log")) for base in bases]
        end_offset, last_ms, damaged = _end(folder.path, bases[-1]) if bases else (0, -1, False)
        known = [offsets[title].get(folder.partition, "") for title in CHECKPOINTS]
        state = folder.name.state.value if folder.name.state is not DirState.CURRENT else ""
        listing.add(
            str(folder.partition),
            topic_id_text(folder.path),
            len(bases),
            sum(sizes),
            bases[0] if bases else 0,
            end_offset,
            time_text(last_ms),
            *known,
            "DAMAGED: see --verify" if damaged else state,
        )
    return listing


def topic_id_text(path: str) -> str:
    """The topic id in ``partition.metadata``; ``none`` or ``unreadable`` if there is no such id."""
    try:
        return uuid_text(decode_partition_metadata(_FILES.read_bytes(f"{path}/{PARTITION_METADATA}")))
    except FileNotFoundError:
        return "none"
    except MalformedFile:
        return "unreadable"


def _end(path: str, base_offset: int) -> tuple[int, int, bool]:
    """Read the log's last segment. Returns (end offset, highest timestamp in it, whether some bytes are no
    batch).
    """
    end_offset, last_ms, damaged = base_offset, -1, False
    for part in inspect_segment(read(f"{path}/{base_offset:020d}.log"), base_offset, check_crc=False):
        if isinstance(part, Damage):
            damaged = True
        else:
            end_offset, last_ms = part.batch.next_offset, max(last_ms, part.batch.max_timestamp)
    return end_offset, last_ms, damaged


def partition_overview(path: str) -> list[Listing]:
    """Segments, epochs, producers and aborted transactions of one log. Raises ``ValueError`` if there is no
    log.
    """
    _check_partition(path)
    return [_segments(path), _epochs(path), _producers(path), _aborted(path), _others(path)]


def partition_records(path: str, window: Window) -> Listing:
    """Records of one log, over all its segments. Raises ``ValueError`` if there is no log."""
    _check_partition(path)
    listing = Listing(f"{path.rpartition('/')[2]}: records", RECORD_COLUMNS, [], [])
    bases = segment_bases(path)
    for base, following in zip(bases, [*bases[1:], None], strict=True):
        if following is not None and following <= window.from_offset:
            continue
        left = Window(window.from_offset, window.limit - len(listing.rows), True, topic_of(path))
        part = log_listing("", read(f"{path}/{base:020d}.log"), base, left)
        listing.rows += part.rows
        listing.notes += part.notes
        if len(listing.rows) >= window.limit:
            break
    return listing


def _check_partition(path: str) -> None:
    name = path.rpartition("/")[2]
    if parse_partition_dir(name) is not None:
        if foreign := foreign_to_kafka(path):
            raise ValueError(foreign)
    elif not segment_files(path):
        raise ValueError(
            "neither a data directory (no meta.properties) nor a partition's (no segments). Only the directories of "
            "storage_local and of Apache Kafka can be shown"
        )


def _segments(path: str) -> Listing:
    columns = (
        "segment",
        "end offset",
        "bytes",
        "batches",
        "records",
        "last time",
        "index",
        "time index",
        "state",
    )
    listing = Listing(f"{path.rpartition('/')[2]}: segments", columns, [], [])
    files = segment_files(path)
    entry_bytes = {Suffix.OFFSET_INDEX: 8, Suffix.TIME_INDEX: 12}
    for base in segment_bases(path):
        data = read(f"{path}/{base:020d}.log")
        end_offset, batches, records, last_ms, bad_bytes = base, 0, 0, -1, 0
        for part in inspect_segment(data, base, check_crc=False):
            if isinstance(part, Damage):
                bad_bytes += part.size_bytes
                continue
            batches, records = batches + 1, records + part.batch.record_count
            end_offset, last_ms = part.batch.next_offset, max(last_ms, part.batch.max_timestamp)
        entries = [
            len(read(f"{path}/{base:020d}{suffix.value}")) // size
            if SegmentFile(base, suffix) in files
            else "missing"
            for suffix, size in entry_bytes.items()
        ]
        state = f"DAMAGED: {bad_bytes:,} bytes" if bad_bytes else ""
        listing.add(base, end_offset, len(data), batches, records, time_text(last_ms), *entries, state)
    marked = sorted(f"{f.base_offset:020d}{f.suffix.value}{f.mark.value}" for f in files if f.mark)
    if marked:
        listing.notes.append(f"on their way in or out: {', '.join(marked)}")
    return listing


def _epochs(path: str) -> Listing:
    listing = Listing("leader epochs", ("epoch", "start offset"), [], [])
    try:
        listing.rows += LeaderEpochCache.decode(_FILES.read_bytes(f"{path}/{EPOCHS}"), EPOCHS).entries
    except FileNotFoundError:
        listing.notes.append(f"no {EPOCHS}")
    except MalformedFile as error:
        listing.notes.append(str(error))
    return listing


def _producers(path: str) -> Listing:
    """Producers in the newest readable snapshot."""
    producers = sorted(
        (f.base_offset for f in segment_files(path) if f.suffix is Suffix.PRODUCER_SNAPSHOT and not f.mark),
        reverse=True,
    )
    notes = []
    for offset in producers:
        name = f"{offset:020d}{Suffix.PRODUCER_SNAPSHOT.value}"
        try:
            listing = snapshot_listing(
                f"producers as of offset {offset}", _FILES.read_bytes(f"{path}/{name}")
            )
        except CorruptSnapshot as error:
            notes.append(f"{name}: {error}")
            continue
        listing.notes += notes
        return listing
    return Listing("producers", ("producer",), [], notes)


def _aborted(path: str) -> Listing:
    listing = Listing("aborted transactions", ("producer", "first", "last", "segment"), [], [])
    for file in sorted(segment_files(path), key=lambda f: f.base_offset):
        if file.suffix is not Suffix.TRANSACTION_INDEX or file.mark:
            continue
        name = f"{file.base_offset:020d}{file.suffix.value}"
        try:
            for entry in decode_aborted(_FILES.read_bytes(f"{path}/{name}")):
                listing.add(entry.producer_id, entry.first_offset, entry.last_offset, file.base_offset)
        except ValueError as error:
            listing.notes.append(f"{name}: {error}")
    return listing


def _others(path: str) -> Listing:
    known = {EPOCHS, PARTITION_METADATA}
    names = [n for n in _FILES.list_dir(path) if parse_segment_name(n) is None and n not in known]
    return Listing("other files", ("name", "bytes"), [(n, len(read(f"{path}/{n}"))) for n in names])

"""Verification of the files of a segment and of a log by their own bytes. Pure.

Each finding names its repair, so that a repair is a list of findings to act on.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from enum import StrEnum
from itertools import pairwise

import msgspec

from blumfeld.log.checkpoints import MalformedFile
from blumfeld.log.leader_epochs import LeaderEpochCache
from blumfeld.log.producers.aborted_transactions import decode_aborted
from blumfeld.log.producers.end_marker import end_marker_of
from blumfeld.log.producers.snapshot import CorruptSnapshot, decode_snapshot
from blumfeld.log.segments.file_names import Suffix, segment_name
from blumfeld.log.segments.index import (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    Buffer,
    CorruptIndex,
    OffsetIndex,
    TimeIndex,
)
from blumfeld.log.segments.inspection import Damage, WholeBatch, inspect_segment
from blumfeld.wire.batches.records import validate_records
from blumfeld.wire.errors import BrokerError


class Mending(StrEnum):
    """The repair of a finding."""

    NOTHING = "nothing to mend"
    """Reported for information only."""
    REBUILD = "rebuild from the log"
    CUT = "set the damaged bytes aside, keep every whole batch"
    REMOVE = "remove the file: it is made anew"
    NONE = "can't be mended here"


class Finding(msgspec.Struct, frozen=True):
    """One fault or note."""

    file: str
    """File name in the partition's directory."""
    problem: str
    mending: Mending
    damage: Damage | None = None

    @property
    def is_harmless(self) -> bool:
        """Whether this is a note and not a fault."""
        return self.mending is Mending.NOTHING


class SegmentBytes(msgspec.Struct, frozen=True, kw_only=True):
    """A segment's files; ``None`` for one that is missing."""

    base_offset: int
    log: memoryview
    offset_index: Buffer | None
    time_index: Buffer | None
    transaction_index: Buffer | None = None


class SegmentSummary(msgspec.Struct, kw_only=True):
    """Findings and figures of one verified segment."""

    base_offset: int
    batches: int = 0
    records: int = 0
    next_offset: int = 0
    max_timestamp_ms: int = -1
    first_epochs: list[tuple[int, int]] = []
    """(Leader epoch, its first offset in this segment), in order."""
    findings: list[Finding] = []


def verify_segment(segment: SegmentBytes, *, deep: bool = False) -> SegmentSummary:
    """Walk a segment and compare its indexes with it.

    :param deep: decompress and walk the records of every batch too
    """
    base = segment.base_offset
    log_name = segment_name(base)
    seen = SegmentSummary(base_offset=base, next_offset=base, first_epochs=[], findings=[])
    whole: list[WholeBatch] = []
    aborts: dict[int, int] = {}
    unreadable: list[Finding] = []
    for part in inspect_segment(segment.log, base):
        if isinstance(part, Damage):
            where = f"bytes {part.position:,} to {part.position + part.size_bytes:,}: {part.problem}"
            seen.findings.append(Finding(log_name, where, Mending.CUT, part))
            continue
        whole.append(part)
        _note(seen, part)
        if (
            part.batch.is_control
            and part.batch.record_count  # the cleaner leaves the header of a marker that fences
            and (marker := end_marker_of(part.batch)) is not None
            and not marker.committed
        ):
            aborts[part.batch.last_offset] = part.batch.producer_id
        if deep:
            unreadable += _record_findings(log_name, part)
    if not seen.findings:  # with findings, the indexes are rebuilt in any case
        seen.findings += offset_index_findings(segment, whole)
        seen.findings += time_index_findings(segment, whole)
    seen.findings += unreadable
    seen.findings += transaction_index_findings(segment, aborts)
    return seen


def _note(seen: SegmentSummary, part: WholeBatch) -> None:
    batch = part.batch
    seen.batches += 1
    seen.records += batch.record_count
    seen.next_offset = batch.next_offset
    seen.max_timestamp_ms = max(seen.max_timestamp_ms, batch.max_timestamp)
    if not seen.first_epochs or seen.first_epochs[-1][0] != batch.partition_leader_epoch:
        seen.first_epochs.append((batch.partition_leader_epoch, batch.base_offset))


def _record_findings(name: str, part: WholeBatch) -> Iterator[Finding]:
    try:
        validate_records(part.batch)
    except BrokerError as error:
        where = f"byte {part.position:,}, offset {part.batch.base_offset}"
        yield Finding(name, f"{where}: its CRC is right, its records are not: {error}", Mending.NONE)


def trimmed(data: Buffer, entry_bytes: int) -> Buffer:
    """Returns an index without the zeros after its last entry, which a killed broker leaves if it preallocates."""
    view = bytes(data)
    if len(view) % entry_bytes:
        return view
    used = len(view.rstrip(b"\0"))
    return view[: -(-used // entry_bytes) * entry_bytes]


def offset_index_findings(segment: SegmentBytes, batches: Sequence[WholeBatch]) -> Iterator[Finding]:
    """Yield faults of the offset index: missing, malformed, or not about these batches."""
    name = segment_name(segment.base_offset, Suffix.OFFSET_INDEX)
    data = yield from _usable(name, segment.offset_index, OFFSET_ENTRY_BYTES, batches)
    if data is None:
        return
    try:
        index = OffsetIndex(segment.base_offset, data)
        index.check(len(segment.log))
    except CorruptIndex as error:
        yield Finding(name, str(error), Mending.REBUILD)
        return
    at = {part.position: part.batch.last_offset for part in batches}
    for number in range(len(index)):
        entry = index.entry(number)
        if at.get(entry.position) != entry.offset:
            there = at.get(entry.position)
            problem = (
                f"entry {number} says that the batch at byte {entry.position:,} ends with {entry.offset}; "
            )
            problem += "no batch starts there" if there is None else f"it ends with {there}"
            yield Finding(name, problem, Mending.REBUILD)
            return


def time_index_findings(segment: SegmentBytes, batches: Sequence[WholeBatch]) -> Iterator[Finding]:
    """Yield faults of the time index: missing, malformed, or an entry that makes a look-up skip records."""
    name = segment_name(segment.base_offset, Suffix.TIME_INDEX)
    data = yield from _usable(name, segment.time_index, TIME_ENTRY_BYTES, batches)
    if data is None:
        return
    try:
        index = TimeIndex(segment.base_offset, data)
        index.check()
    except CorruptIndex as error:
        yield Finding(name, str(error), Mending.REBUILD)
        return
    highest, following = -1, iter(batches)
    for number in range(len(index)):
        entry = index.entry(number)
        for part in following:
            highest = max(highest, part.batch.max_timestamp)
            if part.batch.last_offset >= entry.offset:
                break
        if highest > entry.timestamp_ms:
            problem = f"entry {number} says {entry.timestamp_ms} up to offset {entry.offset}; {highest} stands there"
            yield Finding(name, problem, Mending.REBUILD)
            return


def _usable(
    name: str, held: Buffer | None, entry_bytes: int, batches: Sequence[WholeBatch]
) -> Generator[Finding, None, Buffer | None]:
    """Returns the entries of an index file, without preallocated zeros; ``None`` if there is no file."""
    if held is None:
        if batches:
            yield Finding(name, "missing", Mending.REBUILD)
        return None
    data = trimmed(held, entry_bytes)
    if len(data) != len(held):
        yield Finding(name, "preallocated: zeros behind the last entry", Mending.NOTHING)
    return data


def transaction_index_findings(segment: SegmentBytes, aborts: dict[int, int]) -> Iterator[Finding]:
    """Yield faults of the transaction index: malformed, or entries without their marker in this segment.

    :param aborts: offset of each abort marker in the segment → its producer id. A marker without an entry
        is no fault: its transaction may have no data in this partition.
    """
    if segment.transaction_index is None:
        return
    name = segment_name(segment.base_offset, Suffix.TRANSACTION_INDEX)
    try:
        entries = decode_aborted(bytes(segment.transaction_index))
    except ValueError as error:
        yield Finding(name, str(error), Mending.NONE)
        return
    for number, entry in enumerate(entries):
        if aborts.get(entry.last_offset) != entry.producer_id:
            problem = (
                f"entry {number}: no abort marker of producer {entry.producer_id} at {entry.last_offset}"
            )
            yield Finding(
                name, problem, Mending.NOTHING if entry.last_offset < segment.base_offset else Mending.NONE
            )


def verify_log(segments: Sequence[SegmentSummary], *, compacts: bool) -> Iterator[Finding]:
    """Yield faults between adjacent segments.

    :param compacts: offsets may be missing anywhere
    """
    for before, after in pairwise(segments):
        name = segment_name(after.base_offset)
        if after.base_offset < before.next_offset:
            problem = f"begins at {after.base_offset}, and the segment before it ends at {before.next_offset}"
            yield Finding(name, problem, Mending.NONE)
        elif after.base_offset > before.next_offset and not compacts:
            problem = f"offsets {before.next_offset} to {after.base_offset - 1} before it are missing"
            yield Finding(name, problem, Mending.NOTHING)


def verify_epochs(data: bytes | None, name: str, segments: Sequence[SegmentSummary]) -> Iterator[Finding]:
    """Yield differences between the leader epoch checkpoint and the batches."""
    if data is None:
        if any(summary.batches for summary in segments):
            yield Finding(name, "missing", Mending.REBUILD)
        return
    try:
        known = LeaderEpochCache.decode(data, name)
    except MalformedFile as error:
        yield Finding(name, str(error), Mending.REBUILD)
        return
    for epoch, offset in first_epochs(segments):
        said = known.epoch_for_offset(offset)
        if epoch >= 0 and said != epoch:
            problem = f"the batch at offset {offset} is of epoch {epoch}, the file says {said}"
            yield Finding(name, problem, Mending.REBUILD)
            return


def first_epochs(segments: Iterable[SegmentSummary]) -> list[tuple[int, int]]:
    """Returns (leader epoch, its first offset), ascending: the minimum content of the checkpoint."""
    epochs: list[tuple[int, int]] = []
    for summary in segments:
        for epoch, offset in summary.first_epochs:
            if not epochs or epoch > epochs[-1][0]:
                epochs.append((epoch, offset))
    return epochs


def verify_snapshot(data: bytes, name: str, offset: int, log_end_offset: int) -> Iterator[Finding]:
    """Yield faults of a producer snapshot: it is unreadable, or describes records that don't exist."""
    try:
        entries = decode_snapshot(data)
    except CorruptSnapshot as error:
        yield Finding(name, str(error), Mending.REMOVE)
        return
    if offset > log_end_offset:
        yield Finding(name, f"of offset {offset}, and the log ends at {log_end_offset}", Mending.REMOVE)
    for entry in entries:
        if entry.last_offset >= offset:
            problem = f"knows offset {entry.last_offset} of producer {entry.producer_id}"
            yield Finding(name, problem, Mending.REMOVE)
            return

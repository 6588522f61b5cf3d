"""Open the log of one partition in its directory, or make a new one. What a crash tore is recovered first."""

from __future__ import annotations

import asyncio
import errno
from functools import partial

from blumfeld.config.values import TopicConfig
from blumfeld.log.checkpoints import PARTITION_METADATA, encode_partition_metadata
from blumfeld.log.segments.file_names import (
    DirState,
    Suffix,
    marked_partition_dir,
    partition_dir,
    segment_name,
)
from blumfeld.log.segments.index import RELATIVE_OFFSET_MAX
from blumfeld.spi.runtime import Files
from blumfeld.spi.storage import InconsistentTopicIdError, LogListener, TopicPartition
from blumfeld_storage_local.directories.directory_logs import DirectoryLogs
from blumfeld_storage_local.directories.small_files import NO_TOPIC_ID, read_topic_id
from blumfeld_storage_local.directory import LogDirectory
from blumfeld_storage_local.durability import FLUSH_UNASKED
from blumfeld_storage_local.logs.leftovers import FoundSegments
from blumfeld_storage_local.logs.partition_log import LocalLog, LogCallbacks, OpenedLog
from blumfeld_storage_local.logs.survey import LogSurvey, survey_log
from blumfeld_storage_local.segment_list import SegmentList
from blumfeld_storage_local.segments.segment import Segment
from blumfeld_storage_local.start.recovery import Recovery
from blumfeld_storage_local.sync.new_logs import write_topic_id

_ALL = 1 << 62
"""A flushed end beyond every log, for a log that is flushed as a whole."""


async def open_partition(
    at: DirectoryLogs,
    partition: TopicPartition,
    topic_id: bytes,
    config: TopicConfig,
    listener: LogListener,
    callbacks: LogCallbacks,
) -> LocalLog:
    """Open the log of one partition, or make it. Unless it was closed cleanly, it is recovered.

    :raises OSError: its files can't be read or changed
    :raises ValueError: its directory holds another topic id
    """
    home, checkpoints = at.home, at.checkpoints
    directory = f"{home.path}/{partition_dir(partition)}"
    await at.last_sync(partition)
    clean = partition in at.clean
    at.clean.pop(partition, None)
    synced, young = _asks_for_syncs(home, config), _is_young(at, partition, clean=clean)
    survey = await _survey(at, partition, topic_id, sync=synced, young=young)
    if created := survey is None:
        if not synced:
            home.new_logs.add(directory)
        survey = LogSurvey(FoundSegments([], []), 0)
        if checkpoints.may_name(partition):
            # Entries of a deleted log of this name would cut records off this one, so they must go before it serves.
            checkpoints.forget(partition)
            await checkpoints.save_soon()
    on_disk = survey.segments
    segments = _segments_of(home, directory, on_disk.bases)
    recovery = Recovery(home, segments, config, listener)
    start = checkpoints.log_starts.get(partition, 0)
    recovery_point = checkpoints.recovery_points.get(partition, 0)
    recover_from = len(segments) if clean else _first_to_recover(segments, recovery_point)
    for number, segment in enumerate(segments[:recover_from]):
        if segment.base_offset in on_disk.unindexed:
            await recovery.rebuild(number)
    await recovery.recover(recover_from)
    end_offset = checkpoints.recovery_points.get(partition, -1)
    at_rest = clean and not on_disk.unindexed and _rests(segments, survey.active_bytes, end_offset)
    if not segments:
        segments.append(Segment(home.files, directory, start, start))
        segments[0].counted_by(home.open_files)
        segments[0].create()
    listed = SegmentList(home, directory, segments)
    listed.at_rest = at_rest

    opened = OpenedLog(
        home=home,
        partition=partition,
        segments=listed,
        config=config,
        listener=listener,
        callbacks=callbacks,
        log_start_offset=start,
        flushed_end_offset=_ALL if created or clean else recovery_point,
        cleaned_end_offset=checkpoints.cleaner_offsets.get(partition, 0),
        names_unsynced=created or not clean,
        topic_id_unsynced=not synced if created else not clean,
    )
    try:
        log = LocalLog(opened)
    except OSError as error:
        if not clean:
            raise
        home.events.warning("log not as it was closed, recovering", log=directory, error=str(error))
        await recovery.recover(len(segments) - 1)
        log = LocalLog(opened)
    await _set_right(log, opened, clean=clean)
    return log


async def _set_right(log: LocalLog, opened: OpenedLog, *, clean: bool) -> None:
    """Reconcile the log with checkpoints that promise more than a crash left.

    A power cut can take the end of a log whose start had moved up to there. No offset is given twice, so the log
    begins anew at its start, as in Kafka. A clean stop never leaves a log like that: then the checkpoint is damaged
    and the records are sound, so they stay. Kafka deletes them in this case too.
    """
    start, end = log.log_start_offset, log.written_end_offset
    if start > end:
        said = {"log": log.directory, "log_start_offset": start, "end_offset": end}
        if clean:
            log.log_start_offset = opened.segments.first_offset
            opened.home.events.warning("log start beyond the end of the log ignored", **said)
        else:
            log.truncate_fully(start)
            opened.home.events.warning("log begun anew: a crash took what is behind its start", **said)
    if log.cleaned_end_offset < opened.cleaned_end_offset:
        # A crash took records that were compacted: those that take their offsets are not.
        opened.callbacks.cleaned(log.partition, log.cleaned_end_offset)
    if opened.home.durability.acks_after_sync and log.flushed_end_offset < log.appended_end_offset:
        await log.flush()  # or readers could see records that a power cut takes back


def _segments_of(home: LogDirectory, directory: str, bases: list[int]) -> list[Segment]:
    """Make the segments. Each ends where the next begins; where the last one ends is not known yet."""
    ends = [*bases[1:], *bases[-1:]]
    return [Segment(home.files, directory, base, end) for base, end in zip(bases, ends, strict=True)]


def _is_young(at: DirectoryLogs, partition: TopicPartition, *, clean: bool) -> bool:
    """Return whether a power cut may have taken the log's topic id.

    A flush covers the id. A log that was flushed loses it only to damage of another kind.
    """
    return not clean and not at.checkpoints.recovery_points.get(partition)


async def _survey(
    at: DirectoryLogs, partition: TopicPartition, topic_id: bytes, *, sync: bool, young: bool
) -> LogSurvey | None:
    """Return what lies in the log's directory, or ``None`` if the log was made just now.

    The start of the directory may have surveyed the log already.

    :param sync: whether a new log's topic id is on the device when this returns
    :param young: whether a power cut may have taken the topic id of records that are there
    """
    home = at.home
    survey = at.surveys.pop(partition, None)
    if survey is not None and survey.topic_id == topic_id:
        await asyncio.sleep(0)  # thousands of logs may be opened one after the other: let requests in between
        return survey
    aside = f"{home.path}/{marked_partition_dir(partition, DirState.STRAY, home.runtime.new_uuid())}"
    work = partial(
        _prepare_and_survey,
        home,
        f"{home.path}/{partition_dir(partition)}",
        topic_id,
        sync,
        aside if young else None,
    )
    try:
        return await home.runtime.offload(work)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        home.open_files.give_way()
        return await home.runtime.offload(work)


def _asks_for_syncs(home: LogDirectory, config: TopicConfig) -> bool:
    """Return whether this log's records are synced unasked. Its topic id must then be on the device before them."""
    return home.durability.shares_rounds or config.flush_messages < FLUSH_UNASKED


def _prepare_and_survey(
    home: LogDirectory, directory: str, topic_id: bytes, sync: bool, aside: str | None
) -> LogSurvey | None:
    if aside is not None:
        _set_aside_nameless(home, directory, aside)
    return None if _prepare(home, directory, topic_id, sync) else survey_log(home.files, directory)


def _set_aside_nameless(home: LogDirectory, directory: str, aside: str) -> None:
    """Set records aside whose topic id a power cut took. They may belong to a deleted topic of this name.

    Nothing of such a log was flushed, so no promise is broken. Kafka sets it aside too. Blocks.
    """
    files = home.files
    if not files.exists(directory) or read_topic_id(home, directory) != NO_TOPIC_ID:
        return
    logs = [name for name in files.list_dir(directory) if name.endswith(Suffix.LOG)]
    if any(_size(files, f"{directory}/{name}") for name in logs):
        files.rename(directory, aside)
        files.sync_dir(home.path)
        home.events.warning("log without a topic id set aside", log=directory, kept=aside)


def _size(files: Files, path: str) -> int:
    file = files.open(path, write=False)
    try:
        return file.size()
    finally:
        file.close()


def _rests(segments: list[Segment], active_bytes: int, end_offset: int) -> bool:
    """Return whether the checkpoint agrees with the size of the active segment, in a log that was closed cleanly.

    Nothing else is checked until the log is read or written. A node has thousands of logs that nobody uses, and to
    open their files would make its start slow.
    """
    if not segments or not 0 <= end_offset - segments[-1].base_offset <= RELATIVE_OFFSET_MAX + 1:
        return False  # the checkpoint is damaged if it names an impossible end: the segment must say where it ends
    active = segments[-1]
    if (active_bytes == 0) != (end_offset == active.base_offset):
        return False
    active.size, active.next_offset = active_bytes, end_offset
    return True


def _prepare(home: LogDirectory, directory: str, topic_id: bytes, sync: bool) -> bool:
    """Make the log's directory, or check that it is this topic's. Return whether it was made. Blocks."""
    created = not home.files.exists(directory)
    if created:
        home.files.make_dirs(directory)
        if not sync:
            write_topic_id(home.files, directory, topic_id)
            # In this worker, not on the loop: a file system may let a creation wait for a sync that runs beside it.
            home.files.open(f"{directory}/{segment_name(0, Suffix.LOG)}", create=True).close()
            return True
    held = NO_TOPIC_ID if created else read_topic_id(home, directory)
    if held == NO_TOPIC_ID:
        home.files.write_atomically(f"{directory}/{PARTITION_METADATA}", encode_partition_metadata(topic_id))
    elif held != topic_id:
        raise InconsistentTopicIdError(
            f"{directory} holds the topic with the id {held.hex()}, not {topic_id.hex()}"
        )
    return created


def _first_to_recover(segments: list[Segment], recovery_point: int) -> int:
    """Return the number of the first segment that may hold unflushed bytes.

    The active one is always recovered: its index files lag behind its log.
    """
    for at, segment in enumerate(segments):
        if at == len(segments) - 1 or segment.next_offset > recovery_point:
            return at
    return 0

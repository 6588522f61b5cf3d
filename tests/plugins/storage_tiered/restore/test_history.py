"""The history of a restored partition, against a model in which each record is known by its offset and its epoch."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from blumfeld.spi.leader_epochs import EpochEntry
from blumfeld_storage_tiered.catalog.catalog import RemoteLogCatalog
from blumfeld_storage_tiered.catalog.segment import RemoteSegment, SegmentState
from blumfeld_storage_tiered.restore.history import (
    Hole,
    RestoredHistory,
    copy_records,
    history_of,
    newest_segment,
)
from tests.plugins.storage_tiered.catalog.history import AT, entries_of, grown_log, remote_segment


def whole(log: Sequence[int], start: int, end: int, number: int) -> RemoteSegment:
    return replace(remote_segment(log, start, end, number), state=SegmentState.COPY_FINISHED)


def restored(log: Sequence[int], *spans: tuple[int, int]) -> RestoredHistory:
    segments = [whole(log, start, end, number) for number, (start, end) in enumerate(spans)]
    return history_of(AT, segments, entries_of(log, 0, newest_segment(segments).end_offset + 1))


def test_segments_without_a_gap_are_one_log() -> None:
    history = restored([0] * 10 + [2] * 10, (0, 8), (8, 15), (15, 20))
    assert (history.start_offset, history.end_offset, history.holes) == (0, 20, ())
    assert history.epochs == (EpochEntry(0, 0), EpochEntry(2, 10))
    assert len(history.segments) == 3


def test_a_hole_is_named_and_the_log_begins_behind_it() -> None:
    history = restored([0] * 30, (0, 5), (10, 15), (18, 30))
    assert history.holes == (Hole(5, 10), Hole(15, 18))
    assert (history.start_offset, history.end_offset) == (18, 30)
    assert [segment.start_offset for segment in history.segments] == [18]
    assert [segment.start_offset for segment in history.left_out] == [0, 10]


def test_a_segment_of_a_history_that_was_given_up_serves_nothing() -> None:
    """Node 1 led in epoch 0 and copied up to 20. Node 2, the leader of epoch 1, had the records up to 12."""
    old, new = [0] * 20, [0] * 12 + [1] * 13
    segments = [whole(old, 0, 10, 1), whole(old, 10, 20, 2), whole(new, 10, 25, 3)]
    history = history_of(AT, segments, entries_of(new))
    assert (history.start_offset, history.end_offset, history.holes) == (0, 25, ())
    assert history.epochs == (EpochEntry(0, 0), EpochEntry(1, 12))


def test_the_newest_segment_is_that_of_the_highest_epoch_not_that_which_goes_furthest() -> None:
    old, new = [0] * 40, [0] * 10 + [3] * 5
    segments = [whole(old, 0, 40, 1), whole(new, 0, 15, 2)]
    assert newest_segment(segments).segment_id == segments[1].segment_id
    assert history_of(AT, segments, entries_of(new)).end_offset == 15


def test_a_log_start_that_was_copied_with_the_newest_segment_is_kept() -> None:
    """DeleteRecords had moved it into a segment."""
    log = [0] * 20
    history = history_of(AT, [whole(log, 0, 10, 1), whole(log, 10, 20, 2)], [EpochEntry(0, 7)])
    assert (history.start_offset, history.end_offset) == (7, 20)
    assert history.epochs == (EpochEntry(0, 7),)


def lives(seed: int) -> tuple[list[RemoteSegment], list[int], int, dict[bytes, list[int]]]:
    """Leaders with logs that diverge, and copies of pieces of them."""
    chance = random.Random(seed)
    log: list[int] = []
    segments: list[RemoteSegment] = []
    logs: dict[bytes, list[int]] = {}
    for epoch in range(chance.randrange(1, 7)):
        log = grown_log(chance, log, epoch)
        at = chance.randrange(len(log) + 1)
        while at < len(log) and chance.random() < 0.8:
            end = min(len(log), at + chance.randrange(1, 12))
            if chance.random() < 0.85:
                segment = whole(log, at, end, len(segments) + 1)
                segments.append(segment)
                logs[segment.segment_id] = list(log)
            at = end
    chance.shuffle(segments)
    return segments, log, chance.randrange(0, 10), logs


@pytest.mark.parametrize("seed", range(300))
def test_each_offset_of_a_restored_log_has_the_record_of_the_newest_leader(seed: int) -> None:
    segments, _, log_start, logs = lives(seed)
    if not segments:
        return
    newest = newest_segment(segments)
    log = logs[newest.segment_id][: newest.end_offset + 1]
    epochs = [
        EpochEntry(epoch, max(start, log_start))
        for (epoch, start), behind in zip(
            entries_of(log), [*[s for _, s in entries_of(log)][1:], len(log)], strict=True
        )
        if behind > log_start
    ]
    history = history_of(AT, segments, epochs)
    copied = [
        any(s.start_offset <= at <= s.end_offset and logs[s.segment_id][at] == log[at] for s in segments)
        for at in range(log_start, len(log))
    ]
    if not any(copied):
        assert history.segments == ()
        return
    assert history.end_offset == len(log) == newest.end_offset + 1
    first = log_start + len(copied)
    while first > log_start and copied[first - log_start - 1]:
        first -= 1
    assert history.start_offset == first
    missing = {at for hole in history.holes for at in range(hole.start_offset, hole.end_offset)}
    begin = log_start + copied.index(True)
    assert missing == {at for at in range(begin, len(log)) if not copied[at - log_start]}
    assert history.epochs == entries_of(log, first)
    assert set(history.segments) | set(history.left_out) == set(segments)
    serves = RemoteLogCatalog(AT)
    for segment in history.segments:
        for change in copy_records(segment):
            serves.apply(change)
    for at in range(first, len(log)):
        served = serves.find(at, history.epochs)
        assert served is not None, at
        assert logs[served.segment.segment_id][at : served.end_offset] == log[at : served.end_offset]
    assert serves.served_end_offset(first, history.epochs) == len(log)

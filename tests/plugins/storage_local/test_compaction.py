"""Compaction of a log in its directory: what a round leaves, and what else happens meanwhile."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blumfeld.log.segments.file_names import Mark, segment_name
from blumfeld.spi.compaction import CompactionAbandonedError, CompactionResult
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import OffsetOutOfRangeError
from blumfeld_kit.fakes.power import Adversary
from blumfeld_kit.storage_driver.node import PARTITION, TIME_MS, Log, make_batch
from tests.everyday import first
from tests.plugins.storage_local.compaction_tools import (
    AFTER,
    DIRECTORY,
    filled,
    finish,
    keyed,
    leftovers,
    names,
    opened,
    start_round,
)
from tests.plugins.storage_local.local_node import new_node


@pytest.fixture
def log() -> Log:
    return filled()


# The round


def test_only_the_newest_of_each_key_is_left_below_the_active_segment(log: Log) -> None:
    result = finish(log, start_round(log))
    assert log.spans() == AFTER
    assert result.cleaned_end_offset == log.log.cleaned_end_offset == 11
    assert [info.base_offset for info in log.log.segments()] == [0, 6, 11]
    assert [info.next_offset for info in log.log.segments()] == [6, 11, 15]
    assert log.log.size_bytes() == sum(len(batch.data) for batch in log.read_all())


def test_offsets_that_fell_out_before_an_empty_active_segment_read_as_nothing() -> None:
    """The end of a segment is gone, and the active one is empty: there is nothing to read, and no error."""
    node = new_node()
    log = opened(node)
    for key in (1, 2):
        log.append(keyed(key, 1))
        log.log.roll()
    for key in (3, 2):
        log.append(keyed(key, 1))
    log.log.roll()
    assert finish(log, start_round(log)).segments_after == 1
    assert log.spans() == [(0, 1), (2, 3), (3, 4)]
    assert log.read(4) == []
    assert log.read(1) != []


def test_the_indexes_find_what_they_found(log: Log) -> None:
    finish(log, start_round(log))
    log.node.runtime.advance(70_000)
    for info in log.log.segments()[:-1]:
        for path in info.files:
            assert log.node.runtime.files.exists(path)
    place = log.time(TIME_MS + 5)
    assert place is not None
    assert place.offset == 5


def test_the_time_of_change_stays_that_of_the_newest_source(log: Log) -> None:
    files = log.node.runtime.files
    files.set_modified_ms(f"{DIRECTORY}/{segment_name(4)}", 1_234_000)
    finish(log, start_round(log))
    assert log.log.segments()[0].modified_ms == 1_234_000


def test_only_one_round_at_a_time(log: Log) -> None:
    done = start_round(log)
    with pytest.raises(ValueError, match="is being compacted"):
        start_round(log)
    finish(log, done)


def test_a_round_is_throttled(log: Log) -> None:
    """Some 1600 bytes are read twice and written, at 100 a second."""
    runtime = log.node.runtime
    began = runtime.monotonic_ms()
    result = finish(log, start_round(log, bytes_per_second_max=100.0))
    assert 10_000 < runtime.monotonic_ms() - began < 40_000
    assert result.seconds < 1.0, "waiting is no work"


def test_regions_and_readers_of_the_old_segments_live_on() -> None:
    node = new_node()
    log = opened(node)
    for key in (1, 1, 2):
        log.append(make_batch(1, value_bytes=20_000, seed=key))
        log.log.roll()
    held = log.read_raw(0, 30_000)
    reader = log.log.batches(0)
    assert next(reader).base_offset == 0
    expected = bytes(join(held.parts))
    finish(log, start_round(log))
    node.runtime.advance(70_000)
    assert bytes(join(held.parts)) == expected
    release(held.parts)
    assert [batch.base_offset for batch in reader] == [2]


# What else happens meanwhile


def at_every_turn(log_of: Callable[[], Log]) -> Iterator[tuple[Log, Completion[CompactionResult]]]:
    """A log in the middle of a round, once for each turn of the loop that the round takes."""
    turns = 0
    while True:
        log = log_of()
        done = start_round(log)
        for _ in range(turns):
            log.node.runtime.run(asyncio.sleep(0))
        if done.done:
            return
        yield log, done
        turns += 1


def abandoned_or_done(log: Log, done: Completion[CompactionResult]) -> bool:
    """Let it end; whether it was abandoned."""
    try:
        finish(log, done)
    except CompactionAbandonedError:
        return True
    return False


def test_a_truncation_at_any_moment_leaves_nothing_of_what_was_cut() -> None:
    """Before the swap the round comes to nothing; from then on it is finished first."""
    outcomes = []
    for log, done in at_every_turn(filled):
        log.log.truncate_to(5)
        log.append(keyed(9, 1))
        outcomes.append(abandoned_or_done(log, done))
        compacted, plain = [(2, 3), (3, 4)], [(n, n + 1) for n in range(5)]
        expected = [*(plain if outcomes[-1] else compacted), (5, 6)]
        assert log.spans() == expected
        assert log.log.cleaned_end_offset == (0 if outcomes[-1] else 5)
        log.flush()
        again = opened(log.node.crash(luck=Adversary.LOSE))
        assert again.spans() == expected
        assert leftovers(names(again)) == []
    assert len(outcomes) > 10
    assert outcomes == sorted(outcomes, reverse=True), "abandoned first, then not any more"
    assert outcomes.count(False) > 1


def test_a_truncation_behind_the_round_does_not_disturb_it(log: Log) -> None:
    done = start_round(log)
    log.node.runtime.run(asyncio.sleep(0))
    log.log.truncate_to(13)
    finish(log, done)
    assert log.spans() == AFTER[:-2]


def test_a_log_may_be_closed_and_opened_again_at_any_moment() -> None:
    for log, done in at_every_turn(filled):
        before = log.spans()
        log.log.close()
        log = opened(log.node)
        abandoned = abandoned_or_done(log, done)
        assert log.spans() == before or not abandoned
        assert log.spans() in (before, AFTER)
        finish(log, start_round(log))
        assert log.spans() == AFTER
        log.node.stop()
        assert [name for name in leftovers(names(log)) if not name.endswith(Mark.DELETED.value)] == []


def test_a_log_may_be_deleted_at_any_moment() -> None:
    for log, done in at_every_turn(filled):
        log.node.storage.delete_log(PARTITION)
        abandoned_or_done(log, done)
        log.node.runtime.advance(70_000)
        assert not log.node.runtime.files.exists(DIRECTORY)
        assert log.node.storage.log_dirs()[0].online


def test_retention_at_any_moment_wins() -> None:
    for log, done in at_every_turn(filled):
        bases = [info.base_offset for info in log.log.segments()]
        log.log.advance_log_start(6)
        log.log.drop_segments(6)
        abandoned_or_done(log, done)
        assert log.spans(7)[:2] == [(7, 8), (8, 9)]
        assert log.log.segments()[0].base_offset == 6, bases
        log.flush()
        again = opened(log.node.crash(luck=Adversary.LOSE))
        assert again.spans(7)[:2] == [(7, 8), (8, 9)]


@pytest.mark.parametrize("seed", first(3, range(8)))
def test_rounds_among_everything_else(seed: int) -> None:
    """Appends, rolls, flushes, cold reads, look-ups by time and truncations, while off-loop work takes its time."""
    chance = random.Random(seed)
    node = new_node()
    log = opened(node, file_delete_delay_ms=20)
    runtime = node.runtime
    runtime.offload_delay_ms = lambda: chance.choice((0.0, 0.0, 1.0, 7.0))
    written: dict[int, int] = {}
    rounds: list[Completion[CompactionResult]] = []
    others: list[Completion[Any]] = []
    for version in range(300):
        what = chance.random()
        if what < 0.5:
            key = chance.randrange(8)
            written[log.log.placed_end_offset] = key
            assert log.append(keyed(key, version)).error is None
        elif what < 0.65:
            log.log.roll()
        elif what < 0.7:
            others.append(log.log.flush())
        elif what < 0.73 and log.log.written_end_offset > 3:
            end = log.log.written_end_offset - chance.randrange(1, 4)
            log.log.truncate_to(end)
            written = {offset: key for offset, key in written.items() if offset < log.log.written_end_offset}
        elif what < 0.8:
            runtime.disk.cold.add(f"{chance.randrange(10)}.log")
            looked_up = log.log.offset_for_time(TIME_MS + chance.randrange(version + 1))
            if isinstance(looked_up, Completion):
                others.append(looked_up)
        elif what < 0.9 and (not rounds or rounds[-1].done):
            rounds.append(start_round(log))
        else:
            spans = log.spans(chance.randrange(log.log.written_end_offset + 1))
            assert spans == sorted(spans)
        runtime.advance(chance.choice((0, 0, 1, 5)))
    runtime.advance(1000)
    finish(log, start_round(log))
    errors = [done.error for done in [*rounds, *others] if done.error is not None]
    assert all(isinstance(error, (CompactionAbandonedError, OffsetOutOfRangeError)) for error in errors), (
        errors
    )
    left = [base for base, _ in log.spans()]
    base = log.log.segments()[-1].base_offset
    newest = {written[offset]: offset for offset in sorted(written) if offset < base}
    assert left == sorted({*newest.values(), *(offset for offset in written if offset >= base)})
    assert sum(not isinstance(done.error, CompactionAbandonedError) for done in rounds) > 3
    assert node.storage.log_dirs()[0].online
    runtime.advance(1000)
    assert leftovers(names(log)) == []
    node.stop()

"""Random operations on a log, compared with a list of batches: a part of the storage contract (hypothesis)."""

from __future__ import annotations

import errno
from collections.abc import Callable
from itertools import pairwise
from random import Random
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from blumfeld.spi.parts import release
from blumfeld_kit.fakes.files import Fault
from blumfeld_kit.fakes.power import Adversary, PowerCut
from blumfeld_kit.storage_driver.compaction_model import BatchContent, compact, content, difference
from blumfeld_kit.storage_driver.node import PARTITION, TIME_MS, Log, Node, keyed_batch

SEGMENT_BYTES = 1200
OPEN: dict[str, Any] = {"segment_bytes": SEGMENT_BYTES, "index_interval_bytes": 150}
KEYS = 6
NAMES = ("leader-epoch-checkpoint", "00000000000000000003.snapshot")


class LogMachine(RuleBasedStateMachine):
    """The model is a list of batches as they must be read, three ends, a start, small files.

    A power cut may take back a cleaner pass or a truncation that was not flushed: the machine flushes behind
    truncations and keeps the batches from before the last passes in ``older``.
    """

    make_node: Callable[[], Node]
    restarts = False
    faults = False
    power_cuts = False

    def __init__(self) -> None:
        super().__init__()
        self.node = type(self).make_node()
        self.log: Log = self.node.open(cleanup_policy="compact", **OPEN)
        self.written: list[BatchContent] = []
        self.older: list[list[BatchContent]] = []
        self.placed: list[BatchContent] = []
        self.start = self.end = self.flushed = self.cleaned = 0
        self.holes_to = 0
        """Compaction may have left holes below this offset."""
        self.values = 0
        self.aux: dict[str, bytes] = {}
        self.aux_maybe: dict[str, list[bytes | None]] = {}
        """Earlier contents of small files that a power cut may bring back."""
        self.log_lasts = False
        """The log was flushed since it was made, so a power cut can't remove the whole log."""

    # Append

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=5), size=st.integers(0, 400))
    def place(self, counts: list[int], size: int) -> None:
        """Place some batches. They use few keys, and some records are tombstones."""
        for count in counts:
            pairs: list[tuple[bytes | None, bytes | None]] = []
            for n in range(count):
                self.values += 1
                value = None if self.values % 7 == 0 else b"%d" % self.values + bytes(size // count)
                pairs.append((b"k%d" % (self.values * 5 % KEYS + n % 2), value))
            batch = keyed_batch(*pairs, timestamp_ms=TIME_MS + self.values)
            base_offset = self.log.log.place(batch, 0)
            assert base_offset == (self.placed[-1].next_offset if self.placed else self.end)
            self.placed.append(content(bytes(batch.data)))

    @rule()
    def write(self) -> None:
        """Write what was placed, as the end of a turn does."""
        outcome = self.log.write()
        assert outcome.error is None
        self._written()
        assert outcome.written_end_offset == self.end

    def _written(self) -> None:
        self.written += self.placed
        self.older = [older + self.placed for older in self.older]
        self.end = self.placed[-1].next_offset if self.placed else self.end
        self.placed = []

    @precondition(lambda self: type(self).faults and self.placed)
    @rule(short=st.sampled_from([None, 0, 1, 61, 300]))
    def write_fails(self, short: int | None) -> None:
        """Write on a full disk, at once or within the write. What doesn't fit is gone, and its offsets come again."""
        full = Fault(
            operation="pwritev", path_part=self.log.record_files, short_bytes=short, error_number=errno.ENOSPC
        )
        self.node.runtime.disk.inject(full)
        outcome = self.log.write()
        self.node.runtime.disk.heal()
        if outcome.error is None:  # the first write was short, and a second one wrote the rest
            self._written()
        assert self.end <= outcome.written_end_offset
        self.placed = [batch for batch in self.placed if batch.next_offset <= outcome.written_end_offset]
        self._written()
        assert outcome.written_end_offset == self.end == self.log.log.placed_end_offset

    @rule()
    def flush(self) -> None:
        """Flush, and check the flushed end offset."""
        self.flushed = self.log.flush()
        self.log_lasts = True
        assert self.flushed >= self.end

    @precondition(lambda self: not self.placed)
    @rule()
    def roll(self) -> None:
        """Seal the active segment."""
        self.log.roll()

    # Cut

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        """Cut the end off."""
        offset = max(self.start, self.end - back)
        self.log.log.truncate_to(offset)
        self.placed = []
        if offset < self.end:
            end = self.log.log.written_end_offset
            inside = [b for b in self.written if b.base_offset < offset < b.next_offset]
            assert end == (inside[0].base_offset if inside else offset) or end < self.holes_to
            self._ends_at(end)
        if self.power_cuts:
            self.flush()  # a power cut may undo a truncation that isn't flushed

    def _ends_at(self, end: int) -> None:
        self.written = [batch for batch in self.written if batch.next_offset <= end]
        self.older = [[batch for batch in older if batch.next_offset <= end] for older in self.older]
        self.end = end
        self.start, self.cleaned = min(self.start, end), min(self.cleaned, end)
        self.holes_to = min(self.holes_to, end)
        self.flushed = min(self.flushed, end)

    @rule(ahead=st.integers(0, 5))
    def truncate_fully(self, ahead: int) -> None:
        """Empty the log and begin anew, as a follower does at the leader's log start."""
        start = self.end + ahead
        self.log.log.truncate_fully(start)
        self.placed = []
        self._ends_at(0)
        self.written, self.older = [], []
        self.start = self.end = start
        self.cleaned = self.log.cleaned_end_offset
        assert self.cleaned <= start
        if self.power_cuts:
            self.flush()

    @precondition(lambda self: not self.placed)
    @rule(ahead=st.integers(0, 20))
    def advance_start(self, ahead: int) -> None:
        """Advance the log start (DeleteRecords), then drop the segments below it (retention)."""
        offset = min(self.start + ahead, self.end)
        self.log.log.advance_log_start(offset)
        if self.node.has_segments:
            self.log.log.drop_segments(offset)
        self.start = offset

    # Compact, move

    @precondition(lambda self: self.node.storage.compacts and not self.placed)
    @rule(wait_ms=st.sampled_from([0, 600, 2000]))
    def compact(self, wait_ms: int) -> None:
        """Run a cleaner pass over all sealed segments, and compare it with the reference model."""
        self.node.runtime.advance(wait_ms)
        compaction = self.log.compaction(segment_bytes=SEGMENT_BYTES)
        visible = {b.base_offset: b for b in map(_content, self.log.read_all(holes=True))}
        known = [visible.get(batch.base_offset, batch) for batch in self.written]
        model = compact(known, compaction)
        self.log.compact(segment_bytes=SEGMENT_BYTES)
        before = self.written
        self.written = [b for b in model.batches if b.records] + [
            b for b in self.written if b.next_offset > compaction.end_offset
        ]
        if model.removed:
            self.older.append(before)
        self.cleaned = self.log.cleaned_end_offset
        self.holes_to = max(self.holes_to, self.cleaned)
        assert self.cleaned >= compaction.first_dirty_offset

    @precondition(lambda self: len(self.node.directories) > 1 and type(self).restarts)
    @rule(waits_ms=st.integers(0, 30))
    def move(self, waits_ms: int) -> None:
        """Move the log to the next directory. The move may run for a while."""
        directories = self.node.directories
        at = directories.index(self.log.log.directory_id)
        self.node.storage.move_log(PARTITION, directories[(at + 1) % len(directories)])
        self.node.runtime.advance(waits_ms)

    @rule(ms=st.sampled_from([1, 1000, 70_000]))
    def wait(self, ms: int) -> None:
        """Let time pass, so that delayed work is done."""
        self.node.runtime.advance(ms)

    # Small files

    @rule(name=st.sampled_from(NAMES), data=st.binary(max_size=20) | st.none())
    def small_file(self, name: str, data: bytes | None) -> None:
        """Write a small file, or delete it."""
        before = self.aux.pop(name, None)
        if data is None:
            self.log.log.aux.delete(name)
            self.aux_maybe.setdefault(name, []).append(before)
            return
        self.log.log.aux.write(name, data)
        self.aux[name] = data
        if self.log_lasts:
            self.aux_maybe.pop(name, None)  # a durable write replaces every earlier content
        else:
            self.aux_maybe.setdefault(name, []).append(before)

    # Stops, crashes

    def _open(self) -> None:
        self.log = self.node.open(cleanup_policy="compact", **OPEN)

    @precondition(lambda self: not self.placed)
    @rule()
    def close_and_open(self) -> None:
        """Close the log and open it again in the same process."""
        self.log.log.close()
        self._open()

    @precondition(lambda self: not self.placed)
    @rule()
    def delete_and_create(self) -> None:
        """Delete the log and make it anew with the same name and id, as after a reassignment."""
        self.log.log.close()
        self.node.storage.delete_log(PARTITION)
        self._open()
        self._ends_at(0)
        self.older, self.aux, self.aux_maybe = [], {}, {}
        self.start, self.log_lasts = 0, False
        if self.power_cuts:
            self.log.fill(1)
            self.flush()
            self.written = [*map(_content, self.log.read_all())]
            self.end = 1

    @precondition(lambda self: type(self).restarts and not self.placed)
    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """Stop and start, or die and recover."""
        if clean or not type(self).faults:
            self.node.stop()
            self.node.restart()
            self.flushed = self.end
        else:
            self.node.storage.checkpoint([])
            self.node.runtime.run_turn()
            self.node.crash(power_cut=False)
        self._open()
        assert self.log.cleaned_end_offset <= self.end
        if clean:
            assert self.log.cleaned_end_offset == self.cleaned

    @precondition(lambda self: type(self).power_cuts)
    @rule(how=st.sampled_from(list(Adversary)) | st.integers(0, 1 << 30), checkpoint=st.booleans())
    def power_cut(self, how: Adversary | int, checkpoint: bool) -> None:
        """Cut the power. The log is then a prefix with all that was flushed, and its log start is one that it had."""
        if checkpoint:
            self.node.storage.checkpoint([])
            self.node.runtime.run_turn()
        luck: PowerCut | Random = Random(how) if isinstance(how, int) else how
        self.node.crash(luck=luck)
        self._open()
        it = self.log.log
        assert it.log_start_offset <= self.start
        assert self.flushed <= it.written_end_offset <= self.end
        self.placed = []
        start, end = it.log_start_offset, it.written_end_offset
        batches = [*map(_content, self.log.read_all(holes=True))]
        self.written = self._left(batches, start, end)
        self.older = []
        self.start, self.end = start, end
        self.holes_to = end
        self.cleaned = self.log.cleaned_end_offset
        assert self.cleaned <= end
        for name in NAMES:
            there = it.aux.read(name)
            assert there in (self.aux.get(name), *self.aux_maybe.get(name, ()))
            self.aux.pop(name, None)
            if there is not None:
                self.aux[name] = there

    def _left(self, kept_batches: list[BatchContent], start: int, end: int) -> list[BatchContent]:
        """Return the model's batches after the power cut: a prefix of the present ones, or of those before a cleaner
        pass.
        """
        for batches in (self.written, *reversed(self.older)):
            # Compaction may have left a hole behind the flushed end, so recovery cuts nothing behind it.
            there = {batch.base_offset for batch in kept_batches}
            expected = [
                b
                for b in batches
                if b.next_offset <= self.flushed or b.base_offset in there or b.base_offset < start
            ]
            if difference(kept_batches, [b for b in expected if b.next_offset > start]) is None:
                return expected
        raise AssertionError(
            f"{kept_batches} is not a prefix of {self.written}, nor of what was there before a pass"
        )

    # Reads

    @invariant()
    def reads_what_the_list_holds(self) -> None:
        """The log reads as the model says, from its start to its end."""
        it = self.log.log
        assert (it.log_start_offset, it.written_end_offset) == (self.start, self.end)
        assert it.flushed_end_offset <= it.written_end_offset <= it.placed_end_offset
        batches = [*map(_content, self.log.read_all(holes=True))]
        expected = [batch for batch in self.written if batch.next_offset > self.start]
        wrong = difference(batches, expected)
        assert wrong is None, wrong
        if self.node.has_segments:
            infos = it.segments()
            assert infos[-1].next_offset == self.end
            assert all(a.next_offset == b.base_offset for a, b in pairwise(infos))
            assert it.size_bytes() == sum(s.size_bytes for s in infos)
        assert {name: it.aux.read(name) for name in NAMES} == {name: self.aux.get(name) for name in NAMES}

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def read_somewhere(self, data: st.DataObject) -> None:
        """Read at any offset, up to any end, with any limit."""
        offset = data.draw(st.integers(self.start, self.end))
        end = data.draw(st.integers(offset, self.end))
        raw_read = self.log.read_raw(offset, data.draw(st.integers(0, 3000)), end)
        release(raw_read.parts)
        inside = [b for b in self.written if b.next_offset > offset and b.next_offset <= end]
        assert raw_read.size_bytes > 0 or not inside
        assert raw_read.size_bytes == 0 or inside or end <= self.holes_to
        assert raw_read.end_offset <= max(end, offset)

    @precondition(lambda self: self.end > self.start)
    @rule(data=st.data())
    def look_up_a_time(self, data: st.DataObject) -> None:
        """Look up a time: the first record at or after it. Timestamps rise with offsets."""
        records = [r for b in self.written for r in b.records if r[0] >= self.start]
        wanted = TIME_MS + data.draw(st.integers(0, self.values + 5))
        expected = next((record for record in records if record[3] >= wanted), None)
        place = self.log.time(wanted)
        assert (place and (place.offset, place.timestamp_ms)) == (expected and (expected[0], expected[3]))

    def teardown(self) -> None:
        """Stop cleanly: every descriptor is given back."""
        self.node.stop()
        if type(self).faults:
            assert (self.node.runtime.disk.open_files, self.node.runtime.disk.open_regions) == (0, 0)


def _content(batch: Any) -> BatchContent:
    return content(batch.data)


def run_machine(
    make_node: Callable[[], Node],
    *,
    restarts: bool,
    faults: bool,
    power_cuts: bool,
    examples: int = 40,
    steps: int = 25,
) -> None:
    """Run the machine on fresh nodes; with ``faults`` and ``power_cuts`` their disk is simulated."""
    settings_of = {
        "make_node": staticmethod(make_node),
        "restarts": restarts,
        "faults": faults,
        "power_cuts": power_cuts,
    }
    machine = type("Machine", (LogMachine,), settings_of)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

"""Random operations on a log against a list of batches: part of the storage contract (hypothesis)."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from random import Random

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
from blumfeld.testing.storage_node import Node, make_batch

SEGMENT_BYTES = 1200


class ModelBatch:
    """What the list knows of a batch."""

    def __init__(self, base_offset: int, count: int) -> None:
        self.base_offset = base_offset
        self.next_offset = base_offset + count


class LogMachine(RuleBasedStateMachine):
    """The model is a list of batches, two ends and a start."""

    make_node: Callable[[], Node]
    restarts = False
    power_cuts = False

    def __init__(self) -> None:
        super().__init__()
        self.node = type(self).make_node()
        self.log = self.node.open(segment_bytes=SEGMENT_BYTES, index_interval_bytes=150)
        self.written: list[ModelBatch] = []
        self.placed: list[ModelBatch] = []
        self.start = self.end = self.flushed = 0

    @rule(counts=st.lists(st.integers(1, 4), min_size=1, max_size=5), size=st.integers(0, 400))
    def place(self, counts: list[int], size: int) -> None:
        """Place some batches."""
        for count in counts:
            base_offset = self.log.log.place(make_batch(count, value_bytes=size // count), 0)
            end = self.placed[-1].next_offset if self.placed else self.end
            assert base_offset == end
            self.placed.append(ModelBatch(base_offset, count))

    @rule()
    def write(self) -> None:
        """The end of a turn."""
        outcome = self.log.write()
        assert outcome.error is None
        self.written += self.placed
        self.end = self.placed[-1].next_offset if self.placed else self.end
        self.placed = []
        assert outcome.written_end_offset == self.end

    @precondition(lambda self: not self.placed)
    @rule()
    def roll(self) -> None:
        """Seal the active segment."""
        self.log.log.roll()

    @rule()
    def flush(self) -> None:
        """Flush."""
        self.flushed = self.log.flush()
        assert self.flushed >= self.end

    @rule(back=st.integers(0, 30))
    def truncate(self, back: int) -> None:
        """Cut the end off."""
        offset = max(self.start, self.end - back)
        self.log.log.truncate_to(offset)
        cut = [batch for batch in self.written if batch.next_offset > offset]
        self.written = self.written[: len(self.written) - len(cut)]
        self.placed = []
        if offset < self.end:
            self.end = min(offset, cut[0].base_offset) if cut else offset
        self.start = min(self.start, self.end)
        if self.power_cuts:
            self.log.flush()  # a truncation that isn't flushed may be undone by a power cut
        self.flushed = min(self.flushed, self.end)

    @precondition(lambda self: not self.placed)
    @rule(ahead=st.integers(0, 20))
    def advance_start(self, ahead: int) -> None:
        """DeleteRecords, then retention of whole segments."""
        offset = min(self.start + ahead, self.end)
        self.log.log.advance_log_start(offset)
        self.log.log.drop_segments(offset)
        self.start = offset

    @precondition(lambda self: type(self).restarts and not self.placed)
    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        """Stop and start, or die and recover."""
        if clean or not self.node.is_simulated:
            self.node.stop()
            self.node.restart()
        else:
            self.node.storage.checkpoint([])
            self.node.runtime.run_turn()
            self.node.crash(power_cut=False)
        self.log = self.node.open(segment_bytes=SEGMENT_BYTES, index_interval_bytes=150)

    @precondition(lambda self: type(self).power_cuts)
    @rule(seed=st.integers(0, 1 << 30), checkpoint=st.booleans())
    def power_cut(self, seed: int, checkpoint: bool) -> None:
        """What is left is a prefix, with all that was flushed; the log start is one that it had."""
        if checkpoint:
            self.node.storage.checkpoint([])
            self.node.runtime.run_turn()
        self.node.crash(luck=Random(seed))
        self.log = self.node.open(segment_bytes=SEGMENT_BYTES, index_interval_bytes=150)
        it = self.log.log
        assert it.log_start_offset <= self.start
        assert self.flushed <= it.written_end_offset <= self.end
        self.start, self.end, self.placed = it.log_start_offset, it.written_end_offset, []
        self.written = [batch for batch in self.written if batch.next_offset <= self.end]

    @invariant()
    def reads_what_the_list_holds(self) -> None:
        """From the start to the end."""
        it = self.log.log
        assert (it.log_start_offset, it.written_end_offset) == (self.start, self.end)
        expected = [(b.base_offset, b.next_offset) for b in self.written if b.next_offset > self.start]
        assert self.log.spans() == expected
        infos = it.segments()
        assert infos[-1].next_offset == self.end
        assert all(a.next_offset == b.base_offset for a, b in pairwise(infos))
        assert it.size_bytes() == sum(s.size_bytes for s in infos)

    @precondition(lambda self: self.written)
    @rule(data=st.data())
    def read_somewhere(self, data: st.DataObject) -> None:
        """Any offset, any end, any limit."""
        offset = data.draw(st.integers(self.start, self.end))
        end = data.draw(st.integers(offset, self.end))
        found = self.log.read_raw(offset, data.draw(st.integers(0, 3000)), end)
        release(found.parts)
        inside = [b for b in self.written if b.next_offset > offset and b.next_offset <= end]
        assert (found.size_bytes > 0) == bool(inside)
        assert found.end_offset <= max(end, offset)

    def teardown(self) -> None:
        """Stop cleanly: every descriptor is given back."""
        self.node.stop()
        if self.node.is_simulated:
            assert (self.node.runtime.disk.open_files, self.node.runtime.disk.open_regions) == (0, 0)


def run_machine(make_node: Callable[[], Node], *, restarts: bool, power_cuts: bool) -> None:
    """Run the machine on fresh nodes; with ``power_cuts`` their disk is simulated."""
    settings_of = {"make_node": staticmethod(make_node), "restarts": restarts, "power_cuts": power_cuts}
    machine = type("Machine", (LogMachine,), settings_of)
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=40,
            stateful_step_count=25,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )

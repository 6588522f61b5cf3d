"""Bits rot below the checksum of a batch: what must be seen then, and bugs that the oracle must find."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import msgspec
import pytest

from blumfeld.log.segments.recovery import RecoveredSegment, recover_segment
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld_kit.fakes.files import FakeDisk
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.swarm import Shape, Swarm, SwarmFailure
from blumfeld_kit.simulation.swarm.rot import Rot
from blumfeld_storage_local.start import recovery
from tests.kit.simulation.clients.test_oracle import promises

SHAPE = Shape(seed=65, clients=12, seconds=60.0, workload="rot")
"""Bits flip in this seed; processes are killed, and not all of them."""


def test_rotten_batches_are_seen_and_nothing_else_is_lost() -> None:
    report = Swarm(SHAPE, Rot()).run()
    assert report.faults["bit-rot"] == report.counts["rotten"] > 1
    assert report.counts["unreadable"] > 0
    assert report.counts["taken_flushed"] > 0
    assert report.counts["cuts"] > 0


def test_a_log_that_is_cut_without_a_word_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blumfeld_kit.simulation.swarm.rot.CUT", "never said")
    with pytest.raises(SwarmFailure, match="was acknowledged"):
        Swarm(SHAPE, Rot()).run()


def test_a_recovery_that_cuts_too_much_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_much(*args: Any, **options: Any) -> Generator[int, None, RecoveredSegment]:
        segment_recovery = yield from recover_segment(*args, **options)
        if segment_recovery.end.problem is None:
            return segment_recovery
        end = msgspec.structs.replace(segment_recovery.end, position=0, next_offset=args[2])
        return msgspec.structs.replace(segment_recovery, end=end)

    monkeypatch.setattr(recovery, "recover_segment", too_much)
    with pytest.raises(SwarmFailure, match="the log is cut, where no bit has flipped"):
        Swarm(SHAPE, Rot()).run()


def test_wrong_bytes_with_a_checksum_that_fits_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a broker computed the checksum of a batch that it copies, instead of checking it."""
    flip_bit = FakeDisk.flip_bit

    def flipped(disk: FakeDisk, path: str, position: int, bit: int = 0) -> None:
        flip_bit(disk, path, position, bit)
        node = disk.tree.file(path)
        data, at = memoryview(bytearray(node.read(node.size, 0))), 0
        while (end := at + RecordBatch(data, at).size_bytes) <= position:
            at = end
        batch = RecordBatch(data, at)
        batch.set_log_append_time(batch.max_timestamp)
        disk.damage(path, bytes(batch.data), at)

    monkeypatch.setattr(FakeDisk, "flip_bit", flipped)
    with pytest.raises(SwarmFailure, match="which nobody produced"):
        Swarm(msgspec.structs.replace(SHAPE, seed=67), Rot()).run()


# The oracle


def test_a_cut_takes_what_was_acknowledged_only_at_a_rotten_batch() -> None:
    promises().cut(3)  # the torn end of a log
    with pytest.raises(ViolationError, match="where no bit has flipped"):
        promises().cut(1)
    it = promises()
    it.rotted(1, 2)
    with pytest.raises(ViolationError, match="where no bit has flipped"):
        it.cut(0)
    it.cut(1)
    assert it.check_whole([(0, b"p#0#"), (1, b"p#5#")]) == 2
    assert it.taken == 2


def test_a_rotten_batch_hides_its_own_records_only() -> None:
    it = promises()
    with pytest.raises(ViolationError, match="wrong checksum"):
        it.skip_rotten(1)
    it.rotted(1, 1)
    assert it.skip_rotten(1) == 1
    assert it.check_whole([(0, b"p#0#"), (1, None), (2, b"p#2#")]) == 3
    assert it.taken == 0
    with pytest.raises(ViolationError, match="b'p#2#' was acknowledged, and is lost"):
        it.check_whole([(0, b"p#0#"), (1, None)])


def test_a_producer_may_be_refused_after_a_cut_at_a_rotten_batch() -> None:
    it = promises()
    it.rotted(0, 0)
    with pytest.raises(ViolationError, match="forgot"):
        it.sequence_refused(known_s=0.0)
    it.cut(0)
    it.sequence_refused(known_s=0.0)

"""Bytes that this process did not write are looked at before a reader gets them."""

from __future__ import annotations

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.log.checkpoints import LOG_STARTS, RECOVERY_POINTS, encode_offsets
from blumfeld.spi.completion import Completion
from blumfeld.spi.parts import join, release
from blumfeld.spi.storage import LogRead, WriteOutcome
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.storage_driver.node import PARTITION, TIME_MS, Log, Node, make_batch
from blumfeld_storage_local.segments.checked_bytes import NOWHERE, CheckedBytes, check_headers
from blumfeld_storage_local.segments.segment import COPY_BYTES_MAX
from tests.plugins.storage_local.local_node import Events

LOG = f"/data/{PARTITION}/00000000000000000000.log"


def read(log: Log, offset: int, bytes_max: int = 1 << 20) -> bytes:
    """Up to the end, as a fetch would. Raises OSError."""
    end = log.log.written_end_offset
    outcome = log.log.read(offset, bytes_max, end, True)
    if not isinstance(outcome, LogRead):
        completion: Completion[LogRead] = outcome
        log.node.runtime.run_turn()
        outcome = completion.result()
    data = join(outcome.parts)
    release(outcome.parts)
    return data


def damage(node: Node, data: bytes, position: int | None = None) -> None:
    """Somebody writes into the log file. ``None``: behind its end."""
    file = node.runtime.files.open(LOG)
    file.pwritev([data], file.size() if position is None else position)
    file.close()


def after_a_clean_stop(node: Node, data: bytes, position: int | None = None, *, batches: int = 3) -> Log:
    log = node.open(index_interval_bytes=0)
    log.fill(*[2] * batches)
    node.stop()
    damage(node, data, position)
    return node.restart().open(index_interval_bytes=0)


def test_zeros_behind_a_log_that_was_closed_cleanly_reach_no_reader(node: Node, events: Events) -> None:
    log = after_a_clean_stop(node, bytes(4096))
    sound = b"".join(bytes(batch.data) for batch in log.read_all())
    assert len(sound) == node.runtime.files.open(LOG).size() - 4096
    assert read(log, 0) == sound
    assert read(log, 4) == sound[len(sound) // 3 * 2 :]
    assert events.said.count("bytes that are no batch, served up to there") == 1, "told once"


def test_the_next_start_cuts_them_off(node: Node) -> None:
    log = after_a_clean_stop(node, bytes(4096))
    size = len(read(log, 0))
    node.stop()
    log = node.restart().open()
    assert node.runtime.files.open(LOG).size() == size
    assert log.log.written_end_offset == 6
    log.fill(1)


@pytest.mark.parametrize(
    "data",
    [bytes(61), b"\xff" * 100, bytes(make_batch(2).data), bytes(make_batch(1, base_offset=6).data)[:70]],
)
def test_whatever_stands_behind_the_end_is_not_served(node: Node, data: bytes) -> None:
    """Zeros, noise, a batch with offsets that were given before, and one that is cut off."""
    log = after_a_clean_stop(node, data)
    assert len(read(log, 0)) == node.runtime.files.open(LOG).size() - len(data)


def test_a_header_that_was_overwritten_is_an_error_where_it_stands(node: Node) -> None:
    size = len(make_batch(2).data)
    log = after_a_clean_stop(node, bytes(20), size)
    assert len(read(log, 0)) == size, "what is before it is served"
    with pytest.raises(OSError, match=f"no batch at byte {size}.*--repair") as caught:
        read(log, 2)
    assert caught.value.errno == errno.EIO


def test_a_sealed_segment_is_looked_at_too(node: Node) -> None:
    log = node.open()
    log.fill(2, 2)
    log.log.roll()
    log.fill(1)
    node.stop()
    damage(node, bytes(20), len(make_batch(2).data))
    log = node.restart().open()
    assert len(read(log, 0)) == len(make_batch(2).data)


def test_bytes_are_looked_at_once(node: Node) -> None:
    log = after_a_clean_stop(node, b"")
    assert not isinstance(log.log.read(0, 1 << 20, 6, True), LogRead), "a worker looks first"
    node.runtime.run_turn()
    for _ in range(3):
        again = log.log.read(0, 1 << 20, 6, True)
        assert isinstance(again, LogRead)
        release(again.parts)


def test_what_this_process_wrote_is_served_at_once(node: Node) -> None:
    log = node.open()
    log.fill(2, 2)
    outcome = log.log.read(0, 1 << 20, 4, True)
    assert isinstance(outcome, LogRead)


@pytest.mark.parametrize("value_bytes", [10, COPY_BYTES_MAX], ids=["copied", "sent from the file"])
@pytest.mark.parametrize("grows_again", [False, True])
def test_a_file_that_somebody_cuts_gives_an_error(node: Node, value_bytes: int, grows_again: bool) -> None:
    """Not an answer that stops in its middle, nor the hole of zeros that the next write leaves."""
    log = node.open()
    log.append(make_batch(2, value_bytes=value_bytes))
    log.append(make_batch(2, value_bytes=value_bytes))
    file = node.runtime.files.open(LOG)
    file.truncate(0 if grows_again else 10)
    if grows_again:
        log.fill(1)
    if grows_again and value_bytes == COPY_BYTES_MAX:
        file.truncate(30)
    with pytest.raises(OSError, match="no batch at byte"):
        read(log, 0)


def test_the_walk_says_where_whole_batches_end(node: Node) -> None:
    log = node.open()
    log.fill(2, 2, 2)
    file = node.runtime.files.open(LOG)
    size, batch_bytes = file.size(), len(make_batch(2).data)
    assert check_headers(file, 0, size, size, 6) == (size, None)
    assert check_headers(file, batch_bytes, batch_bytes + 1, size, 6) == (2 * batch_bytes, None), (
        "to the end of a batch"
    )
    assert check_headers(file, 0, size, size - 1, 6)[0] == 2 * batch_bytes
    assert check_headers(file, 0, size, size, 5)[0] == 2 * batch_bytes, "beyond the segment's offsets"
    assert check_headers(file, 1, size, size, 6)[0] == 1


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(1, 20)), max_size=8), st.integers(0, 60))
def test_checked_ranges_are_a_set_of_bytes(ranges: list[tuple[int, int]], position: int) -> None:
    checked, model = CheckedBytes(), set[int]()
    for start, size in ranges:
        checked.add(start, start + size)
        model |= set(range(start, start + size))
    end = position
    while end in model:
        end += 1
    assert checked.end(position) == end
    checked.cut(30)
    assert checked.end(position) == (NOWHERE if position >= 30 or end >= 30 else end)


# Checkpoints that say more than there is


FAR = 10**15


@pytest.mark.parametrize(
    ("name", "clean", "ends", "event"),
    [
        (LOG_STARTS, True, (0, 2), "log start beyond the end of the log ignored"),
        (RECOVERY_POINTS, True, (0, 2), None),
        # As in Kafka, since offsets are not given twice.
        (LOG_STARTS, False, (FAR, FAR), "log begun anew: a crash took what is behind its start"),
        (RECOVERY_POINTS, False, (0, 2), None),
    ],
)
def test_a_checkpoint_beyond_the_log_is_not_believed_but_for_a_log_start_after_a_crash(
    node: Node, events: Events, name: str, clean: bool, ends: tuple[int, int], event: str | None
) -> None:
    node.open().fill(1, 1)
    node.storage.checkpoint([])
    node.runtime.run_turn()
    if clean:
        node.stop()
    else:
        node.runtime.crash(power_cut=False)
    disk = FakeRuntime(7, disk=node.runtime.disk)
    disk.files.write_atomically(f"/data/{name}", encode_offsets([(PARTITION, FAR)]))
    log = node.restart().open()
    assert (log.log.log_start_offset, log.log.written_end_offset) == ends
    assert event is None or event in events.said
    assert log.append(make_batch(1)) == WriteOutcome(ends[1] + 1, None)


def test_a_log_that_was_emptied_after_a_clean_stop_begins_without_its_old_index(node: Node) -> None:
    node.open().append(*(make_batch(1, timestamp_ms=TIME_MS + later) for later in range(3)))
    node.stop()
    file = node.runtime.files.open(LOG)
    file.truncate(0)
    log = node.restart().open()
    log.append(make_batch(1, timestamp_ms=TIME_MS + 5))
    node.stop()
    assert node.restart().open().log.written_end_offset == 1

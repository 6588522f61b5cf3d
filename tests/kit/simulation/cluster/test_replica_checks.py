"""A record that one replica calls committed is the same at every other one, byte by byte."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.spi.cluster import PartitionImage
from blumfeld_kit.simulation.clients.oracle import ViolationError
from blumfeld_kit.simulation.cluster.replica_checks import History, check_isr, is_held_to


class Log:
    """Batches of two records with these bytes."""

    def __init__(self, *batches: bytes, start: int = 0) -> None:
        self._batches = batches
        self.log_start_offset = start
        self.written_end_offset = 2 * len(batches)
        self.read = 0

    def batches(self, offset: int) -> Iterator[Any]:
        for nth in range(offset // 2, len(self._batches)):
            self.read += 1
            yield SimpleNamespace(base_offset=2 * nth, next_offset=2 * nth + 2, data=self._batches[nth])


def machine(address: str, process: int = 1) -> Any:
    return SimpleNamespace(address=address, incarnations=process, disk=SimpleNamespace(watch="seen"))


def check(
    history: History, address: str, log: Log, end_offset: int, process: int = 1, may_begin_at: int = 0
) -> None:
    history.check(machine(address, process), cast(Any, log), end_offset, may_begin_at)


def test_replicas_that_agree_may_know_different_ends() -> None:
    history = History("work-0")
    check(history, "a", Log(b"1", b"2", b"3"), 4)
    check(history, "b", Log(b"1", b"2", b"x"), 4)
    check(history, "c", Log(b"1"), 2)
    assert history.end_offset == 4


def test_another_batch_below_the_high_watermark_is_a_violation() -> None:
    history = History("work-0")
    check(history, "a", Log(b"1", b"2"), 4)
    with pytest.raises(ViolationError, match="b has another batch"):
        check(history, "b", Log(b"1", b"x"), 4)


def test_the_next_process_is_checked_from_the_beginning() -> None:
    history = History("work-0")
    check(history, "a", Log(b"1", b"2"), 4)
    again = Log(b"x", b"2")
    check(history, "a", again, 4)
    assert again.read == 0
    with pytest.raises(ViolationError, match="another batch"):
        check(history, "a", again, 4, process=2)


def test_a_hole_is_a_violation() -> None:
    history = History("work-0")
    check(history, "a", Log(b"1", b"2"), 2)
    with pytest.raises(ViolationError, match="a hole"):
        check(history, "b", Log(b"1", b"2", b"3", start=4), 6)


def test_what_was_committed_and_deleted_between_two_looks_is_no_hole() -> None:
    """A snapshot, or a client's DeleteRecords, let the log begin there."""
    history = History("__cluster_metadata")
    check(history, "a", Log(b"1", b"2"), 2)
    check(history, "b", Log(b"1", b"2", b"3", start=4), 6, may_begin_at=4)
    assert history.end_offset == 6


def test_a_log_that_begins_behind_what_was_deleted_has_a_hole() -> None:
    history = History("work-0")
    check(history, "a", Log(b"1", b"2"), 2)
    with pytest.raises(ViolationError, match="a hole"):
        check(history, "b", Log(b"1", b"2", b"3", start=4), 6, may_begin_at=3)


def test_logs_that_still_have_what_others_deleted_unseen_agree() -> None:
    history = History("work-0")
    check(history, "a", Log(b"1", b"2"), 2)
    check(history, "b", Log(b"1", b"2", b"3", start=4), 6, may_begin_at=4)
    check(history, "a", Log(b"1", b"2", b"3"), 6)
    with pytest.raises(ViolationError, match="c has another batch"):
        check(history, "c", Log(b"1", b"x", b"3"), 6)


def test_a_replica_that_lost_the_records_behind_the_gap_is_still_seen() -> None:
    history = History("work-0")
    check(history, "a", Log(b"1", b"2"), 2)
    check(history, "b", Log(b"1", b"2", b"3", start=4), 6, may_begin_at=4)
    with pytest.raises(ViolationError, match="c has another batch"):
        check(history, "c", Log(b"1", b"2", b"x", start=4), 6, may_begin_at=4)


def test_a_log_may_begin_before_the_first_one_that_was_seen() -> None:
    history = History("work-0")
    check(history, "a", Log(b"1", b"2", b"3", start=2), 6)
    check(history, "b", Log(b"?", b"2", b"3"), 6)


def test_what_is_forgotten_may_differ() -> None:
    history = History("work-0")
    check(history, "a", Log(b"1", b"2"), 4)
    history.forget()
    check(history, "a", Log(b"1", b"x"), 4)


def test_a_disk_is_read_unseen() -> None:
    seen: list[object] = []

    class Watched(Log):
        def batches(self, offset: int) -> Iterator[Any]:
            seen.append(watched_machine.disk.watch)
            yield from super().batches(offset)

    watched_machine = machine("a")
    History("work-0").check(watched_machine, cast(Any, Watched(b"1")), 2)
    assert seen == [None]
    assert watched_machine.disk.watch == "seen"


def replica(end: int, isr: Sequence[int] = (), high_watermark: int = 0) -> Any:
    leader = SimpleNamespace(isr=isr, high_watermark=high_watermark, rules=SimpleNamespace(partition_epoch=5))
    return SimpleNamespace(
        leader=leader, leader_epoch=3, partition="work-0", log=SimpleNamespace(written_end_offset=end)
    )


def decided(*isr: int, leader_epoch: int = 3, partition_epoch: int = 6) -> PartitionImage:
    return PartitionImage(
        partition=0,
        replicas=(1, 2, 3),
        isr=isr,
        leader=1,
        leader_epoch=leader_epoch,
        partition_epoch=partition_epoch,
    )


def test_each_member_of_the_isr_has_all_that_is_committed() -> None:
    leader = replica(9, (1, 2), 7)
    check_isr(leader, None, {1: leader, 2: replica(7), 3: replica(0)})
    check_isr(leader, None, {1: leader})
    with pytest.raises(ViolationError, match="node 2 of its ISR ends at 6"):
        check_isr(leader, None, {1: leader, 2: replica(6)})


def test_a_member_that_the_controller_added_counts_before_the_leader_hears_of_it() -> None:
    leader = replica(9, (1, 2), 7)
    has = {1: leader, 2: replica(7), 3: replica(6)}
    with pytest.raises(ViolationError, match="node 3 of its ISR ends at 6"):
        check_isr(leader, decided(1, 2, 3), has)


def test_an_image_that_is_older_than_what_the_leader_knows_does_not_count() -> None:
    leader = replica(9, (1, 2), 7)
    has = {1: leader, 2: replica(7), 3: replica(6)}
    check_isr(leader, decided(1, 2, 3, partition_epoch=4), has)
    check_isr(leader, decided(1, 2, 3, leader_epoch=4), has)


def test_a_leader_that_has_not_heard_of_its_successor_says_nothing_of_a_replica_that_left_the_isr_since() -> (
    None
):
    """On a full disk the leader's image stands still. The replica may have been moved away, and back, since."""
    leader = replica(9, (1, 2, 3), 7)
    assert is_held_to(leader, None, 3)
    assert is_held_to(leader, decided(1, 2), 3)
    assert is_held_to(leader, decided(1, 2, leader_epoch=4), 2)
    assert not is_held_to(leader, decided(1, 2, leader_epoch=4), 3)

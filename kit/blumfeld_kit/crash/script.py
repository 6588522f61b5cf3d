"""Three scripts that take logs through every phase of their life, with power cuts and clean stops in between.

A script leaves out what the storage doesn't claim to do.
"""

from __future__ import annotations

from collections.abc import Callable

from blumfeld_kit.crash.machine import Machine, Point
from blumfeld_kit.crash.replica import Replica
from blumfeld_kit.fakes.power import Adversary, Luck

Script = Callable[[Machine], None]

PHASES = (
    "start", "append", "roll", "flush", "truncate", "truncate fully", "retention", "delete", "checkpoint", "recovery",
    "close", "reopen",
)  # fmt: skip
"""The phases of :func:`run_script`."""


def run_script(machine: Machine) -> None:
    """Run the whole life of logs that are not compacted. :raises Died: the machine came to its point"""
    machine.start()
    kept, synced, fleeting = (
        Replica("kept", 1),
        Replica("synced", 2, flush_messages=1),
        Replica("fleeting", 3),
    )
    logs = (kept, synced, fleeting)
    for replica in logs:
        machine.open(replica)
    _append(machine, logs)
    _roll(machine, logs)
    _flush(machine, logs)
    _truncate(machine, kept)
    _truncate_fully(machine, synced)
    _retention(machine, kept, synced)
    _delete(machine, fleeting, Replica("fleeting", 4))
    _checkpoint(machine, logs[:2])
    _recovery(machine)
    _close(machine)
    _reopen(machine)


def run_compaction(machine: Machine) -> None:
    """Run cleaner passes: over everything, with a clean head, with expired tombstones, after a truncation, after a
    restart.
    """
    machine.start()
    if not machine.node.storage.compacts:
        return
    replica = Replica("compacted", 1, compacts=True)
    machine.open(replica)
    machine.phase = "compaction"
    _several_segments(machine, replica)
    machine.flush(replica)
    machine.compact(replica)
    machine.append(replica, 2, 1)
    machine.wait(5_000)
    machine.phase = "compaction with a head"
    _several_segments(machine, replica)
    machine.compact(replica)
    machine.flush(replica)
    machine.checkpoint()
    machine.phase = "compaction after a cut"
    machine.wait(SETTLE_MS)
    replica.leader_epoch += 1
    _cut(machine, replica, 8)
    _several_segments(machine, replica)
    machine.compact(replica)
    machine.phase = "compaction after a crash"
    machine.flush(replica)
    machine.die(Point(0, power_cut=True, luck=Adversary.LOSE))
    machine.restart()
    machine.check()
    _several_segments(machine, replica)
    machine.compact(replica)
    machine.append(replica, 1)
    machine.phase = "compaction, then a stop"
    machine.stop()
    _again(machine)


def run_moves(machine: Machine) -> None:
    """Move a log to another directory and back while it is written, and delete another after its move."""
    machine.start()
    if len(machine.node.directories) < 2:
        return
    replica, other = Replica("moved", 1), Replica("gone", 2)
    for each in (replica, other):
        machine.open(each)
        machine.append(each, 1, 2)
    _several_segments(machine, replica)
    machine.flush(replica)
    machine.phase = "move"
    machine.append(replica, 1)
    machine.move(replica)
    machine.append(replica, 1, 1)
    machine.flush(replica)
    machine.append(replica, 1)
    machine.phase = "move back"
    machine.move(replica)
    machine.append(replica, 1)
    machine.checkpoint()
    machine.phase = "move, then delete"
    machine.move(other)
    machine.delete(other)
    machine.wait(SETTLE_MS)
    machine.phase = "move, then a stop"
    machine.move(replica)
    machine.stop()
    _again(machine)


SCRIPTS: dict[str, Script] = {"life": run_script, "compaction": run_compaction, "moves": run_moves}
SETTLE_MS = 70_000


def _several_segments(machine: Machine, replica: Replica) -> None:
    for _ in range(3):
        machine.append(replica, 2, 3)
        machine.append(replica, 1, 2, 1)
    machine.roll(replica)
    machine.append(replica, 1)


def _again(machine: Machine) -> None:
    """Start again after a stop, and check that everything is there."""
    machine.node.runtime.dead = True
    machine.node.runtime.disk.kill()
    machine.restart()
    machine.check()


def _append(machine: Machine, logs: tuple[Replica, ...]) -> None:
    machine.phase = "append"
    for replica in logs:
        machine.append(replica, 1)
        machine.append(replica, 2, 1)
        replica.leader_epoch = 1


def _roll(machine: Machine, logs: tuple[Replica, ...]) -> None:
    """Roll within a turn, with the first batch of a new leader epoch in front, and between turns."""
    machine.phase = "roll"
    for replica in logs:
        machine.append(replica, 1, 1, 2, 1, 1, 1)
        machine.append(replica, 1, 1)
        machine.roll(replica)
        machine.append(replica, 1)


def _flush(machine: Machine, logs: tuple[Replica, ...]) -> None:
    machine.phase = "flush"
    for replica in logs:
        machine.flush(replica)
        machine.append(replica, 1)
        machine.flush(replica)
        machine.append(replica, 1)


def _truncate(machine: Machine, replica: Replica) -> None:
    """Truncate within the active segment, at a segment's first batch and across segments. Then other records take the
    offsets.
    """
    machine.phase = "truncate"
    for back in (1, 6, 9):
        replica.leader_epoch += 1
        _cut(machine, replica, back)
        machine.append(replica, 1, 1)
    machine.append(replica, 1, 1, 1, 1, 1, 1)
    machine.flush(replica)
    _cut(machine, replica, 2)
    machine.append(replica, 1, 1)


def _cut(machine: Machine, replica: Replica, back: int) -> None:
    machine.truncate(replica, replica.promises.current[-back].base_offset)


def _truncate_fully(machine: Machine, replica: Replica) -> None:
    """Truncate fully to an offset ahead of the log end, as a follower does, then append."""
    machine.phase = "truncate fully"
    replica.leader_epoch += 1
    machine.truncate_fully(replica, replica.promises.end_offset + 10)
    for _ in range(2):
        machine.append(replica, 2, 1, 1, 1, 1)
    machine.flush(replica)
    machine.truncate_fully(replica, replica.promises.end_offset)
    for _ in range(3):
        machine.append(replica, 2, 1, 1, 1)


def _retention(machine: Machine, *logs: Replica) -> None:
    machine.phase = "retention"
    for replica in logs:
        batches = replica.promises.current
        machine.advance_log_start(replica, batches[1].base_offset)
        machine.advance_log_start(replica, batches[len(batches) // 2].next_offset)
    machine.wait(SETTLE_MS)


def _delete(machine: Machine, old: Replica, new: Replica) -> None:
    """Delete a log, and use its name at once for another topic."""
    machine.phase = "delete"
    machine.delete(old)
    machine.open(new)
    machine.append(new, 1, 1)
    machine.flush(new)
    machine.append(new, 1)
    machine.wait(SETTLE_MS)


def _checkpoint(machine: Machine, logs: tuple[Replica, ...]) -> None:
    machine.phase = "checkpoint"
    for replica in logs:
        machine.append(replica, 1, 1)
    machine.checkpoint()
    machine.append(logs[0], 1)


def _recovery(machine: Machine) -> None:
    """Cut the power, also while the logs are recovered, then append."""
    machine.phase = "recovery"
    for replica in machine.replicas.values():
        machine.append(replica, 1, 1, 1)
    for kept in (1, 0):
        machine.die(Point(0, power_cut=True, luck=Luck(kept)))
        machine.restart()
        machine.check()
        for replica in machine.replicas.values():
            replica.leader_epoch += 1
            machine.append(replica, 1, 1, 1, 1)
            machine.append(replica, 1)


def _close(machine: Machine) -> None:
    machine.phase = "close"
    machine.stop()


def _reopen(machine: Machine) -> None:
    machine.phase = "reopen"
    _again(machine)
    for replica in machine.replicas.values():
        machine.append(replica, 1, 1)
        machine.flush(replica)
    machine.stop()

"""What is done to the logs: every phase of their life, twice over with a power cut and a clean stop between."""

from __future__ import annotations

from blumfeld.testing.crash.machine import Machine, Point, Replica
from blumfeld.testing.fake_files import Luck

PHASES = (
    "start", "append", "roll", "flush", "truncate", "retention", "delete", "checkpoint", "recovery", "close", "reopen"
)  # fmt: skip


def run_script(machine: Machine) -> None:
    """The whole life. :raises Died: the machine came to its point"""
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
    _retention(machine, kept, synced)
    _delete(machine, fleeting, Replica("fleeting", 4))
    _checkpoint(machine, logs[:2])
    _recovery(machine)
    _close(machine)
    _reopen(machine)


def _append(machine: Machine, logs: tuple[Replica, ...]) -> None:
    machine.phase = "append"
    for replica in logs:
        machine.append(replica, 1)
        machine.append(replica, 2, 1)
        replica.leader_epoch = 1


def _roll(machine: Machine, logs: tuple[Replica, ...]) -> None:
    """Rolls within a turn, with the first batch of a new leader epoch in front; and between turns."""
    machine.phase = "roll"
    for replica in logs:
        machine.append(replica, 1, 1, 2, 1, 1, 1)
        machine.append(replica, 1, 1)
        log = replica.log
        assert log is not None
        machine.do(log.log.roll)
        machine.append(replica, 1)


def _flush(machine: Machine, logs: tuple[Replica, ...]) -> None:
    machine.phase = "flush"
    for replica in logs:
        machine.flush(replica)
        machine.append(replica, 1)
        machine.flush(replica)
        machine.append(replica, 1)


def _truncate(machine: Machine, replica: Replica) -> None:
    """Within the active segment, at a segment's first batch, across segments; then other records take the offsets."""
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
    machine.truncate(replica, replica.ledger.current[-back].base_offset)


def _retention(machine: Machine, *logs: Replica) -> None:
    machine.phase = "retention"
    for replica in logs:
        batches = replica.ledger.current
        machine.advance_log_start(replica, batches[1].base_offset)
        machine.advance_log_start(replica, batches[len(batches) // 2].next_offset)
    machine.wait(70_000)


def _delete(machine: Machine, old: Replica, new: Replica) -> None:
    """The name is used again at once, by another topic."""
    machine.phase = "delete"
    machine.delete(old)
    machine.open(new)
    machine.append(new, 1, 1)
    machine.flush(new)
    machine.append(new, 1)
    machine.wait(70_000)


def _checkpoint(machine: Machine, logs: tuple[Replica, ...]) -> None:
    machine.phase = "checkpoint"
    for replica in logs:
        machine.append(replica, 1, 1)
    machine.checkpoint()
    machine.append(logs[0], 1)


def _recovery(machine: Machine) -> None:
    """The power fails, and may fail again while the logs are recovered; then they are written on."""
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
    machine.node.runtime.dead = True
    machine.node.runtime.disk.kill()
    machine.restart()
    machine.check()
    for replica in machine.replicas.values():
        machine.append(replica, 1, 1)
        machine.flush(replica)
    machine.stop()

"""Holds what nodes serve and refuse against the rights that the metadata log gives.

A node may lag behind, so a verdict is right if it follows from the rights at some offset that the node's image went
through while it had the request. So a right that is taken away ends, on each node, with the step of its image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.cluster.watch import Watch, metadata_of
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.secured.rights import Rights, Rule, State, Wanted, allows


class Moment(NamedTuple):
    """The image of a machine's process when a request was sent to it."""

    machine: Machine
    process: int
    offset: int


class SecuredOracle(Oracle):
    """An oracle that knows the moment of each machine when a record was sent."""

    def __init__(self) -> None:
        super().__init__()
        self.moments: dict[bytes, Mapping[str, Moment]] = {}
        """Value → address → moment."""
        self.now: Callable[[], Mapping[str, Moment]] = dict
        """Returns the moment of each machine."""

    def sent(self, partition: TopicPartition, values: Sequence[bytes]) -> None:
        """As ``Oracle.sent``."""
        super().sent(partition, values)
        self.moments.update(dict.fromkeys(values, self.now()))


class Verdicts:
    """The judge of one run."""

    def __init__(self, watch: Watch, counts: Counter[str]) -> None:
        self.rights = Rights()
        self._watch = watch
        self._counts = counts
        watch.follow_metadata(self.rights.take)

    def read_log(self, machine: Machine) -> None:
        """Take what a machine's log has committed."""
        self._watch.check_metadata(machine)

    def now(self, machine: Machine) -> Moment:
        """Return the present moment of a machine."""
        metadata = metadata_of(machine)
        return Moment(machine, machine.incarnations, -1 if metadata is None else metadata.applied_offset)

    def shown(self, since: Moment) -> list[State]:
        """Return the rights that the machine's image may have had since then; none if the log has a gap."""
        now = self.now(since.machine)
        self.read_log(since.machine)
        end_offset = self.rights.end_offset
        same = since.machine.is_running and now.process == since.process
        last_offset = now.offset if same else end_offset - 1
        if self.rights.has_gap or last_offset >= end_offset:
            self._counts["verdicts without rights"] += 1
            return []
        return self.rights.between(since.offset, last_offset)

    def judge(self, since: Moment, wanted: Wanted, request: str, *, allowed: bool) -> None:
        """Judge the verdict of a request that was sent at a moment, and whose answer is here.

        :raises ViolationError: the rights forbid what was served, or allow what was refused
        """
        states = self.shown(since)
        if not states:
            return
        verdicts = {allows(state.rules.values(), wanted) for state in states}
        self._counts["verdicts"] += 1
        self._counts["requests allowed" if allowed else "requests refused"] += 1
        self._counts["verdicts while rights changed"] += len(verdicts) > 1
        if allowed not in verdicts:
            done, rights = ("served", "forbid") if allowed else ("refused", "allow")
            raise ViolationError(
                f"{since.machine.address} {done} {request} of {wanted}: the rights {rights} it at each offset of its "
                f"image, from {since.offset} on"
            )

    def expect(self, since: Moment, holds: Callable[[State], bool], told: str) -> None:
        """Judge an answer that tells of a state: it was in the log, and in the image of the node that answered.

        :raises ViolationError: it isn't
        """
        states = self.shown(since)
        if states and not any(map(holds, states)):
            raise ViolationError(f"{since.machine.address} tells of {told}, and the log doesn't have it")

    def description(self, since: Moment, described: Collection[Rule]) -> None:
        """Judge an answer to DescribeAcls that shows all. :raises ViolationError: the rights were never these"""
        self.expect(
            since, lambda state: sorted(state.rules.values()) == sorted(described), f"{len(described)} ACLs"
        )

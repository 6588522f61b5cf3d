"""Holds what nodes serve and refuse against the rights that the metadata log gives.

A node may lag behind, so a verdict is right if it follows from the rights at some offset that the node's image went
through while it had the request. So a right that is taken away ends, on each node, with the step of its image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from blumfeld.spi.storage import TopicPartition
from blumfeld_kit.simulation.clients.oracle import Oracle, ViolationError
from blumfeld_kit.simulation.cluster.watch import Watch, metadata_of
from blumfeld_kit.simulation.machine.host import Machine
from blumfeld_kit.simulation.secured.rights import Rights, Rule, State, Wanted, allows, rule_of


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
    """The judge of one run. :class:`LogVerdicts` and ``TreeVerdicts`` know the rights."""

    counts: Counter[str]

    @property
    def newest(self) -> State | None:
        """The rights that each node must have in the end; ``None`` if they aren't known."""
        raise NotImplementedError

    def read(self, machine: Machine) -> None:
        """Take what a machine's process has committed."""

    def now(self, machine: Machine) -> Moment:
        """Return the present moment of a machine."""
        raise NotImplementedError

    def shown(self, since: Moment) -> Sequence[State]:
        """Return the rights that the machine's image may have had since then; none if they aren't known."""
        raise NotImplementedError

    def change_begins(self, machine: Machine) -> Moment:
        """Return the moment from which a change counts that is sent to a machine: no state before it has it."""
        raise NotImplementedError

    def changed(self, since: Moment) -> Sequence[State]:
        """Return the rights that may have a change, now that it is acknowledged."""
        raise NotImplementedError

    def has_newest(self, machine: Machine) -> bool:
        """Whether a machine's image has the newest rights."""
        raise NotImplementedError

    def judge(self, since: Moment, wanted: Wanted, request: str, *, allowed: bool) -> None:
        """Judge the verdict of a request that was sent at a moment, and whose answer is here.

        :raises ViolationError: the rights forbid what was served, or allow what was refused
        """
        states = self.shown(since)
        if not states:
            self.counts["verdicts without rights"] += 1
            return
        verdicts = {allows(state.rules.values(), wanted) for state in states}
        self.counts["verdicts"] += 1
        self.counts["requests allowed" if allowed else "requests refused"] += 1
        self.counts["verdicts while rights changed"] += len(verdicts) > 1
        if allowed not in verdicts:
            done, rights = ("served", "forbid") if allowed else ("refused", "allow")
            raise ViolationError(
                f"{since.machine.address} {done} {request} of {wanted}: the rights {rights} it at each step of its "
                f"image, from {since.offset} on"
            )

    def expect(self, since: Moment, holds: Callable[[State], bool], told: str) -> None:
        """Judge an answer that tells of a state: the image of the node that answered had it.

        :raises ViolationError: it hadn't
        """
        states = self.shown(since)
        if states and not any(map(holds, states)):
            raise ViolationError(f"{since.machine.address} tells of {told}, and its image never had it")

    def acknowledged(self, since: Moment, holds: Callable[[State], bool], change: str) -> None:
        """Judge the acknowledgement of a change. :raises ViolationError: the change isn't there"""
        states = self.changed(since)
        if states and not any(map(holds, states)):
            raise ViolationError(f"{since.machine.address} acknowledged {change}, and it isn't there")

    def description(self, since: Moment, described: Collection[Rule]) -> None:
        """Judge an answer to DescribeAcls that shows all. :raises ViolationError: the rights were never these"""
        self.expect(
            since, lambda state: sorted(state.rules.values()) == sorted(described), f"{len(described)} ACLs"
        )


class LogVerdicts(Verdicts):
    """The rights are those of the metadata log, and a node has those at the offset of its image."""

    def __init__(self, watch: Watch, counts: Counter[str]) -> None:
        self.counts = counts
        self._rights = Rights()
        self._watch = watch
        watch.follow_metadata(self._rights.take)

    @property
    def newest(self) -> State | None:
        """As ``Verdicts.newest``."""
        return None if self._rights.has_gap else self._rights.newest

    def read(self, machine: Machine) -> None:
        """As ``Verdicts.read``."""
        self._watch.check_metadata(machine)

    def now(self, machine: Machine) -> Moment:
        """As ``Verdicts.now``."""
        metadata = metadata_of(machine)
        return Moment(machine, machine.incarnations, -1 if metadata is None else metadata.applied_offset)

    def shown(self, since: Moment) -> Sequence[State]:
        """As ``Verdicts.shown``."""
        now = self.now(since.machine)
        self.read(since.machine)
        end_offset = self._rights.end_offset
        same = since.machine.is_running and now.process == since.process
        last_offset = now.offset if same else end_offset - 1
        if self._rights.has_gap or last_offset >= end_offset:
            return ()
        return self._rights.between(since.offset, last_offset)

    def change_begins(self, machine: Machine) -> Moment:
        """As ``Verdicts.change_begins``."""
        self.read(machine)
        return self.now(machine)._replace(offset=self._rights.end_offset - 1)

    def changed(self, since: Moment) -> Sequence[State]:
        """As ``Verdicts.changed``: the image of the node that answers has the change, too."""
        return self.shown(since)

    def has_newest(self, machine: Machine) -> bool:
        """As ``Verdicts.has_newest``."""
        return self.now(machine).offset >= self._rights.end_offset - 1


def state_of(image: Any) -> State:
    """Return the ACLs, credentials and tokens of a node's image."""
    parts = image.section("acls").parts()
    rules = {number.to_bytes(16): rule_of(acl) for part in parts for number, acl in part}
    by_user = image.section("scram").by_user
    keys = {user: credential.stored_key for (user, _), credential in by_user.items()}
    return State(
        rules, keys, {each: str(token.owner) for each, token in image.section("delegation tokens").items()}
    )

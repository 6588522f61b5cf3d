"""What must be true of a group when nothing has gone wrong for long enough, and when all have left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from blumfeld.wire.messages.delete_groups import DeleteGroupsRequest
from blumfeld.wire.messages.list_groups import ListGroupsRequest
from blumfeld_kit.groups.model import ModelCluster
from campaigns.groups.members import Member, Partition
from campaigns.groups.node import GroupsNode
from campaigns.groups.oracle import ViolationError
from campaigns.groups.wires import Client


class Settling(Protocol):
    """What is looked at of a simulation: :class:`campaigns.groups.simulation.Simulation`."""

    @property
    def clients(self) -> Sequence[Client]:
        """All of them, with and without a member."""
        ...

    @property
    def cluster(self) -> ModelCluster:
        """The topics that there are."""
        ...

    @property
    def node(self) -> GroupsNode:
        """The coordinator."""
        ...

    @property
    def by_regex(self) -> bool:
        """Members subscribe by a regular expression."""
        ...

    @property
    def deals_evenly(self) -> bool:
        """The group's assignor promises loads that differ by one at most."""
        ...


class Settled:
    """Looks at the members of a simulation, and at what the coordinator says of them."""

    def __init__(self, simulation: Settling) -> None:
        self._simulation = simulation

    def _members(self) -> dict[str, Member]:
        return {
            client.name: client.member for client in self._simulation.clients if client.member is not None
        }

    def _wanted(self) -> set[Partition]:
        """Partitions of topics that all members subscribe to."""
        simulation = self._simulation
        names = list(simulation.cluster.topics)
        if not simulation.by_regex:
            names = [name for name in names if name in ("t1", "t2", "t3")]
        return {(name, index) for name in names for index in simulation.cluster.topics[name].partitions}

    def why_not(self) -> str:
        """What is not as it must be yet; "" when all is."""
        members = self._members()
        state = self._state()
        if state != "Stable":
            return f"the group is {state}"
        outside = [name for name, member in members.items() if not member.is_stable]
        if outside:
            return f"{', '.join(outside)} didn't get in"
        owned = [at for member in members.values() for at in member.owned]
        missing = sorted(self._wanted() - set(owned))
        if missing:
            return f"nobody has {missing}"
        if len(owned) != len(set(owned)):
            return "a partition has two owners"
        if set(owned) - self._wanted():
            return f"somebody has {sorted(set(owned) - self._wanted())}"
        return ""

    def _state(self) -> str:
        listed = self._simulation.node.send(ListGroupsRequest())
        if not listed.done:
            return "not to be asked"
        groups = {group.group_id: group.group_state for group in listed.result().groups}
        return str(groups.get("g", f"not there (error {listed.result().error_code})"))

    def check_balance(self) -> None:
        """Nobody starves; and where the assignor deals evenly, nobody has two more than another.

        :raises ViolationError: somebody does
        """
        members = self._members()
        counts = {name: len(member.owned) for name, member in members.items()}
        enough = len(self._wanted()) >= len(members)
        if not self._simulation.deals_evenly:
            return
        if enough and not all(counts.values()):
            raise ViolationError(f"somebody starves: {counts} of {len(self._wanted())}")
        if max(counts.values()) - min(counts.values()) > 1:
            raise ViolationError(f"partitions are dealt unevenly: {counts}")

    def check_deleted(self) -> None:
        """An empty group can be deleted, and nothing is left of it.

        :raises ViolationError: it can't, or something is
        """
        simulation = self._simulation
        state = self._state()
        if state != "Empty":
            raise ViolationError(f"everyone has left, and the group is {state}")
        (result,) = simulation.node.ask(DeleteGroupsRequest(groups_names=["g"])).results
        if result.error_code:
            raise ViolationError(f"an empty group can't be deleted: {result.error_code}")
        left = simulation.node.compacted()
        if left:
            raise ViolationError(f"of a deleted group {len(left)} records are left: {left[0]!r}")

"""Columns of the matrix for live groups that migrate: members restart one by one as KIP-848 members, and back."""

from __future__ import annotations

import time

from campaigns.clients.catalogue import client_class
from campaigns.clients.checks.client_checks import Check
from campaigns.clients.checks.group_checks import Cast, cast
from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import SESSION_TIMEOUT_MS, Client
from campaigns.clients.live_members import Member, MemberSpec, Protocol
from campaigns.clients.load.load import Load
from campaigns.clients.load.promises import GroupPromises, longest_unowned_ms
from campaigns.clients.verdicts import NotOffered, require
from campaigns.coordinators import stable_offsets

MEMBERS = 3
PARTITIONS = 6
RECORDS_PER_S = 120.0
STEADY_S = 2.0
"""Time that the settled group consumes before the next member is restarted."""
ALONE = ("confluent-kafka", "cooperative-sticky")
"""Its assignments hold data of its own, which an upgrade would lose: Kafka refuses such a group, and so do we."""


def migration(assignor: str) -> Check:
    """The group's type follows the members, nobody skips a record, no partition goes without an owner for a session,
    and no commit goes back. One member is librdkafka's, unless the assignor is a cooperative one.
    """

    def check(client: Client, scene: Scene) -> None:
        client.offers(MemberSpec("", "", "classic", assignor))
        client.offers(MemberSpec("", "", "consumer"))
        if (client.name, assignor) == ALONE:
            raise NotOffered("no broker upgrades a group of librdkafka's cooperative members")
        with cast(client, scene, "classic") as members:
            Roll(members, assignor).run()

    check.__doc__ = migration.__doc__
    return check


class Roll:
    """One group that rolls over and back while a producer writes."""

    def __init__(self, members: Cast, assignor: str) -> None:
        self._members = members
        self._scene = members.scene
        self._assignor = assignor
        self._load = Load(self._scene.bootstrap, PARTITIONS, RECORDS_PER_S, self._scene.topic())
        self._places = {(self._scene.topic(), at) for at in range(PARTITIONS)}
        self._promises = GroupPromises()
        self._crew: list[Member] = []

    def run(self) -> None:
        """Roll it.

        :raises CheckFailed: a promise was broken, or a member does not come back
        """
        self._scene.new_topic(PARTITIONS)
        self._load.start()
        try:
            self._crew = [self._member(seat, "classic") for seat in range(MEMBERS)]
            self._settle("classic")
            protocols: tuple[Protocol, ...] = ("consumer", "classic")
            for protocol in protocols:
                for seat in range(MEMBERS):
                    self._crew[seat].stop()
                    self._crew[seat] = self._member(seat, protocol)
                    # The first member of KIP-848 turns the group into one, the last one that leaves turns it back.
                    self._settle(protocol if seat == MEMBERS - 1 else "consumer")
        finally:
            self._load.finish()
        end_ms = int(time.time() * 1000)
        ends = self._load.ends()
        self._scene.wait("all to be committed", lambda: self._committed() == ends)
        self._account(ends, end_ms)

    def _member(self, seat: int, protocol: Protocol) -> Member:
        """Start the member of a seat. The last seat is librdkafka's where its assignor is the same as the others'."""
        kind = type(self._members.client)
        if seat == MEMBERS - 1 and self._assignor == "range":
            kind = client_class("confluent-kafka")
        client = kind(self._scene.bootstrap, protocol)
        return self._members.join(
            self._scene.topic(), self._assignor if protocol == "classic" else "", client=client
        )

    def _settle(self, wanted_type: str) -> None:
        """Wait until the crew shares all partitions, and check the group's type and its commits; then some steady
        time.
        """
        before = self._committed() if len(self._members.all) > MEMBERS else {}
        self._members.settle(*self._crew, places=self._places)
        self._promises.check_committed(self._scene.group(), before, self._committed())
        group_type = self._scene.group_type(self._scene.group())
        require(group_type == wanted_type, f"the group is {group_type}, not {wanted_type}")
        time.sleep(STEADY_S)

    def _committed(self) -> dict[tuple[str, int], int]:
        return stable_offsets(self._scene.bootstrap, self._scene.group())

    def _account(self, ends: dict[tuple[str, int], int], end_ms: int) -> None:
        stories = [member.story for member in self._members.all]
        runs: dict[tuple[str, int], list[tuple[int, int, int]]] = {}
        for run in (run for story in stories for run in story.consumptions):
            runs.setdefault(run.at, []).append((run.first, run.last, run.count))
        self._promises.check_consumed(self._scene.group(), runs, ends)
        highest: dict[tuple[str, int], int] = {}
        for commit in sorted((c for story in stories for c in story.commitments), key=lambda c: c.time_ms):
            before = highest.get(commit.at, 0)
            require(commit.offset >= before, f"{commit.at}: committed {commit.offset} after {before}")
            highest[commit.at] = commit.offset
        for at in sorted(self._places):
            changes = [(o.time_ms, o.owned) for story in stories for o in story.ownerships if o.at == at]
            unowned_ms = longest_unowned_ms(changes, end_ms)
            require(unowned_ms <= SESSION_TIMEOUT_MS, f"{at} was without an owner for {unowned_ms} ms")
        wrong = [*self._load.wrong, *self._promises.wrong]
        require(not wrong, "; ".join(wrong[:3]))


MIGRATION_COLUMNS: dict[str, Check] = {
    "migration": migration("range"),
    "migration-cooperative": migration("cooperative-sticky"),
}
"""Every check by the title of its column."""

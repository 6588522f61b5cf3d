"""The columns of groups, one set for each protocol: what members see when others come and go.

Members are processes that tell what becomes of them (:mod:`.members`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from campaigns.clients.checks.client_checks import Check, resume
from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import Client
from campaigns.clients.live_members import Member, MemberSpec, Protocol, TopicPartition
from campaigns.clients.records import Sample, numbered_samples
from campaigns.clients.verdicts import CheckFailed, require

PARTITIONS = 4
PART_RECORDS = 60
SETTLE_S = 45.0
QUIET_S = 2.0
"""Time without an event after which it counts as not happening."""


class Cast:
    """The members of one check's group, all of one client and protocol."""

    def __init__(self, client: Client, scene: Scene, protocol: Protocol) -> None:
        self.client, self.scene, self.protocol = client, scene, protocol
        self.all: list[Member] = []

    def join(
        self,
        topic: str,
        assignor: str = "",
        instance_id: str = "",
        regex: bool = False,
        client: Client | None = None,
    ) -> Member:
        """A further member, of another client or protocol if ``client`` is given."""
        its = client or self.client
        spec = MemberSpec(topic, self.scene.group(), its.protocol, assignor, instance_id, regex)
        member = Member(*its.member_command(spec), name=f"member {len(self.all) + 1}")
        self.all.append(member)
        return member

    def settle(self, *members: Member, places: set[TopicPartition]) -> None:
        """Until these members, and no others, share those partitions, each some, as they and the broker say.

        :raises CheckFailed: they never do
        """

        def settled() -> bool:
            for member in members:
                require(member.is_alive, f"{member.name} died: {member.errors()}")
            shares = [member.owned for member in members]
            owned = sorted(at for share in shares for at in share)
            if owned != sorted(places) or not all(shares):
                return False
            return self.scene.members(self.scene.group()) == len(members)

        try:
            self.scene.wait("the group to settle", settled, SETTLE_S)
        except CheckFailed as failure:
            shares = {m.name: sorted(m.owned) for m in members}
            raise CheckFailed(f"{failure}; owned: {shares}; stderr: {members[-1].errors()}") from None

    def consumed(self, places: set[TopicPartition], count: int, since: dict[TopicPartition, int]) -> None:
        """Until ``count`` records came of these partitions, each once, from those offsets on.

        :raises CheckFailed: fewer, more, or others came
        """

        def offsets() -> list[tuple[TopicPartition, int]]:
            return [
                (run.at, offset)
                for member in self.all
                for run in list(member.story.consumptions)
                for offset in range(run.first, run.last + 1)
                if run.at in places and offset >= since.get(run.at, 0)
            ]

        try:
            self.scene.wait("records", lambda: len(set(offsets())) >= count, SETTLE_S)
        except CheckFailed as failure:
            raise CheckFailed(f"{failure}: {len(set(offsets()))} of {count}") from None
        came = offsets()
        require(len(came) == len(set(came)) == count, f"{len(came)} records came, of {count}")

    def refused(self) -> list[str]:
        """Commits that were not accepted."""
        return [line for member in self.all for line in member.story.refused_commits]


@contextmanager
def cast(client: Client, scene: Scene, protocol: Protocol) -> Iterator[Cast]:
    """All that were started are dead at the end."""
    members = Cast(client, scene, protocol)
    try:
        yield members
    finally:
        for member in members.all:
            member.kill()


def takeover(client: Client, scene: Scene, protocol: Protocol) -> None:
    """Two share; one leaves and the other takes all over; it leaves too, and a third goes on where it was."""
    topic = scene.new_topic(PARTITIONS)
    places = {(topic, n) for n in range(PARTITIONS)}
    with cast(client, scene, protocol) as members:
        first = members.join(topic)
        second = members.join(topic)
        members.settle(first, second, places=places)
        listed = scene.group_type(scene.group())
        require(listed == protocol, f"the broker lists the group as {listed}")
        _send(client, topic, 0)
        members.consumed(places, PART_RECORDS, {})
        first.stop()
        members.settle(second, places=places)
        _send(client, topic, 1)
        members.consumed(places, 2 * PART_RECORDS, {})
        second.stop()
        _send(client, topic, 2)
        third = members.join(topic)
        members.settle(third, places=places)
        members.consumed(places, 3 * PART_RECORDS, {})
        require(not members.refused(), f"commits refused: {members.refused()[:2]}")


def incremental(client: Client, scene: Scene, protocol: Protocol) -> None:
    """A member that stays is told only of partitions that it gives up or gets: it keeps the rest without a callback."""
    topic = scene.new_topic(PARTITIONS)
    places = {(topic, n) for n in range(PARTITIONS)}
    assignor = "cooperative-sticky" if protocol == "classic" else ""
    with cast(client, scene, protocol) as members:
        first = members.join(topic, assignor)
        members.settle(first, places=places)
        second = members.join(topic, assignor)
        members.settle(first, second, places=places)
        given = [o.at for o in first.story.ownerships if not o.owned]
        require(len(second.owned) == 2, f"shares {sorted(first.owned)}, {sorted(second.owned)}")
        require(
            set(given) == second.owned and len(given) == 2, f"revoked {given}, not {sorted(second.owned)}"
        )
        second.stop()
        members.settle(first, places=places)
        got = [o.at for o in first.story.ownerships if o.owned]
        require(len(got) == PARTITIONS + 2, f"assigned one by one: {got}")


def static(client: Client, scene: Scene, protocol: Protocol) -> None:
    """A static member that comes back in time has what it had, and the other is not disturbed.

    It is not the one that came first: a classic group's leader may join once more when it is back, to assign anew.
    """
    topic = scene.new_topic(PARTITIONS)
    places = {(topic, n) for n in range(PARTITIONS)}
    with cast(client, scene, protocol) as members:
        first = members.join(topic, instance_id="one")
        members.settle(first, places=places)
        second = members.join(topic, instance_id="two")
        members.settle(first, second, places=places)
        had, ownerships_before = second.owned, len(first.story.ownerships)
        second.stop()
        back = members.join(topic, instance_id="two")
        members.settle(first, back, places=places)
        time.sleep(QUIET_S)
        require(back.owned == had, f"came back to {sorted(back.owned)}, had {sorted(had)}")
        require(
            len(first.story.ownerships) == ownerships_before,
            f"the other saw {first.story.ownerships[ownerships_before:]}",
        )


def regex(client: Client, scene: Scene, protocol: Protocol) -> None:
    """A regular expression takes in the topics that match, later ones too, and no others."""
    matching = [scene.new_topic(1, what=f"r-{n}") for n in range(2)]
    other = scene.new_topic(1, what="other")
    with cast(client, scene, protocol) as members:
        member = members.join(scene.topic("r-.*"), regex=True)
        members.settle(member, places={(topic, 0) for topic in matching})
        matching.append(scene.new_topic(1, what="r-2"))
        members.settle(member, places={(topic, 0) for topic in matching})
        for topic in (*matching, other):
            client.produce(topic, numbered_samples(5, 1))
        members.consumed({(topic, 0) for topic in matching}, 15, {})
        require(all(run.at[0] != other for run in member.story.consumptions), f"{other} came too")
        if protocol == "consumer":
            (described,) = scene.modern(scene.group()).members
            require(bool(described.subscribed_topic_regex), "the client resolved the expression itself")


def remote_assignors(client: Client, scene: Scene, protocol: Protocol) -> None:
    """The broker assigns by the name that the members ask for: ``range`` gives runs, ``uniform`` even shares."""
    for name in ("uniform", "range"):
        its = Scene(scene.bootstrap, f"{scene.tag}-{name}", scene.consensus)
        topic = its.new_topic(5)
        with cast(client, its, protocol) as members:
            pair = (members.join(topic, name), members.join(topic, name))
            members.settle(*pair, places={(topic, n) for n in range(5)})
            used = its.modern(its.group()).assignor_name
            require(used == name, f"the broker used {used}, not {name}")
            shares = sorted((sorted(n for _, n in m.owned) for m in pair), key=len)
            require([len(s) for s in shares] == [2, 3], f"{name}: {shares}")
            if name == "range":
                require(shares == [[3, 4], [0, 1, 2]], f"range: {shares}")


def by_protocol(check: Callable[[Client, Scene, Protocol], None], protocol: Protocol) -> Check:
    """A check of one protocol as a column."""

    def column(client: Client, scene: Scene) -> None:
        check(type(client)(client.bootstrap, protocol), scene, protocol)

    column.__doc__ = check.__doc__
    return column


def _resume(client: Client, scene: Scene, protocol: Protocol) -> None:
    """A group does not get again the records that it has committed, and gets all that came since."""
    resume(client, scene)


GROUP_COLUMNS: dict[str, Check] = {
    "takeover": by_protocol(takeover, "classic"),
    "cooperative": by_protocol(incremental, "classic"),
    "static": by_protocol(static, "classic"),
    "regex": by_protocol(regex, "classic"),
    "848-resume": by_protocol(_resume, "consumer"),
    "848-takeover": by_protocol(takeover, "consumer"),
    "848-callbacks": by_protocol(incremental, "consumer"),
    "848-static": by_protocol(static, "consumer"),
    "848-regex": by_protocol(regex, "consumer"),
    "848-assignors": by_protocol(remote_assignors, "consumer"),
}
"""Titles that begin with ``848`` are of groups in the protocol of KIP-848, the others of classic ones."""


def _send(client: Client, topic: str, part: int) -> None:
    samples: list[Sample] = numbered_samples(PART_RECORDS, PARTITIONS, first=part * PART_RECORDS)
    client.produce(topic, samples)

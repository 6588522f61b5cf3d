"""Groups of real clients that consume the load while brokers are hurt: a classic one and one of KIP-848."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence

from campaigns.clients.java import JavaTools
from campaigns.clients.live_members import Member, MemberSpec, Protocol, member_module
from campaigns.clients.load.promises import GroupPromises, Place
from campaigns.clients.verdicts import CheckFailed

BOTH: Sequence[Protocol] = ("classic", "consumer")
MODULES: Mapping[Protocol, tuple[str, ...]] = {
    "classic": ("confluent_member", "kafka_python_member"),
    "consumer": ("confluent_member",),
}
"""The kinds of members, in turn."""
JAVA = "java"
"""A kind of member: Kafka's VerifiableConsumer."""
POLL_S = 0.05
FINISH_S = 120.0
"""Longest wait at the end until both groups have committed everything."""
LEAVE_S = 60.0
GAVE_UP = ("KafkaConnectionError", "Unable to bootstrap")
"""Words of kafka-python when it ends because there was no broker."""


class Group:
    """A group of real clients. What members tell is kept also when they are gone."""

    def __init__(
        self, name: Protocol, modules: tuple[str, ...], bootstrap: str, topic: str, promises: GroupPromises
    ) -> None:
        """:param name: the group's name and its protocol
        :param modules: the kinds of members, in turn"""
        self.name = name
        self.living: list[Member] = []
        self._all: list[Member] = []
        self._modules = modules
        self.bootstrap = bootstrap
        """Where new members dial."""
        self._topic = topic
        self._promises = promises
        self._heard: dict[Member, int] = {}
        """Number of each member's commits that the promises have."""
        self._leaving: list[threading.Thread] = []

    def add(self) -> None:
        """Start a member."""
        module = self._modules[len(self._all) % len(self._modules)]
        spec = MemberSpec(self._topic, self.name, self.name)
        if module == JAVA:
            command, said = JavaTools(self.bootstrap, self.name).member_command(spec)
        else:
            command = [sys.executable, "-m", member_module(module)]
            said = spec.to_json(self.bootstrap)
        member = Member(command, said, f"{self.name}-{len(self._all)}")
        self.living.append(member)
        self._all.append(member)

    def leave(self) -> None:
        """The oldest member leaves in good order, in its own time."""
        leaving = threading.Thread(target=self._let_go, args=(self.living.pop(0),), daemon=True)
        leaving.start()
        self._leaving.append(leaving)

    def _let_go(self, member: Member) -> None:
        try:
            member.stop()
        except CheckFailed as error:
            self._promises.wrong.append(str(error))

    def owned(self) -> set[Place]:
        """Return the partitions of living members."""
        return {place for member in self.living for place in member.owned}

    def promised(self) -> dict[Place, int]:
        """Return the highest offsets that the group was promised, with the commits that members were told of by now."""
        for member in self._all:
            commitments = member.story.commitments
            end = len(commitments)
            for commitment in commitments[self._heard.get(member, 0) : end]:
                self._promises.commit(self.name, commitment.at, commitment.offset)
            self._heard[member] = end
        return self._promises.promised(self.name)

    def runs(self) -> dict[Place, list[tuple[int, int, int]]]:
        """Return (first, last, count) of all runs that were consumed of each partition."""
        runs_by_place: dict[Place, list[tuple[int, int, int]]] = {}
        for member in self._all:
            for run in list(member.story.consumptions):
                runs_by_place.setdefault(run.at, []).append((run.first, run.last, run.count))
        return runs_by_place

    def replace_dead(self) -> None:
        """Start new members for those that ended though nobody told them to. kafka-python does so when nobody answers
        for a while; any other end is wrong.
        """
        for member in [member for member in self.living if not member.is_alive]:
            self.living.remove(member)
            self.add()
            if not any(reason in member.errors() for reason in GAVE_UP):
                self._promises.wrong.append(f"{member.name} ended: {member.errors()}")

    def end(self) -> None:
        """End all members; harmless twice."""
        for leaving in self._leaving:
            leaving.join(LEAVE_S)
        for member in self.living:
            member.kill()


class Groups:
    """The groups, with two members each at first, and ``more``."""

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        partitions: int,
        protocols: Sequence[Protocol] = BOTH,
        more: tuple[str, ...] = (),
    ) -> None:
        """:param protocols: one group of each
        :param more: kinds of members that each group has besides"""
        self.promises = GroupPromises()
        self._everything = {(topic, at) for at in range(partitions)}
        self.all = tuple(
            Group(protocol, (*MODULES[protocol], *more), bootstrap, topic, self.promises)
            for protocol in protocols
        )
        self._members = 2 + len(more)

    def start(self) -> None:
        """Start the members."""
        for group in self.all:
            for _ in range(self._members):
                group.add()

    def renew(self, bootstrap: str) -> None:
        """Put a new member, which dials there, in the place of each."""
        for group in self.all:
            group.bootstrap = bootstrap
            for _ in range(len(group.living)):
                group.add()
                group.leave()

    def await_owned(self, timeout_s: float) -> dict[str, float]:
        """Wait until each partition has an owner in both groups.

        :return: for each group the seconds that it took; ``timeout_s`` for one that didn't get there
        """
        began = time.monotonic()
        took: dict[str, float] = {}
        while len(took) < len(self.all) and time.monotonic() - began < timeout_s:
            for group in self.all:
                group.replace_dead()
                if group.name not in took and group.owned() == self._everything:
                    took[group.name] = time.monotonic() - began
            time.sleep(POLL_S)
        return {group.name: took.get(group.name, timeout_s) for group in self.all}

    def describe(self) -> str:
        """Return what each member owns, for a report of a group that did not come to rest."""
        return "; ".join(
            f"{member.name} ({'up' if member.is_alive else 'ended'}) owns {sorted(at for _, at in member.owned)}"
            for group in self.all
            for member in group.living
        )

    def consumed(self) -> int:
        """Return how many records all groups have consumed by now."""
        return sum(count for group in self.all for runs in group.runs().values() for _, _, count in runs)

    def finish(self, ends: dict[Place, int]) -> None:
        """Let both groups get to the ends; what they did not consume breaks a promise. All members end."""
        deadline = time.monotonic() + FINISH_S
        while any(group.promised() != ends for group in self.all):
            if time.monotonic() > deadline:
                self.promises.wrong.append(f"a group doesn't get to the end: {self.describe()}")
                break
            for group in self.all:
                group.replace_dead()
            time.sleep(POLL_S)
        for group in self.all:
            self.promises.check_consumed(group.name, group.runs(), ends)
        self.end()

    def end(self) -> None:
        """End all members; harmless twice."""
        for group in self.all:
            group.end()

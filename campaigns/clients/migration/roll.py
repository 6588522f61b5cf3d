"""The rolling restart itself, and what it must come to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field

from campaigns.clients.catalogue import client_class
from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import SESSION_TIMEOUT_MS
from campaigns.clients.live_members import Consumption, Member, MemberSpec, Protocol, TopicPartition
from campaigns.clients.migration import account
from campaigns.clients.migration.watch import Onlooker, SteadyProducer
from campaigns.clients.verdicts import CheckFailed

SETTLE_S = 90.0
STEADY_S = 2.0
"""How long the settled group consumes before the next member is restarted."""


@dataclass(frozen=True)
class Plan:
    """``clients`` are the members' clients in turn; ``assignor`` is the classic members'."""

    clients: Sequence[str]
    assignor: str
    members: int = 3
    partitions: int = 6
    records_per_s: float = 20.0


@dataclass
class Result:
    """What was measured. Times are of the worst partition."""

    plan: Plan
    unowned_ms: int = 0
    pause_ms: int = 0
    records: int = 0
    duplicates: int = 0
    refused_commits: int = 0
    seconds: float = 0.0
    types: list[str] = field(default_factory=list)
    """The group's types in their order, as ListGroups has them."""
    problems: list[str] = field(default_factory=list)
    """Empty: no partition was without an owner for a session, no record skipped, no commit went back."""


class Roll:
    """One group on one broker."""

    def __init__(self, bootstrap: str, plan: Plan, tag: str, said: Callable[[str], None]) -> None:
        self.bootstrap, self.plan = bootstrap, plan
        self.said = said
        self.scene = Scene(bootstrap, tag)
        self.topic = self.scene.new_topic(plan.partitions)
        self.places = {(self.topic, n) for n in range(plan.partitions)}
        self.group = self.scene.group()
        self.everyone: list[Member] = []
        self.crew: list[Member] = []
        self.producer = SteadyProducer(bootstrap, self.topic, plan.partitions, plan.records_per_s)
        self.onlooker = Onlooker(bootstrap, self.group, self.topic, plan.partitions)

    def run(self) -> Result:
        """Start the members, restart them twice, and account for all that was produced."""
        result, began = Result(self.plan), time.monotonic()
        self.producer.start()
        self.onlooker.start()
        try:
            self.crew = [self.member(n, "classic") for n in range(self.plan.members)]
            self.settle("classic")
            for protocol in ("consumer", "classic"):
                self.restart_all(protocol)
            settled_ms = int(time.time() * 1000)
            self.drain()
            for member in self.crew:
                member.stop()
        except CheckFailed as failure:
            result.problems.append(str(failure))
            settled_ms = int(time.time() * 1000)
        finally:
            self.producer.finish()
            self.onlooker.finish()
            for member in self.everyone:
                member.kill()
        result.seconds = time.monotonic() - began
        with closing(self.scene):
            self.account(result, settled_ms)
        return result

    def member(self, index: int, protocol: Protocol) -> Member:
        """The member of this seat, with the protocol."""
        name = self.plan.clients[index % len(self.plan.clients)]
        assignor = self.plan.assignor if protocol == "classic" else ""
        spec = MemberSpec(self.topic, self.group, protocol, assignor)
        command = client_class(name)(self.bootstrap, protocol).member_command(spec)
        member = Member(*command, name=f"{name} {index + 1}, {protocol}")
        self.everyone.append(member)
        return member

    def restart_all(self, protocol: Protocol) -> None:
        """One by one: each leaves, comes back with the other protocol, and the group settles."""
        for index in range(self.plan.members):
            self.crew[index].stop()
            self.crew[index] = self.member(index, protocol)
            self.settle(f"member {index + 1} to {protocol}")

    def settle(self, what: str) -> None:
        """Until the crew shares all partitions and the broker calls the group stable; then some steady time.

        :raises CheckFailed: it never does, or a member died
        """
        began = time.monotonic()

        def settled() -> bool:
            for member in self.crew:
                if not member.alive:
                    raise CheckFailed(f"{what}: {member.name} died: {member.errors()}")
            owned = sorted(at for member in self.crew for at in member.owned)
            return owned == sorted(self.places) and self.scene.members(self.group) == len(self.crew)

        try:
            self.scene.wait(f"{what} to settle", settled, SETTLE_S)
        except CheckFailed as failure:
            shares = "; ".join(f"{m.name}: {sorted(n for _, n in m.owned)} {m.errors()}" for m in self.crew)
            raise CheckFailed(f"{failure}: {shares}") from None
        self.said(f"{what}: settled after {time.monotonic() - began:.1f} s")
        time.sleep(STEADY_S)

    def drain(self) -> None:
        """Stop producing, and wait until all is committed.

        :raises CheckFailed: it never is
        """
        ends = self.producer.finish()
        self.scene.wait("all to be committed", lambda: self.onlooker.committed() == ends)

    def account(self, result: Result, settled_ms: int) -> None:
        """Fill in what was measured and what is wrong with it."""
        stories = [member.story for member in self.everyone]
        runs: list[Consumption] = [run for story in stories for run in story.consumptions]
        owned = [o for story in stories for o in story.ownerships]
        told = [c for story in stories for c in story.commitments]
        ends = dict(self.producer.ends)
        unowned = account.longest_unowned_ms(owned, self.places, settled_ms)
        result.unowned_ms = max(unowned.values())
        result.pause_ms = max(account.longest_pause_ms(runs, self.places, settled_ms).values())
        result.records = sum(ends.values())
        result.duplicates = account.duplicates(runs)
        result.refused_commits = sum(len(story.refused_commits) for story in stories)
        result.types = [kind for _, kind in self.onlooker.types if kind]
        result.problems += [f"producer: {line}" for line in self.producer.failed[:3]]
        result.problems += [f"onlooker: {self.onlooker.lost}"] if self.onlooker.lost else []
        result.problems += [
            f"{_named(at)} without an owner for {ms} ms, a session is {SESSION_TIMEOUT_MS} ms"
            for at, ms in sorted(unowned.items())
            if ms > SESSION_TIMEOUT_MS
        ]
        for at, offsets in sorted(account.skipped(runs, ends).items()):
            result.problems.append(f"{_named(at)}: skipped {len(offsets)} records, first {offsets[0]}")
        result.problems += [f"a poll with a hole: {run}" for run in account.with_holes(runs)[:3]]
        back = account.went_back([*self.onlooker.commitments]) + account.went_back(told)
        for commit, before in back[:3]:
            result.problems.append(f"{_named(commit.at)}: committed {commit.offset} after {before}")
        if result.types != ["classic", "consumer", "classic"] and not result.problems:
            result.problems.append(f"the group's types were {result.types}")


def _named(at: TopicPartition) -> str:
    return f"{at[0]}-{at[1]}"

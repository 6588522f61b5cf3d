"""Members of a group on virtual time, with everything going wrong: they come, go, die and dawdle, messages are late or
lost, topics come, grow and go, the coordinator is rebuilt from its log, appends fail.

A run has rounds. Each begins with chaos, and ends in a calm in which everyone must come together.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from blumfeld.spi.groups import GroupProtocol
from blumfeld.wire.errors import ErrorCode
from blumfeld_kit.fakes.loop import SimulationError
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.groups.model import ModelCluster
from blumfeld_kit.simulation.trace import Trace
from campaigns.groups.members import (
    COOPERATIVE,
    EAGER,
    ClassicMember,
    ConsumerMember,
    MemberSettings,
    Topic,
    View,
)
from campaigns.groups.node import GroupsNode
from campaigns.groups.oracle import Oracle, ViolationError
from campaigns.groups.settled import Settled
from campaigns.groups.wires import Client, Wires

GROUP = "g"
MODES = ("classic", "consumer", "mixed")
SLOTS = 7
SESSION_MS = 10_000
REBALANCE_MS = 15_000
CHAOS_MS = 45_000
CALM_MS_MAX = 150_000
"""From the end of the faults until all has come together: a few sessions and rebalances, one after the other."""
REFRESH_MS_MAX = 3_000
"""After a change of the cluster each client sees it within this time."""
LARGE = 40
"""Times as many partitions as usual, in some seeds: a coordinator takes its time to deal them."""
CONFIG: dict[str, str | int | float | bool] = {
    "group.consumer.min.session.timeout.ms": 5_000,
    "group.consumer.session.timeout.ms": SESSION_MS,
    "group.consumer.min.heartbeat.interval.ms": 1_000,
    "group.consumer.heartbeat.interval.ms": 2_000,
    "group.min.session.timeout.ms": 5_000,
}


class Simulation(Wires):
    """One seed. :meth:`run` raises :class:`ViolationError` if a promise is broken."""

    def __init__(self, seed: int, minutes: float, mode: str, protocols: Sequence[GroupProtocol]) -> None:
        self.seed = seed
        self.mode = mode
        self.minutes = minutes
        self.random = random.Random(seed * 7919 + MODES.index(mode))
        self.runtime = FakeRuntime(seed)
        self.cluster = ModelCluster(("a", "b", "c") if self.random.random() < 0.5 else ())
        self.trace = Trace(lambda: self.runtime.monotonic_ms() / 1000)
        self.scale = self.random.choice([1] * 7 + [LARGE])
        self.topics_made = 0
        for _ in range(2):
            self.create_topic()
        assignors = self.random.choice(["uniform,range", "range,uniform"])
        config = {
            **CONFIG,
            "group.initial.rebalance.delay.ms": self.random.choice([0, 1_000]),
            "group.consumer.assignment.interval.ms": self.random.choice([0, 1_000]),
            "group.consumer.assignors": assignors,
        }
        self.deals_evenly = mode == "classic" or assignors.startswith("uniform")
        self.by_regex = self.random.random() < 0.4
        self.oracle: Oracle | None = None
        self.node = GroupsNode(
            protocols, config, runtime=self.runtime, cluster=self.cluster, placed=self._placed
        )
        self.oracle = Oracle(self.node, GROUP)
        self.classic_protocol = self.random.choice([EAGER, COOPERATIVE])
        self.clients = [self._client(n) for n in range(SLOTS)]
        self.chaos = False
        self.requests = 0
        self.events = 0
        self.longest_calm_ms = 0.0
        self._violation: BaseException | None = None

    def _client(self, n: int) -> Client:
        static = f"i{n}" if self.random.random() < 0.3 else None
        return Client(f"m{n}", static, self._protocol())

    def _protocol(self) -> str:
        if self.mode == "mixed":
            return self.random.choice(["consumer", self.classic_protocol])
        return "consumer" if self.mode == "consumer" else self.classic_protocol

    def _placed(self, items: Sequence[object]) -> None:
        if self.oracle is not None:
            self.oracle.placed(items)  # type: ignore[arg-type]

    # The run

    def run(self) -> None:
        """All rounds, and the end of the group.

        :raises ViolationError: a promise is broken
        """
        end_ms = self.minutes * 60_000
        for client in self.clients[:3]:
            self.start(client)
        while self.runtime.monotonic_ms() < end_ms:
            self._rage()
            self._calm_down()
        self._end()

    def _rage(self) -> None:
        self.chaos = True
        self.node.log.commit_delay_ms = lambda: self.random.choice([0, 0, 5, 400])
        until_ms = self.runtime.monotonic_ms() + CHAOS_MS
        acts = [
            (self.come, 30),
            (self.leave, 12),
            (self.die, 10),
            (self.dawdle, 8),
            (self.fall_behind, 8),
            (self.grow_topic, 6),
            (self.create_topic, 5),
            (self.delete_topic, 3),
            (self.reload, 6),
            (self.fail_append, 4),
        ]
        while self.runtime.monotonic_ms() < until_ms:
            self.advance(self.random.expovariate(1 / 1_500))
            (act,) = self.random.choices([act for act, _ in acts], [weight for _, weight in acts])
            self.events += 1
            act()
        if self.random.random() < 0.4:  # who dies just before a failover must be found out after it
            self.die()
            self.advance(self.random.choice([0, 100]))
            self.reload()

    def _calm_down(self) -> None:
        self.chaos = False
        self.node.log.commit_delay_ms = lambda: 0
        self.node.log.refuse = None
        for client in self.clients:
            client.lag_ms = 0
            if client.member is not None:
                client.member.settings = replace(client.member.settings, revoke_ms=0)
        settled = Settled(self)
        self._settle(settled)
        if self.random.random() < 0.5:  # nothing else happens that could bring it to anyone's notice
            self.grow_topic()
            self._settle(settled)
        assert self.oracle is not None
        try:
            settled.check_balance()
            self.oracle.live_is_replayed()
            self.oracle.reload_is_the_same()
        except ViolationError as violation:
            self._fail(violation)

    def _settle(self, settled: Settled) -> None:
        began_ms = self.runtime.monotonic_ms()
        still = 0
        while still < 4:
            self.advance(1_000)
            if not any(client.member for client in self.clients):
                self.come()
            why = settled.why_not()
            still = 0 if why else still + 1
            if self.runtime.monotonic_ms() - began_ms > CALM_MS_MAX:
                self._fail(ViolationError(f"not settled {CALM_MS_MAX} ms after the last fault: {why}"))
        self.longest_calm_ms = max(self.longest_calm_ms, self.runtime.monotonic_ms() - began_ms)

    def _end(self) -> None:
        for client in self.clients:
            if client.member is not None and not client.leaves:
                self.leave_of(client)
        self.advance(4 * SESSION_MS)
        for client in self.clients:
            self.kill(client)
        self.advance(4 * SESSION_MS + 2 * REBALANCE_MS)
        try:
            Settled(self).check_deleted()
        except ViolationError as violation:
            self._fail(violation)

    def advance(self, ms: float) -> None:
        """Let time pass; whatever went wrong meanwhile is raised."""
        try:
            self.runtime.advance(ms)
        except SimulationError as error:
            self._fail(error.__cause__ or error)
        if self._violation is not None:
            self._fail(self._violation)

    def _fail(self, error: BaseException) -> None:
        self.trace.note(f"VIOLATION {error}")
        if isinstance(error, ViolationError):
            raise error
        raise ViolationError(f"{type(error).__name__}: {error}") from error

    # What happens to members

    def _some(self, *, running: bool) -> Client | None:
        able = [client for client in self.clients if (client.member is not None) is running]
        return self.random.choice(able) if able else None

    def come(self) -> None:
        """A process starts, maybe with another protocol than last time."""
        client = self._some(running=False)
        if client is not None:
            if self.mode == "mixed":
                client.protocol = self._protocol()
            self.start(client)

    def start(self, client: Client) -> None:
        """Its process starts."""
        client.lives += 1
        client.up_ms = client.down_ms = 0.0
        client.lag_ms, client.leaves = 0, False
        settings = MemberSettings(
            group_id=GROUP,
            client_id=client.name,
            topics=() if self.by_regex else tuple(f"t{n}" for n in range(1, 4)),
            regex="t[0-9]+" if self.by_regex else "",
            instance_id=client.instance_id,
            rack_id=self.random.choice(["a", "b", None]),
            assignor=None if client.protocol == "consumer" else client.protocol,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            heartbeat_interval_ms=2_000,
            request_timeout_ms=8_000,
            revoke_ms=self.random.choice([0, 0, 200, 3_000]),
            commit_interval_ms=3_000 if self.scale == 1 else 20_000,
        )
        if client.protocol == "consumer":
            client.member = ConsumerMember(settings, self.view(), f"{client.name}.{client.lives}")
        else:
            client.member = ClassicMember(settings, self.view())
        self.trace.note(f"{client.name} starts as {client.protocol}")
        self.do(client, client.member.start(self.now_ms))

    def leave(self) -> None:
        """A process ends as it should."""
        client = self._some(running=True)
        if client is not None and not client.leaves:
            self.leave_of(client)

    def leave_of(self, client: Client) -> None:
        """It says goodbye."""
        assert client.member is not None
        self.trace.note(f"{client.name} leaves")
        client.leaves = True
        self.do(client, client.member.close(self.now_ms))
        self._gone_if_out(client)

    def die(self) -> None:
        """A process dies, and says nothing."""
        client = self._some(running=True)
        if client is not None:
            self.trace.note(f"{client.name} dies")
            self.kill(client)

    def kill(self, client: Client) -> None:
        """Nothing of this process happens any more."""
        assert self.oracle is not None
        client.lives += 1
        client.member = None
        self.oracle.gone(client.name)

    def dawdle(self) -> None:
        """An application takes its time, maybe too much, to give partitions up."""
        client = self._some(running=True)
        if client is not None and client.member is not None:
            slow = self.random.choice([1_000, 8_000, 25_000])
            client.member.settings = replace(client.member.settings, revoke_ms=slow)
            self.trace.note(f"{client.name} takes {slow} ms to revoke")

    def fall_behind(self) -> None:
        """All messages of a client are late, for a while or until the calm."""
        client = self._some(running=True)
        if client is not None:
            client.lag_ms = self.random.choice([0, 500, 4_000, 12_000])
            self.trace.note(f"{client.name} is {client.lag_ms} ms away")

    # What happens to topics, and to the coordinator

    def create_topic(self) -> None:
        """A new topic; its name was never used before."""
        if self.topics_made < 6:
            self.topics_made += 1
            self._cluster_changes(f"t{self.topics_made}", self.random.randrange(1, 7) * self.scale)

    def grow_topic(self) -> None:
        """More partitions."""
        if self.cluster.topics:
            name = self.random.choice(list(self.cluster.topics))
            count = len(self.cluster.topics[name].partitions)
            if count < 12 * self.scale:
                self._cluster_changes(name, count + self.random.randrange(1, 4) * self.scale)

    def delete_topic(self) -> None:
        """A topic is deleted; one stays."""
        if len(self.cluster.topics) > 1:
            self._cluster_changes(self.random.choice(list(self.cluster.topics)), 0)

    def _cluster_changes(self, name: str, count: int) -> None:
        self.trace.note(f"topic {name} has {count} partitions")
        if count:
            self.cluster.create(name, count)
        else:
            self.cluster.delete(name)
        for client in getattr(self, "clients", ()):
            delay_ms = self.random.uniform(50, REFRESH_MS_MAX)
            self.runtime.call_later(delay_ms, partial(self._refresh, client))

    def _refresh(self, client: Client) -> None:
        if client.member is not None:
            self.do(client, client.member.metadata(self.view(), self.now_ms))

    def view(self) -> View:
        """What a client's metadata says now."""
        return {name: Topic(t.topic_id, len(t.partitions)) for name, t in self.cluster.topics.items()}

    def reload(self) -> None:
        """Another node led for a moment; what was not committed may be lost."""
        assert self.oracle is not None
        truncate = self.random.random() < 0.5
        self.trace.note(f"the coordinator moves, truncate={truncate}")
        self.node.resign()
        if self.node.log.lose_uncommitted(truncate=truncate):
            self.oracle.cut()
        self.runtime.call_later(self.random.choice([0, 50, 1_500]), self.node.elect)

    def fail_append(self) -> None:
        """The next append fails; the shard is dropped, and rebuilt a second later."""
        self.node.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS

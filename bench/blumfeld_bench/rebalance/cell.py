"""One group on one server: it is formed, then goes through the scenarios one after the other."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from time import monotonic_ns

import attrs
import msgspec

from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.rebalance.members.classic import ClassicMember
from blumfeld_bench.rebalance.members.consumer import ConsumerMember
from blumfeld_bench.rebalance.members.crowd import Crowd
from blumfeld_bench.rebalance.members.member import Group, Member
from blumfeld_bench.rebalance.members.ownership import pauses
from blumfeld_bench.rebalance.result import Sample, Spread
from blumfeld_bench.rebalance.settings import KIP_848, Settings
from blumfeld_bench.usage import Totals

SECOND_NS = 1_000_000_000
STABLE_TIMEOUT_S = 60.0
"""Longest time to stable beyond the session timeout; a longer one counts as a failure."""
REST_INTERVALS = 2
Look = Callable[[], Totals | None]


@attrs.frozen
class Event:
    """A change of the group's members, and its time."""

    at_ns: int
    session_ns: int
    """Rest of a killed member's session; 0 elsewhere."""
    before: dict[int, frozenset[int]]
    idle_ns: int
    """Idle time of the driver up to the event."""


class Cell:
    """One group.

    :param look: returns the server's usage so far, if that can be known
    """

    def __init__(self, crowd: Crowd, group: Group, protocol: str, settings: Settings, look: Look) -> None:
        self._crowd = crowd
        self._group = group
        self._protocol = protocol
        self._settings = settings
        self._look = look
        self._draw = random.Random(group.draw.random())
        self._interval_ns = settings.heartbeat_interval_ms * 1_000_000
        self._index = 0

    def form(self, size: int) -> float:
        """Add the members, spread over one heartbeat interval; return the seconds until the group is stable.

        :raises DriverError: the group did not become stable
        """
        began = monotonic_ns()
        socks = self._crowd.connect(size)
        start = monotonic_ns()
        for nth, sock in enumerate(socks):
            self._crowd.run(start + self._interval_ns * nth // size)
            self._crowd.join(self._member(), sock)
        self._await_stable(began)
        return (self._group.ownership.changed_ns - began) / SECOND_NS

    def run(self, variant: str, round_number: int, size: int, scenarios: Sequence[str]) -> list[Sample]:
        """Run the scenarios one after the other, each until the group has been stable for an interval; then measure the
        server at rest.

        :param size: number of members with which the group was formed
        :raises DriverError: the group did not become stable again
        """
        known = {"variant": variant, "round": round_number, "protocol": self._protocol, "size": size}
        samples = [self._scenario(scenario, size, known) for scenario in scenarios]
        rest_cpu = self._rest()
        return [_less_rest(sample, rest_cpu) for sample in samples]

    def _scenario(self, scenario: str, size: int, known: dict[str, object]) -> Sample:
        """Run one scenario; its ``cpu_s`` still contains the server's use at rest."""
        act = self._prepared(scenario, size)
        self._group.faults.clear()
        before = self._look()
        event = act()
        self._await_stable(event.at_ns + event.session_ns)
        known_ns, after = monotonic_ns(), self._look()
        return self._sample(
            event,
            **known,
            scenario=scenario,
            known_s=(known_ns - event.at_ns) / SECOND_NS,
            cpu_s=None if before is None or after is None else after.cpu_s - before.cpu_s,
            rss_bytes=None if after is None else after.rss_bytes,
            driver_busy=self._busy(event, known_ns),
        )

    def _rest(self) -> float | None:
        """Return the CPU seconds a second of a server whose group is at rest."""
        began_ns, before = monotonic_ns(), self._look()
        self._crowd.run(began_ns + REST_INTERVALS * self._interval_ns)
        after = self._look()
        if before is None or after is None:
            return None
        return (after.cpu_s - before.cpu_s) / ((monotonic_ns() - began_ns) / SECOND_NS)

    def _busy(self, event: Event, known_ns: int) -> float:
        idle_ns = self._crowd.idle_ns - event.idle_ns
        return max(0.0, 1 - idle_ns / (known_ns - event.at_ns))

    def _sample(self, event: Event, **known: object) -> Sample:
        ownership = self._group.ownership
        due_ns = event.at_ns + event.session_ns
        stable_ns = ownership.changed_ns
        seen = pauses(event.before, ownership.changes, ownership.owners(), stable_ns)
        stayed = [
            seen.members[member.index] for member in self._crowd.members if member.index in seen.members
        ]
        return Sample(
            members=len(self._crowd),
            partitions=self._group.partitions,
            session_s=event.session_ns / SECOND_NS,
            stable_s=(stable_ns - due_ns) / SECOND_NS,
            converged_s=(max(stable_ns, self._group.told_ns) - due_ns) / SECOND_NS,
            members_pause=Spread.of(stayed),
            moved_pause=Spread.of(list(seen.moved.values())),
            pauses_ms=tuple(round(pause_ns / 1e6, 1) for pause_ns in sorted(stayed)),
            unowned_s=seen.unowned / SECOND_NS,
            contested=ownership.contested,
            faults=dict(self._group.faults),
            rest_cpu=None,
            **known,  # type: ignore[arg-type]
        )

    def _prepared(self, scenario: str, size: int) -> Callable[[], Event]:
        """Do the work that must not count, such as connecting and choosing members; return the event to run."""
        if scenario in ("kill one", "one leaves"):
            chosen = self._draw.choice([member for member in self._crowd.members if not member.is_leader])
            return lambda: self._gone(chosen, silently=scenario == "kill one")
        count = 1 if scenario == "add one" else size // 10
        socks = self._crowd.connect(count)
        return lambda: self._come([(self._member(), sock) for sock in socks])

    def _gone(self, member: Member, silently: bool) -> Event:
        event = self._event(session_ns=0)
        (self._crowd.kill if silently else self._crowd.leave)(member)
        if not silently:
            return event
        ends_ns = member.heard_ns + self._settings.session_timeout_ms * 1_000_000
        return attrs.evolve(event, session_ns=ends_ns - event.at_ns)

    def _come(self, arrivals: Sequence[tuple[Member, object]]) -> Event:
        event = self._event(session_ns=0)
        for member, sock in arrivals:
            self._crowd.join(member, sock)  # type: ignore[arg-type]
        return event

    def _event(self, session_ns: int) -> Event:
        before = self._group.ownership.begin()
        return Event(monotonic_ns(), session_ns, before, self._crowd.idle_ns)

    def _await_stable(self, from_ns: int) -> None:
        """Wait until the group has been stable for an interval and a little more.

        :raises DriverError: it was not stable in time
        """
        until_ns = max(from_ns, monotonic_ns()) + int(STABLE_TIMEOUT_S * SECOND_NS)
        if not self._crowd.run(until_ns, self._is_stable):
            ownership, members = self._group.ownership, self._crowd.members
            idle = sum(member.idle for member in members)
            raise DriverError(
                f"not stable after {STABLE_TIMEOUT_S:.0f} s: {ownership.unowned} of {self._group.partitions} "
                f"partitions without an owner, {idle} of {len(members)} members at rest, "
                f"epochs {sorted({member.epoch for member in members})[-3:]}, faults {dict(self._group.faults)}"
            )

    def _is_stable(self, now_ns: int) -> bool:
        ownership = self._group.ownership
        last_ns = max(ownership.changed_ns, self._group.told_ns)
        if ownership.unowned or now_ns - last_ns < self._interval_ns * 1.1:
            return False
        members = self._crowd.members
        return (
            all(member.idle for member in members)
            and len({member.epoch for member in members}) == 1
            and ownership.balanced(member.index for member in members)
        )

    def _member(self) -> Member:
        self._index += 1
        if self._protocol == KIP_848:
            return ConsumerMember(self._group, self._index)
        return ClassicMember(self._group, self._index, cooperative=self._protocol == "cooperative")


def _less_rest(sample: Sample, rest_cpu: float | None) -> Sample:
    if sample.cpu_s is None or rest_cpu is None:
        return sample
    cpu_s = sample.cpu_s - rest_cpu * sample.known_s
    return msgspec.structs.replace(sample, cpu_s=cpu_s, rest_cpu=rest_cpu)

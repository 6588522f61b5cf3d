"""A storm: waves of faults that overlap, drawn from a seed. Pure."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence

import attrs

FACULTIES: Mapping[str, str] = {
    "kill": "process",
    "pause": "process",
    "stop": "process",
    "cut": "network",
    "deafen": "network",
    "mute": "network",
    "part": "network",
    "fill": "disk",
}
"""The faculty of a node that an action takes away. Two blows on one faculty of a node never overlap."""
BLOWS_MAX = 5
SPREADS_S = (0.0, 5.0, 20.0)
"""The blows of a wave begin within one of these times: all at once, soon after one another, or one by one."""
DURATIONS_S = ((0.2, 3.0), (3.0, 12.0), (12.0, 30.0))
"""A blip, about a session's time-out, or longer than that."""
NODES_HIT = (1, 1, 1, 2, 2, 3)
"""Numbers of nodes that a blow hits, each entry as likely as another."""
DRAWS_MAX = 20


@attrs.frozen
class Blow:
    """One fault of a wave."""

    at_s: float
    """Since the wave began."""
    action: str
    """A key of :data:`FACULTIES`."""
    nodes: tuple[int, ...]
    down_s: float

    @property
    def end_s(self) -> float:
        """Since the wave began."""
        return self.at_s + self.down_s

    def __str__(self) -> str:
        """Return it in a few words, such as ``kill 1+3 2.0-9.5 s``."""
        return f"{self.action} {'+'.join(map(str, self.nodes))} {self.at_s:.1f}-{self.end_s:.1f} s"

    def collides(self, other: Blow) -> bool:
        """Whether both take the same faculty of one node at the same time."""
        return (
            FACULTIES[self.action] == FACULTIES[other.action]
            and bool(set(self.nodes) & set(other.nodes))
            and self.at_s <= other.end_s
            and other.at_s <= self.end_s
        )


@attrs.frozen
class Wave:
    """Blows that fall before the cluster gets the time to heal."""

    number: int
    blows: tuple[Blow, ...]

    @property
    def name(self) -> str:
        """The wave with all its blows."""
        return f"wave {self.number}: " + ", ".join(map(str, self.blows))

    @property
    def nodes(self) -> tuple[int, ...]:
        """All nodes that it hits."""
        return tuple(sorted({node for blow in self.blows for node in blow.nodes}))

    @property
    def filled(self) -> frozenset[int]:
        """Nodes whose disk it fills: a node that is started on a full disk ends."""
        return frozenset(node for blow in self.blows if blow.action == "fill" for node in blow.nodes)

    def steps(self) -> list[tuple[float, bool, Blow]]:
        """Return (time, whether it begins, blow) for the beginning and the end of each blow, in time's order."""
        both = [(blow.at_s, True, blow) for blow in self.blows]
        both += [(blow.end_s, False, blow) for blow in self.blows]
        return sorted(both, key=lambda step: (step[0], not step[1]))


def waves(seed: int, actions: Sequence[str], nodes: Sequence[int]) -> Iterator[Wave]:
    """Yield waves without an end; the same seed gives the same ones.

    :param actions: keys of :data:`FACULTIES`
    """
    number = 0
    while True:
        number += 1
        fate = random.Random(f"storm/{seed}/{number}")
        blows: list[Blow] = []
        spread_s = fate.choice(SPREADS_S)
        for _ in range(fate.randint(1, BLOWS_MAX)):
            for _ in range(DRAWS_MAX):
                blow = _blow(fate, spread_s, actions, nodes)
                if not any(blow.collides(other) for other in blows):
                    blows.append(blow)
                    break
        yield Wave(number, tuple(sorted(blows, key=lambda blow: blow.at_s)))


def _blow(fate: random.Random, spread_s: float, actions: Sequence[str], nodes: Sequence[int]) -> Blow:
    action = fate.choice(actions)
    count = 2 if action == "part" else min(fate.choice(NODES_HIT), len(nodes))
    hit = tuple(sorted(fate.sample(list(nodes), count)))
    at_s, down_s = fate.uniform(0, spread_s), fate.uniform(*fate.choice(DURATIONS_S))
    return Blow(round(at_s, 1), action, hit, round(down_s, 1))

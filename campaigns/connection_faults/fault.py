"""One row of the table, and what a fault is done to."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blumfeld.testing.process import BrokerProcess
from campaigns.connection_faults import census
from campaigns.connection_faults.census import Census

if TYPE_CHECKING:
    from campaigns.bad_input.target import Target
    from campaigns.connection_faults.load import Background


SHORT_IDLE_MS = 1_500
SHORT_IDLE = f'config."connections.max.idle.ms"={SHORT_IDLE_MS}'


class Wrong(Exception):  # noqa: N818 - what a fault found, not a failure of ours
    """The broker did what it must not, in words."""


@dataclass(frozen=True)
class Scene:
    """A broker with a load on it, and how much is to be done to it."""

    broker: BrokerProcess
    metrics_address: str
    target: Target
    background: Background
    big_topic: str
    """Holds ``big_bytes`` of batches of about 1 MB."""
    big_bytes: int
    quiet_topic: str
    """Empty: a fetch of it waits."""
    scale: float
    """1 is the whole; the everyday tests take less."""

    @property
    def address(self) -> str:
        """The broker's ``host:port``."""
        return self.broker.address

    def times(self, whole: int, least: int = 1) -> int:
        """Returns the number of times that something is done, at this scale."""
        return max(least, round(whole * self.scale))

    def count(self) -> Census:
        """Count everything that the broker holds now."""
        return census.take(self.broker, self.metrics_address)


@dataclass(frozen=True)
class Fault:
    """An act, and the settings of its broker: faults with the same ``settings`` share one.

    ``act`` says what came of it.

    :raises Wrong: (``act``) the broker did what it must not
    """

    name: str
    act: Callable[[Scene], str]
    settings: Sequence[str] = ()
    files_may_stay: bool = False
    """It makes the broker open files that it may keep."""
    settle_s: float = 20.0
    stall_ms: float | None = None
    """Another bound for the background load's worst latency."""


@dataclass
class Result:
    """The result of a fault, over all its repetitions."""

    fault: Fault
    before: Census
    after: Census
    rss_bytes: list[int] = field(default_factory=list)
    """Before, and after each repetition."""
    said: str = ""
    wrong: list[str] = field(default_factory=list)
    p99_ms: float = 0.0
    worst_ms: float = 0.0
    worst_end_to_end_ms: float = 0.0

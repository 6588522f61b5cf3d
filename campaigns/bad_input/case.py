"""One row of the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from campaigns.bad_input.target import Target


@dataclass(frozen=True)
class Case:
    """What is done, and what must come back.

    ``act`` gives what came back in the words of ``expected``: an error's name, ``closed``, or words that must
    be part of it where ``within`` is set (messages for people).
    """

    title: str
    expected: str
    act: Callable[[Target], str]
    within: bool = False
    kafka: str = ""
    """What Apache Kafka 4.3.1 does, where it is something else."""

    def holds(self, came: str) -> bool:
        """Whether what came back is what must."""
        return self.expected in came if self.within else came == self.expected


@dataclass(frozen=True)
class Result:
    """What came of a case."""

    case: Case
    came: str
    serves_on: str
    """Empty, or what failed in the round trip after it."""

    @property
    def good(self) -> bool:
        """As it must be, and the broker serves on."""
        return self.case.holds(self.came) and not self.serves_on

"""The hand on the background load: starts its program, asks what it saw, and judges it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from campaigns.connection_faults import background

STALL_MS = 5_000.0
"""A request of the background load that takes longer was stalled. The machine may be busy with other things."""
QUIT_TIMEOUT_S = 10.0


@dataclass(frozen=True)
class Seen:
    """Answers that the background load saw between two marks."""

    produced: int
    fetched: int
    p99_ms: float
    """The 99th percentile of produce requests with acks=all."""
    worst_ms: float
    worst_end_to_end_ms: float
    """From the producer's clock to the consumer's: one machine, one clock."""
    errors: Sequence[str]

    def wrong(self, stall_ms: float = STALL_MS) -> list[str]:
        """Return the troubles that a client that did nothing wrong must not see."""
        complaints = [] if self.errors or self.fetched else ["the background load got nothing"]
        return complaints + self.wrong_but_quiet(stall_ms)

    def wrong_but_quiet(self, stall_ms: float = STALL_MS) -> list[str]:
        """The same, for a while that may have been too short to get anything."""
        complaints = [f"the background load failed: {error}" for error in self.errors]
        if (worst_ms := max(self.worst_ms, self.worst_end_to_end_ms)) > stall_ms:
            complaints.append(f"the background load was stalled for {worst_ms:.0f} ms")
        return complaints


class Background:
    """The program while a ``with`` block lasts; it begins at rest."""

    def __init__(self, address: str, topics: Sequence[str]) -> None:
        command = [sys.executable, "-m", background.__name__, address, *topics]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._fetched_before = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def mark(self) -> Seen:
        """Return what it saw since the last answer to anything."""
        seen = self._ask("mark")
        self._fetched_before += seen.fetched
        return seen

    def pause(self) -> Seen:
        """Bring it to rest: all is fetched, and its connections are closed. Return what it saw.

        What was fetched is counted since it was told to go.
        """
        seen = self._ask("pause")
        return replace(seen, fetched=seen.fetched + self._fetched_before)

    def go(self) -> None:
        """Go on."""
        self._fetched_before = 0
        self._ask("go")

    def close(self) -> None:
        """End it; harmless twice."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(QUIT_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()

    def _ask(self, command: str) -> Seen:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("the background load ended by itself")
        return Seen(**json.loads(line))

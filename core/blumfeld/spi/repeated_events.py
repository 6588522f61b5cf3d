"""Events that a peer can cause as often as it likes: each is logged once, then counted."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import msgspec

from blumfeld.spi.runtime import Runtime

INTERVAL_MS = 10_000
"""Time between the first event of a kind and the line that counts the others."""
KINDS_MAX = 100
"""Kinds told apart in one interval. The others share one kind: addresses are as many as a peer likes."""
_OTHERS = "others"


class _Kind(msgspec.Struct):
    """The events of one key in the present interval."""

    write: Callable[..., Any]
    event: str
    values: dict[str, Any]
    suppressed: int = 0


class RepeatedEvents:
    """Writes the first event of each key at once, and one line with ``suppressed=N`` for those that follow.

    An interval begins with the first event and ends after :data:`INTERVAL_MS`. A key that had events to count goes on
    in the next interval, in which its events are only counted: what lasts has one line in each interval behind the
    first. Every other key begins anew. None of the events is lost from the count.
    """

    def __init__(
        self, runtime: Runtime, *, interval_ms: float = INTERVAL_MS, kinds_max: int = KINDS_MAX
    ) -> None:
        self._runtime = runtime
        self._interval_ms = interval_ms
        self._kinds_max = kinds_max
        self._kinds: dict[Hashable, _Kind] = {}

    def say(self, write: Callable[..., Any], event: str, key: Hashable, **values: Any) -> None:
        """Log ``event`` with ``write`` (a method of an ``EventLog``), unless one of this ``key`` was logged in the
        present interval: then it is counted.
        """
        kinds = self._kinds
        if not kinds:
            self._runtime.call_later(self._interval_ms, self._interval_ended)
        kind = kinds.get(key)
        if kind is None and len(kinds) >= self._kinds_max:
            key = _OTHERS
            kind = kinds.get(key)
        if kind is None:
            kinds[key] = _Kind(write, event, _kept(values))
            write(event, **values)
        else:
            kind.suppressed += 1
            kind.values = _kept(values)

    def _interval_ended(self) -> None:
        self._kinds = {key: kind for key, kind in self._kinds.items() if kind.suppressed}
        for kind in self._kinds.values():
            suppressed, kind.suppressed = kind.suppressed, 0
            kind.write(kind.event, **kind.values, suppressed=suppressed)
        if self._kinds:
            self._runtime.call_later(self._interval_ms, self._interval_ended)


def _kept(values: dict[str, Any]) -> dict[str, Any]:
    """The values of the line that counts. The first line has the traceback, whose frames would keep a whole request."""
    return {name: value for name, value in values.items() if name != "exc_info"}

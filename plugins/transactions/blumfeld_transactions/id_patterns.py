"""The expression of ListTransactions (KIP-1152), matched in a worker thread.

The syntax is RE2's, and the whole transactional id must match. The time for an id grows with its length times the size
of the compiled expression. A short expression of nested repetitions over an id of 30 kB takes seconds, so the loop
matches nothing. RE2 gives the interpreter back while it matches.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from blumfeld.coordinator.expressions import ExpressionError, compiled
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.errors import BrokerError, ErrorCode

PATTERN_BYTES_MAX = 256 * 1_024
"""Memory that RE2 may use for one expression. It bounds the size of the compiled one: to match it against one id of
32 kB takes a second or two."""
ID_CHARACTERS_AT_ONCE = 4_096
"""Transactional ids that the worker thread takes in one piece of work have so many characters together, but for one
long id. Work that has begun can't be ended, so a request whose connection has gone ends with its piece."""


class IdPatterns:
    """Compiles expressions and matches them, one piece of work at a time, so that all requests together take one of
    the node's worker threads."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._due: deque[tuple[Callable[..., Any], Sequence[Any], Completion[Any]]] = deque()
        self._working = False

    def compiled(self, pattern: str) -> Completion[Any]:
        """Completes with the expression for :meth:`matching`.

        Fails with ``BrokerError``: INVALID_REGULAR_EXPRESSION, also for one that is too large.
        """
        return self._off_the_loop(_compiled, pattern)

    def matching(self, compiled: Any, ids: Sequence[str]) -> Completion[list[bool]]:
        """Completes with whether each id matches. Take the ids from :func:`pieces`."""
        return self._off_the_loop(_matches, compiled, ids)

    def _off_the_loop(self, work: Callable[..., Any], *args: Any) -> Completion[Any]:
        done: Completion[Any] = Completion()
        self._due.append((work, args, done))
        if not self._working:
            self._working = True
            self._runtime.spawn(self._run(), "match-transactional-ids")
        return done

    async def _run(self) -> None:
        while self._due:
            work, args, done = self._due.popleft()
            try:
                result = await self._runtime.offload(work, *args)
            except Exception as error:
                done.fail(error)
            else:
                done.complete(result)
        self._working = False


def pieces(ids: Sequence[str]) -> list[Sequence[str]]:
    """Cut ids into pieces of work."""
    cut: list[Sequence[str]] = []
    begin = characters = 0
    for number, name in enumerate(ids):
        characters += len(name)
        if characters > ID_CHARACTERS_AT_ONCE and number > begin:
            cut.append(ids[begin:number])
            begin, characters = number, len(name)
    cut.append(ids[begin:])
    return cut


def _compiled(pattern: str) -> Any:
    try:
        return compiled(pattern, PATTERN_BYTES_MAX)
    except ExpressionError as error:
        message = f"the expression can't be used: {error}"
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, message) from None


def _matches(compiled: Any, ids: Sequence[str]) -> list[bool]:
    fullmatch = compiled.fullmatch
    return [fullmatch(name) is not None for name in ids]

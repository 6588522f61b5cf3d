"""Fetches of the metadata log that wait for records, or for a high watermark that their replica doesn't know."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import msgspec

from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.storage import LogRead, OffsetOutOfRangeError
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_kraft.raft.messages import FetchAnswer, FetchRequest
from blumfeld_consensus_kraft.raft_log import RaftLog


class FetchLimits(NamedTuple):
    """Limits of a fetch: the time that it may wait, and the bytes that it takes."""

    max_wait_ms: float
    max_bytes: int


class Parked(msgspec.Struct, eq=False):
    """One fetch without an answer so far."""

    request: FetchRequest
    limits: FetchLimits
    high_watermark: int
    """The leader's, when the fetch was parked."""
    reply: Callable[[FetchAnswer], None]
    timer: Timer | None = None


class ParkedFetches:
    """Answers fetches of replicas that the state machine accepted.

    :param answer_now: the state machine's answer to a fetch as of now, without records
    """

    def __init__(
        self, runtime: Runtime, log: RaftLog, answer_now: Callable[[FetchRequest], FetchAnswer]
    ) -> None:
        self._runtime = runtime
        self._log = log
        self._answer_now = answer_now
        self._parked: list[Parked] = []

    def serve(self, request: FetchRequest, limits: FetchLimits, reply: Callable[[FetchAnswer], None]) -> None:
        """Answer with records, or with a high watermark that is news; otherwise wait for these."""
        answer = self._answer_now(request)
        parked = Parked(request, limits, answer.high_watermark, reply)
        news = request.high_watermark < answer.high_watermark
        if self._try(parked, last=news or limits.max_wait_ms <= 0):
            return
        self._parked.append(parked)
        parked.timer = self._runtime.call_later(limits.max_wait_ms, lambda: self._expire(parked))

    def wake(self) -> None:
        """Records were written, the high watermark moved, or the leader is another one."""
        waiting, self._parked = self._parked, []
        for fetch in waiting:
            if self._try(fetch, last=False):
                if fetch.timer is not None:
                    fetch.timer.cancel()
            else:
                self._parked.append(fetch)

    def _expire(self, parked: Parked) -> None:
        if parked in self._parked:
            self._parked.remove(parked)
            self._try(parked, last=True)

    def _try(self, parked: Parked, *, last: bool) -> bool:
        request = parked.request
        answer = self._answer_now(request)
        if answer.error or answer.diverging is not None or answer.snapshot is not None:
            parked.reply(answer)
            return True
        if request.offset < self._log.log.written_end_offset:
            self._read(request, parked, answer)
            return True
        if last or answer.high_watermark > parked.high_watermark:
            parked.reply(answer)
            return True
        return False

    def _read(self, request: FetchRequest, parked: Parked, answer: FetchAnswer) -> None:
        try:
            outcome = self._log.read(request.offset, parked.limits.max_bytes)
        except (OffsetOutOfRangeError, OSError):
            parked.reply(answer)  # the replica asks again
            return
        if isinstance(outcome, LogRead):
            parked.reply(answer._replace(records=outcome.parts))
        else:
            outcome.when_done(lambda done: _cold(done, parked, answer))


def _cold(done: Completion[LogRead], parked: Parked, answer: FetchAnswer) -> None:
    if done.error is None:
        parked.reply(answer._replace(records=done.result().parts))
    elif isinstance(done.error, OffsetOutOfRangeError | OSError):
        parked.reply(answer)  # the replica asks again
    else:
        parked.reply(answer._replace(error=ErrorCode.UNKNOWN_SERVER_ERROR))

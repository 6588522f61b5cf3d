"""The writes of one controller on their way to the tree, in the order of its decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from blumfeld.spi.completion import Completion
from blumfeld.spi.zookeeper import (
    BadVersionError,
    Operation,
    OperationResult,
    SessionExpiredError,
    ZooKeeper,
)
from blumfeld_consensus_zk_compat.controller.election import CONTROLLER_EPOCH

UNDER_WAY_MAX = 64
"""Requests that are sent and not answered, before large decisions wait for answers."""


class _Sent:
    """The requests of one change."""

    __slots__ = ("left", "written")

    def __init__(self, left: int, written: Callable[[], None]) -> None:
        self.left = left
        self.written = written


class Writes:
    """Sends without waiting for answers: one session's requests take effect in order.

    :param failed: is told of the first write that failed. Nothing behind it is reported as written
    """

    def __init__(self, zookeeper: ZooKeeper, failed: Callable[[BaseException], None]) -> None:
        self.fenced = 0
        """Writes that were refused because this controller's time was over: another one was elected, or the session
        had ended.
        """
        self._zookeeper = zookeeper
        self._failed = failed
        self._sent: deque[_Sent] = deque()
        self._under_way = 0
        self._stopped = False
        self._room: Completion[None] | None = None

    def send(self, multis: Sequence[Sequence[Operation]], written: Callable[[], None]) -> None:
        """Send these in order, and call ``written`` when the tree has them and all that was sent before. It is called
        at once if nothing is under way.
        """
        sent = _Sent(len(multis), written)
        self._sent.append(sent)
        for operations in multis:
            self._under_way += 1
            self._zookeeper.multi(operations).when_done(lambda done: self._answered(sent, done))
        self._go_on()

    @property
    def room(self) -> Completion[None] | None:
        """Completes when more may be sent; ``None`` if it may now."""
        if self._under_way < UNDER_WAY_MAX or self._stopped:
            return None
        if self._room is None:
            self._room = Completion()
        return self._room

    def stop(self) -> None:
        """Report nothing any more. What is sent can't be called back: the check of the epoch fences it."""
        self._stopped = True
        self._sent.clear()
        self._make_room()

    def _answered(self, sent: _Sent, done: Completion[tuple[OperationResult, ...]]) -> None:
        self._under_way -= 1
        error = done.error
        if error is not None:
            self.fenced += is_fencing(error)
            if not self._stopped:
                self.stop()
                self._failed(error)
            return
        sent.left -= 1
        self._go_on()
        if self._under_way < UNDER_WAY_MAX // 2:
            self._make_room()

    def _go_on(self) -> None:
        while self._sent and not self._sent[0].left:
            self._sent.popleft().written()

    def _make_room(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.complete(None)


def is_fencing(error: BaseException) -> bool:
    """Whether a write failed because the controller that sent it is one no more."""
    if isinstance(error, BadVersionError):
        return error.path == CONTROLLER_EPOCH
    return isinstance(error, SessionExpiredError)

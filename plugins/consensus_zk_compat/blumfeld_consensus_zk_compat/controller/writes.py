"""The writes of one controller on their way to the tree, in the order of its decisions."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from blumfeld.spi.completion import Completion
from blumfeld.spi.zookeeper import (
    BadVersionError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    OperationResult,
    SessionExpiredError,
    ZooKeeper,
)
from blumfeld_consensus_zk_compat.tree.paths import CONTROLLER_EPOCH

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
    :param fenced: is told of each write that was refused because another controller was elected, or the session was
        over; also after :meth:`stop`
    """

    def __init__(
        self, zookeeper: ZooKeeper, failed: Callable[[BaseException], None], fenced: Callable[[], None]
    ) -> None:
        self._zookeeper = zookeeper
        self._failed = failed
        self._fenced = fenced
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

    def apart(self, operations: Sequence[Operation]) -> Completion[None]:
        """Send one ``multi`` that no change waits for. Completes when the tree has it, fails if it lacks a node. Any
        other failure ends this controller.
        """
        outcome: Completion[None] = Completion()

        def answered(done: Completion[tuple[OperationResult, ...]]) -> None:
            error = done.error
            if error is None:
                outcome.complete(None)
                return
            self._note(error)
            if not isinstance(error, NoNodeError | NotEmptyError | NodeExistsError) and not self._stopped:
                self.stop()
                self._failed(error)
            outcome.fail(error)

        self._zookeeper.multi(operations).when_done(answered)
        return outcome

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
            self._note(error)
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

    def _note(self, error: BaseException) -> None:
        if isinstance(error, BadVersionError) and error.path != CONTROLLER_EPOCH:
            return
        if isinstance(error, BadVersionError | SessionExpiredError):
            self._fenced()

"""Broker sessions: when each broker was last heard from. Soft state, lost with the controller. Pure.

Sessions are not in the log. A new controller therefore gives every unfenced broker a full session before it
may fence it. It knows more about one of them: the broker beside the former controller, if that one fell silent.

A session's time passes only while the controller runs. When a controller was paused itself (SIGSTOP, a suspended
machine, a loop that was held up), the brokers' heartbeats lie unread in its sockets. Without this rule it would fence
every broker with the first timer after the pause. To see its pauses the controller looks at the sessions often, also
when none ends.
"""

from __future__ import annotations

import msgspec

LOOKS_IN_A_TIMEOUT = 8
"""The number of looks at the sessions within one timeout, the same as in Kafka's controller."""
PAUSE_LOOKS = 2
"""The controller was paused if more time than this many looks passed between two of its actions."""


class _Session(msgspec.Struct):
    epoch: int
    heard_ms: float
    metadata_offset: int = -1
    live: bool = True


class BrokerSessions:
    """The time of the last accepted heartbeat of each broker."""

    __slots__ = ("_by_broker", "_ran_ms", "_shutdown_offsets", "timeout_ms")

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        """``broker.session.timeout.ms``, in milliseconds."""
        self._by_broker: dict[int, _Session] = {}
        self._shutdown_offsets: dict[int, int] = {}
        self._ran_ms: float | None = None

    def runs(self, now_ms: float) -> None:
        """Note that the controller runs. If it was paused before, every session goes on where the pause began."""
        ran_ms, self._ran_ms = self._ran_ms, now_ms
        if ran_ms is None or now_ms - ran_ms <= PAUSE_LOOKS * self._look_ms:
            return
        for session in self._by_broker.values():
            session.heard_ms += now_ms - ran_ms

    @property
    def _look_ms(self) -> float:
        return self.timeout_ms / LOOKS_IN_A_TIMEOUT

    def heard(self, broker_id: int, epoch: int, now_ms: float, metadata_offset: int = -1) -> None:
        """Note an accepted heartbeat."""
        self.runs(now_ms)
        self._by_broker[broker_id] = _Session(epoch, now_ms, metadata_offset)

    def silent_since(self, broker_id: int, at_ms: float) -> None:
        """Count a session from an earlier moment: the broker's process wasn't heard from since.

        Half of the timeout is left at least. The broker may live all the same, cut off from the other voters only, and
        needs time to find the new controller.
        """
        session = self._by_broker.get(broker_id)
        if session is not None:
            session.heard_ms = max(min(at_ms, session.heard_ms), session.heard_ms - self.timeout_ms / 2)

    def ended(self, broker_id: int, epoch: int, now_ms: float) -> None:
        """Note that the broker's process is gone, and its next one expected: it may register at once, and until the
        timeout the broker isn't fenced.
        """
        self.runs(now_ms)
        self._by_broker[broker_id] = _Session(epoch, now_ms, live=False)

    def gone(self, broker_id: int) -> None:
        """End the session: the broker was fenced or unregistered."""
        self._by_broker.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)

    def shutting_down(self, broker_id: int, offset: int) -> None:
        """Note that the record at ``offset`` began the broker's controlled shutdown."""
        self._shutdown_offsets.setdefault(broker_id, offset)

    def serves(self, broker_id: int) -> None:
        """Note that the broker is in no controlled shutdown, or not any more."""
        self._shutdown_offsets.pop(broker_id, None)

    def shutdown_offset(self, broker_id: int) -> int:
        """Returns the offset of the record that began the shutdown; -1 if this controller has not replayed it."""
        return self._shutdown_offsets.get(broker_id, -1)

    def is_live(self, broker_id: int, epoch: int, now_ms: float) -> bool:
        """Whether this process of the broker was heard from within the timeout."""
        session = self._by_broker.get(broker_id)
        if session is None or not session.live or session.epoch != epoch:
            return False
        return now_ms - session.heard_ms < self.timeout_ms

    def metadata_offset(self, broker_id: int) -> int:
        """Returns the metadata offset of the broker's last heartbeat; -1 if it gave none."""
        session = self._by_broker.get(broker_id)
        return -1 if session is None else session.metadata_offset

    def expired(self, now_ms: float) -> list[int]:
        """Returns the brokers whose session has ended, in the order in which they were first heard from."""
        self.runs(now_ms)
        return [b for b, s in self._by_broker.items() if now_ms - s.heard_ms >= self.timeout_ms]

    def next_expiry_ms(self) -> float | None:
        """Returns when the driver must call :meth:`expired` next: when a session ends, and often enough before that to
        see the controller's pauses. ``None`` if there is no session.
        """
        if not self._by_broker:
            return None
        first_ms = min(session.heard_ms for session in self._by_broker.values()) + self.timeout_ms
        return first_ms if self._ran_ms is None else min(first_ms, self._ran_ms + self._look_ms)

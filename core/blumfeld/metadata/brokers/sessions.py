"""Broker sessions: when each broker was last heard from. Soft state, lost with the controller. Pure.

Sessions are not in the log. A new controller therefore gives every unfenced broker a full session before it
may fence it.
"""

from __future__ import annotations

import msgspec


class _Session(msgspec.Struct):
    epoch: int
    heard_ms: float
    metadata_offset: int = -1


class BrokerSessions:
    """The time of the last accepted heartbeat or registration of each broker."""

    __slots__ = ("_by_broker", "_shutdown_offsets", "timeout_ms")

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        """``broker.session.timeout.ms``, in milliseconds."""
        self._by_broker: dict[int, _Session] = {}
        self._shutdown_offsets: dict[int, int] = {}

    def heard(self, broker_id: int, epoch: int, now_ms: float, metadata_offset: int = -1) -> None:
        """Note an accepted registration or heartbeat."""
        self._by_broker[broker_id] = _Session(epoch, now_ms, metadata_offset)

    def gone(self, broker_id: int) -> None:
        """End the session: the broker was fenced or unregistered."""
        self._by_broker.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)

    def shutting_down(self, broker_id: int, offset: int) -> None:
        """Note that the record at ``offset`` began the broker's controlled shutdown."""
        self._shutdown_offsets.setdefault(broker_id, offset)

    def shutdown_offset(self, broker_id: int) -> int:
        """Returns the offset of the record that began the shutdown; -1 if this controller has not replayed it."""
        return self._shutdown_offsets.get(broker_id, -1)

    def is_live(self, broker_id: int, epoch: int, now_ms: float) -> bool:
        """Whether this process of the broker was heard from within the timeout."""
        session = self._by_broker.get(broker_id)
        return session is not None and session.epoch == epoch and now_ms - session.heard_ms < self.timeout_ms

    def metadata_offset(self, broker_id: int) -> int:
        """Returns the metadata offset of the broker's last heartbeat; -1 if it gave none."""
        session = self._by_broker.get(broker_id)
        return -1 if session is None else session.metadata_offset

    def expired(self, now_ms: float) -> list[int]:
        """Returns the brokers whose session has ended, in the order in which they were first heard from."""
        return [b for b, s in self._by_broker.items() if now_ms - s.heard_ms >= self.timeout_ms]

    def next_expiry_ms(self) -> float | None:
        """Returns when the next session ends, or ``None`` if there is no session."""
        if not self._by_broker:
            return None
        return min(session.heard_ms for session in self._by_broker.values()) + self.timeout_ms

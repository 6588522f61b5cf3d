"""Which brokers have been heard of lately: soft state beside the image, lost with the controller. Pure.

It is no part of the log: a new controller gives every unfenced broker a full session before it fences it.
"""

from __future__ import annotations

import msgspec


class _Session(msgspec.Struct):
    epoch: int
    heard_ms: float
    metadata_offset: int = -1


class BrokerSessions:
    """The last sign of life of each broker."""

    __slots__ = ("_by_broker", "_shutdown_offsets", "timeout_ms")

    def __init__(self, timeout_ms: float) -> None:
        self.timeout_ms = timeout_ms
        """``broker.session.timeout.ms``."""
        self._by_broker: dict[int, _Session] = {}
        self._shutdown_offsets: dict[int, int] = {}

    def heard(self, broker_id: int, epoch: int, now_ms: float, metadata_offset: int = -1) -> None:
        """A broker registered, or its heartbeat was accepted."""
        self._by_broker[broker_id] = _Session(epoch, now_ms, metadata_offset)

    def gone(self, broker_id: int) -> None:
        """It was fenced or unregistered: nothing is expected of it."""
        self._by_broker.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)

    def shutting_down(self, broker_id: int, offset: int) -> None:
        """The record at ``offset`` began its controlled shutdown."""
        self._shutdown_offsets.setdefault(broker_id, offset)

    def shutdown_offset(self, broker_id: int) -> int:
        """Where that record is, or -1 if this controller has not seen it."""
        return self._shutdown_offsets.get(broker_id, -1)

    def is_live(self, broker_id: int, epoch: int, now_ms: float) -> bool:
        """Whether this incarnation was heard of within the timeout."""
        session = self._by_broker.get(broker_id)
        return session is not None and session.epoch == epoch and now_ms - session.heard_ms < self.timeout_ms

    def metadata_offset(self, broker_id: int) -> int:
        """How far the broker had read at its last heartbeat; -1 if it hasn't said."""
        session = self._by_broker.get(broker_id)
        return -1 if session is None else session.metadata_offset

    def expired(self, now_ms: float) -> list[int]:
        """Brokers whose last sign is older than the timeout, in the order in which they were first heard."""
        return [b for b, s in self._by_broker.items() if now_ms - s.heard_ms >= self.timeout_ms]

    def next_expiry_ms(self) -> float | None:
        """When to ask again, or ``None`` while nobody is watched."""
        if not self._by_broker:
            return None
        return min(session.heard_ms for session in self._by_broker.values()) + self.timeout_ms

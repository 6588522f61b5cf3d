"""Compares the sent messages with the received ones. Pure: the demo's verdict is tested without a broker."""

from __future__ import annotations

import hashlib
from array import array

import attrs


class TopicError(Exception):
    """The demo's topic cannot be created. The message gives the reason and the remedy in one line."""


@attrs.define
class Partition:
    """Counts and times of one partition."""

    sent: int = 0
    acknowledged: int = 0
    received: int = 0
    repeated: int = 0
    """Records read again after a restart of broker or consumer. Each (partition, offset) counts once as
    received.
    """
    bytes_sent: int = 0
    last_offset: int = -1
    sent_digest: hashlib._Hash = attrs.field(factory=hashlib.sha256)
    received_digest: hashlib._Hash = attrs.field(factory=hashlib.sha256)
    sent_at_s: array[float] = attrs.field(factory=lambda: array("d"))
    """Send time of the n-th message of this partition. Its offset is n if nothing is lost or doubled."""


@attrs.define
class Progress:
    """Counters that a live view may read while the pipeline runs."""

    sent: int = 0
    received: int = 0


class Ledger:
    """Every message sent and received, by partition, with a running SHA-256 of each side."""

    def __init__(self, partitions: int) -> None:
        self.partitions = [Partition() for _ in range(partitions)]
        self.faults: list[str] = []

    def sent(self, partition: int, value: bytes, now_s: float) -> None:
        """Count a message that was handed to the producer."""
        side = self.partitions[partition]
        side.sent += 1
        side.bytes_sent += len(value)
        side.sent_digest.update(len(value).to_bytes(4) + value)
        side.sent_at_s.append(now_s)

    def acknowledged(self, partition: int) -> None:
        """Count an acknowledgement of the broker."""
        self.partitions[partition].acknowledged += 1

    def failed(self, partition: int, why: str) -> None:
        """Count a message that the producer gave up."""
        self._fault(f"partition {partition}: not acknowledged: {why}")

    def received(self, partition: int, offset: int, value: bytes, now_s: float) -> float | None:
        """Count a record that the consumer received. Returns its latency in seconds; ``None`` if it was read
        before.
        """
        side = self.partitions[partition]
        if offset <= side.last_offset:
            side.repeated += 1
            return None
        if offset != side.last_offset + 1:
            self._fault(f"partition {partition}: a hole, offset {offset} follows {side.last_offset}")
        side.last_offset = offset
        side.received += 1
        side.received_digest.update(len(value).to_bytes(4) + value)
        return now_s - side.sent_at_s[offset] if offset < len(side.sent_at_s) else 0.0

    @property
    def count_sent(self) -> int:
        """Messages sent."""
        return sum(side.sent for side in self.partitions)

    @property
    def count_received(self) -> int:
        """Distinct messages received."""
        return sum(side.received for side in self.partitions)

    @property
    def count_repeated(self) -> int:
        """Messages that were read more than once."""
        return sum(side.repeated for side in self.partitions)

    @property
    def bytes_sent(self) -> int:
        """Bytes of all values."""
        return sum(side.bytes_sent for side in self.partitions)

    def digest(self) -> tuple[str, str]:
        """SHA-256 over the partitions' digests: (sent, received)."""
        into, out = hashlib.sha256(), hashlib.sha256()
        for side in self.partitions:
            into.update(side.sent_digest.digest())
            out.update(side.received_digest.digest())
        return into.hexdigest(), out.hexdigest()

    def verdict(self) -> list[str]:
        """The problems found, empty if none: lost, doubled, reordered, changed or unacknowledged messages."""
        wrong = list(self.faults)
        for number, side in enumerate(self.partitions):
            if side.acknowledged != side.sent:
                wrong.append(f"partition {number}: {side.sent} sent, {side.acknowledged} acknowledged")
            if side.received != side.sent:
                wrong.append(f"partition {number}: {side.sent} sent, {side.received} received")
            elif side.received_digest.digest() != side.sent_digest.digest():
                wrong.append(f"partition {number}: what came out differs from what went in (SHA-256)")
        return wrong

    def _fault(self, text: str) -> None:
        if len(self.faults) < 20:
            self.faults.append(text)

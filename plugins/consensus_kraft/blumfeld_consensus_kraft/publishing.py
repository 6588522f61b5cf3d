"""What is committed becomes the node's image, batch by batch; then replies go out."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import msgspec

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.step import ImageStep
from blumfeld.metadata.image.transactions import TransactionGate
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ImageListener
from blumfeld.spi.runtime import Timer
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message


class Placed(msgspec.Struct, frozen=True):
    """A batch that is in the log, committed or not."""

    base_offset: int
    end_offset: int
    epoch: int
    records: Sequence[Message]
    """Empty for a control batch."""
    size_bytes: int
    timestamp_ms: int


class Reply(msgspec.Struct):
    """A response that waits until everything below ``end_offset`` is committed."""

    end_offset: int
    response: Message
    completion: Completion[Message]
    timer: Timer | None = None

    def settle(self, error: BrokerError | None = None) -> None:
        """Answer, unless its time ran out before."""
        if self.timer is not None:
            self.timer.cancel()
        if self.completion.done:
            return
        if error is not None:
            self.completion.fail(error)
        else:
            self.completion.complete(self.response)

    def expire(self) -> None:
        """Its time is over; what was decided may still be committed."""
        if not self.completion.done:
            self.completion.fail(BrokerError(ErrorCode.REQUEST_TIMED_OUT))


class Publisher:
    """The committed image, those who listen to it, and the batches and replies that wait for the commit."""

    def __init__(self, image: MetadataImage) -> None:
        self.image = image
        self.loaded = False
        self.uncommitted: deque[Placed] = deque()
        self._replies: deque[Reply] = deque()
        self._listeners: list[ImageListener] = []
        self._gate = TransactionGate()
        self._held: list[Message] = []

    def subscribe(self, listener: ImageListener) -> None:
        """Tell ``listener`` of every step; at once of all there is, if it is loaded."""
        self._listeners.append(listener)
        if self.loaded:
            listener(self.image, self.image.first_delta())

    def publish_all(self) -> None:
        """The image is loaded: the first delta for everyone."""
        self.loaded = True
        for listener in self._listeners:
            listener(self.image, self.image.first_delta())

    def wait(self, reply: Reply) -> None:
        """Keep a reply; they are placed in the order of their ends."""
        self._replies.append(reply)

    def committed(self, end_offset: int) -> list[Placed]:
        """Everything below ``end_offset`` is committed: publish it, and answer. The batches that were published."""
        published = []
        while self.uncommitted and self.uncommitted[0].end_offset <= end_offset:
            placed = self.uncommitted.popleft()
            self._publish(placed)
            published.append(placed)
            self._answer(placed.end_offset)
        self._answer(end_offset)
        return published

    def _publish(self, placed: Placed) -> None:
        for record in placed.records:
            self._held += self._gate.pass_on(record)
        if self._gate.is_open or not self._held:
            self.image.offset = self.image.features_epoch = placed.end_offset - 1
            self.image.epoch = placed.epoch
            return
        step = ImageStep(self.image)
        ready, self._held = self._held, []
        for record in ready:
            step.replay(record)
        delta = step.finish(placed.end_offset - 1, placed.epoch)
        if self.loaded:
            for listener in self._listeners:
                listener(self.image, delta)

    def _answer(self, end_offset: int) -> None:
        while self._replies and self._replies[0].end_offset <= end_offset:
            self._replies.popleft().settle()

    def drop(self, end_offset: int, error: BrokerError) -> None:
        """What was placed from ``end_offset`` on is gone; who waits for it gets ``error``."""
        while self.uncommitted and self.uncommitted[-1].end_offset > end_offset:
            self.uncommitted.pop()
        lost = [reply for reply in self._replies if reply.end_offset > end_offset]
        self._replies = deque(reply for reply in self._replies if reply.end_offset <= end_offset)
        for reply in lost:
            reply.settle(error)

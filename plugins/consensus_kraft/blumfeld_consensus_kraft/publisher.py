"""Committed batches become the node's image, one by one; then replies go out."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import takewhile
from typing import NamedTuple

import msgspec

from blumfeld.metadata.image.checkpoint import iter_records
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.listeners import ImageListeners
from blumfeld.metadata.image.step import ImageStep, TransactionGate
from blumfeld.metadata.slices import BATCH_RECORDS_MAX, SLICE_RECORDS
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import ImageListener
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.spi.scheduler import Lane
from blumfeld.wire.batches.record_batch import RecordBatch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

JOINING_BATCH_RECORDS_MAX = 1_024
"""Records that are published at once while the node joins."""


class Placed(msgspec.Struct, frozen=True):
    """A batch that is in the log, committed or not."""

    base_offset: int
    end_offset: int
    epoch: int
    records: Sequence[Message] | RecordBatch
    """Empty for a control batch. A batch is decoded when its records are needed."""
    size_bytes: int
    timestamp_ms: int

    def decoded(self) -> Iterable[Message]:
        """Yield the records.

        :raises DecodeError, BrokerError: this build can't read one
        """
        return iter_records(self.records) if isinstance(self.records, RecordBatch) else self.records


class Reply(msgspec.Struct):
    """The answer to one command. The first outcome counts."""

    completion: Completion[Message]
    timer: Timer | None = None
    """Calls :meth:`expire`; ``None`` where the command has no limit of time."""
    wait_image: bool = True
    """Whether it waits until the image has its records, too."""

    def answer(self, response: Message) -> None:
        """Send the response, unless its time ran out before."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.completion.done:
            self.completion.complete(response)

    def fail(self, error: BrokerError) -> None:
        """Send an error, unless its time ran out before."""
        if self.timer is not None:
            self.timer.cancel()
        if not self.completion.done:
            self.completion.fail(error)

    def expire(self) -> None:
        """Its time is over; what was decided may still be committed."""
        self.fail(BrokerError(ErrorCode.REQUEST_TIMED_OUT))


class WaitingReply(NamedTuple):
    """A response that goes out when everything below ``end_offset`` is committed."""

    end_offset: int
    response: Message
    reply: Reply


class Unpublished(NamedTuple):
    """Records that the image lacks and that count: none of a transaction that isn't complete."""

    records: list[Message]
    last_offset: int
    epoch: int


class Publisher:
    """The committed image, and the batches and replies that wait for the commit.

    A large change is replayed over several turns, into a copy of the image, which then takes its place at once: a
    reader never sees half of it. The image of a fetched snapshot is compared with the present one over several turns,
    and takes its place with the delta.

    :param listeners: hear of each step of the image
    :param published: is told of each batch that is in the image
    :param unreadable: is told of committed records that this build can't read; nothing behind them is published
    """

    def __init__(
        self,
        image: MetadataImage,
        runtime: Runtime,
        listeners: ImageListeners,
        published: Callable[[Placed], None],
        unreadable: Callable[[Exception], None],
    ) -> None:
        self.image = image
        self.loaded = False
        self.uncommitted: deque[Placed] = deque()
        """Batches whose publishing has not begun."""
        self._runtime = runtime
        self._listeners = listeners
        self._published = published
        self._unreadable = unreadable
        self._is_at_end = False
        """Nothing is published any more: what comes next can't be read."""
        self._committed_end = -1
        self._shown_end = 0
        """Everything below is in the image, and applied."""
        self._waiting_for_image: list[tuple[int, Callable[[], None]]] = []
        self._replies: deque[WaitingReply] = deque()
        self._copies: deque[Completion[MetadataImage]] = deque()
        """Copies of the image that were asked for, and are made between two batches."""
        self._gate = TransactionGate()
        self._held: list[Message] = []
        self._replaying: Unpublished | None = None
        self._fetched: MetadataImage | None = None
        """The image of a snapshot, while it is compared with the present one."""
        self._steps: Steps[None] | None = None

    @property
    def is_idle(self) -> bool:
        """Whether everything that was placed is in the image, and applied."""
        return not self.uncommitted and self._steps is None

    def subscribe(self, listener: ImageListener) -> None:
        """Tell ``listener`` of every step; at once of all there is, if it is loaded."""
        self._listeners.subscribe(listener, self.image if self.loaded else None)

    def load(self, image: MetadataImage, tail: Sequence[Placed] = ()) -> None:
        """Begin with what the files hold.

        :param tail: batches behind the image, which may be committed or not
        """
        self.image = image
        self.uncommitted = deque(tail)
        self._shown_end = image.offset + 1

    def replace(self, image: MetadataImage) -> None:
        """Go on with the image of a snapshot that came from the leader. The replies that wait have been refused.

        Readers see it, and listeners are told, turns later: a large image takes long to compare with the present one.
        """
        self._steps = self._replaying = None
        self.uncommitted.clear()
        self._gate, self._held = TransactionGate(), []
        self._fetched = image
        self._committed_end = max(self._committed_end, image.offset + 1)
        self._begin()

    @property
    def newest(self) -> MetadataImage:
        """The image that :meth:`unpublished` is behind: that of a fetched snapshot, while it is being compared."""
        return self.image if self._fetched is None else self._fetched

    def publish_all(self) -> None:
        """The image is loaded: the first delta for everyone."""
        self.loaded = True
        self._listeners.loaded(self.image)

    def wait(self, waiting: WaitingReply) -> None:
        """Keep a reply; they are placed in the order of their ends."""
        self._replies.append(waiting)

    def copied(self) -> Completion[MetadataImage]:
        """A copy of the image as of one moment. Copying a large image takes several turns, and publishing waits for it;
        otherwise a busy image would change between them.
        """
        copy: Completion[MetadataImage] = Completion()
        self._copies.append(copy)
        self._begin()
        return copy

    def committed(self, end_offset: int) -> None:
        """Everything below ``end_offset`` is committed: publish it, and answer."""
        self._committed_end = end_offset
        # Listed first: an answer may lead to the next request, whose reply is kept behind these.
        for _, response, reply in list(
            takewhile(lambda pending_reply: pending_reply.end_offset <= end_offset, self._replies)
        ):
            if not reply.wait_image:
                reply.answer(response)
        self._begin()

    def _begin(self) -> None:
        if self._steps is None and not self._is_at_end:
            self._steps = steps = self._publish_committed()
            self._runtime.scheduler.run(
                Lane.METADATA, steps, partial(self._ended, steps), wanted=lambda: self._steps is steps
            )

    def _ended(self, steps: Steps[None], _: None, error: BaseException | None) -> None:
        if self._steps is steps:
            self._steps = None
        if isinstance(error, Exception):  # committed records contradict the image
            self._is_at_end = True
            self._unreadable(error)

    def _publish_committed(self) -> Steps[None]:
        records = 0
        yield from self._listeners.applied()
        yield from self._take_over()
        yield from self._copy()
        while self.uncommitted and self.uncommitted[0].end_offset <= self._committed_end:
            placed = self.uncommitted[0]
            decoded = yield from self._decoded(placed)
            if decoded is None:
                return
            self.uncommitted.popleft()
            yield from self._publish(placed, decoded)
            self._published(placed)
            self._answer(placed.end_offset)
            records += len(decoded)
            if records >= SLICE_RECORDS:
                records = 0
                yield None
            yield from self._copy()
        self._answer(self._committed_end)

    def _take_over(self) -> Steps[None]:
        """Put the image of a fetched snapshot in the place of the present one."""
        image = self._fetched
        if image is None:
            return
        if not self.loaded:
            self.image, self._fetched = image, None
            return
        # Imported here: a node alone fetches no snapshot.
        from blumfeld.metadata.image.difference import difference
        from blumfeld.spi.steps import let_go

        change = yield from difference(self.image, image)
        self.image, self._fetched = image, None
        self._listeners.tell(self.image, change.delta)
        yield from self._listeners.applied()
        yield from let_go([change.gone])

    def _copy(self) -> Steps[None]:
        while self._copies:
            copy = yield from self.image.copied()
            self._copies.popleft().complete(copy)

    def _decoded(self, placed: Placed) -> Steps[Sequence[Message] | None]:
        """Returns the records of a batch, decoded in steps; ``None`` if one of them can't be read. The batch stays
        among the uncommitted ones meanwhile.
        """
        if not isinstance(placed.records, RecordBatch):
            return placed.records
        decoded: list[Message] = []
        try:
            for record in iter_records(placed.records):
                decoded.append(record)
                if not len(decoded) % SLICE_RECORDS:
                    yield None
        except (DecodeError, BrokerError) as error:
            self._is_at_end = True
            self._unreadable(error)
            return None
        return decoded

    def _publish(self, placed: Placed, decoded: Sequence[Message]) -> Steps[None]:
        for record in decoded:
            self._held += self._gate.pass_on(record)
        if self._gate.is_open:
            # The image's offset stays: a snapshot must not claim to contain what is held back.
            return
        if not self._held:
            self.image.offset = self.image.features_epoch = placed.end_offset - 1
            self.image.epoch = placed.epoch
            return
        ready, self._held = self._held, []
        self._replaying = Unpublished(ready, placed.end_offset - 1, placed.epoch)
        yield from self._listeners.applied()
        # While the node joins, nobody reads the image. To copy it for each batch of a long log would take most time.
        is_large = len(ready) > (BATCH_RECORDS_MAX if self.loaded else JOINING_BATCH_RECORDS_MAX)
        image = (yield from self.image.copied()) if is_large else self.image
        step = ImageStep(image)
        for number, record in enumerate(ready, start=1):
            step.replay(record)
            if is_large and not number % SLICE_RECORDS:
                step.replay_sections()
                yield None
        delta = step.finish(placed.end_offset - 1, placed.epoch)
        self.image = image
        self._replaying = None
        if self.loaded:
            self._listeners.tell(self.image, delta)
            yield from self._listeners.applied()

    def _answer(self, end_offset: int) -> None:
        self._shown_end = max(self._shown_end, end_offset)
        if self._waiting_for_image:
            ready = [waiter for waiter in self._waiting_for_image if waiter[0] <= end_offset]
            self._waiting_for_image = [waiter for waiter in self._waiting_for_image if waiter[0] > end_offset]
            for _, callback in ready:
                callback()
        while self._replies and self._replies[0].end_offset <= end_offset:
            _, response, reply = self._replies.popleft()
            reply.answer(response)

    def unpublished(self) -> tuple[list[Unpublished], bool]:
        """Returns the steps that the image is behind the log, in order, and whether the log ends within a transaction,
        whose records are left out.
        """
        steps = [] if self._replaying is None else [self._replaying]
        gate, held = self._gate.copy(), list(self._held)
        last_offset, epoch = self.newest.offset, self.newest.epoch
        for placed in self.uncommitted:
            for record in placed.decoded():
                held += gate.pass_on(record)
            last_offset, epoch = placed.end_offset - 1, placed.epoch
            if not gate.is_open and held:
                steps.append(Unpublished(held, last_offset, epoch))
                held = []
        if held:
            steps.append(Unpublished(held, last_offset, epoch))
        return steps, gate.is_open

    def drop(self, end_offset: int, error: BrokerError) -> None:
        """Forget what was placed from ``end_offset`` on, unless it is committed. Replies that wait for it fail with
        ``error``.
        """
        end_offset = max(end_offset, self._committed_end)
        while self.uncommitted and self.uncommitted[-1].end_offset > end_offset:
            self.uncommitted.pop()
        self._lose_behind(end_offset, error)

    def refuse(self, error: BrokerError) -> None:
        """Fail the replies that wait for a commit: this node leads no longer. Their batches may be committed still."""
        self._lose_behind(self._committed_end, error)

    def _lose_behind(self, end_offset: int, error: BrokerError) -> None:
        lost = [waiting.reply for waiting in self._replies if waiting.end_offset > end_offset]
        self._replies = deque(waiting for waiting in self._replies if waiting.end_offset <= end_offset)
        for reply in lost:
            reply.fail(error)

    def when_shown(self, end_offset: int, callback: Callable[[], None]) -> None:
        """Call back when everything below ``end_offset`` is in the image and applied; at once if it is."""
        if self._shown_end >= end_offset:
            callback()
        else:
            self._waiting_for_image.append((end_offset, callback))

    def stop(self, error: BrokerError) -> None:
        """Publish no more. All replies get ``error``."""
        self._steps = None
        self.uncommitted.clear()
        while self._copies:
            self._copies.popleft().fail(error)
        while self._replies:
            self._replies.popleft().reply.fail(error)

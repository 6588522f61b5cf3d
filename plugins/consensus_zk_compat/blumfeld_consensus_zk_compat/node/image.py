"""The node's image: the tree as it was read at the start, then one step for each push and each change that is read."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.listeners import ImageListeners
from blumfeld.metadata.image.step import BrokenMetadata, ImageStep
from blumfeld.metadata.slices import BATCH_RECORDS_MAX, SLICE_RECORDS
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import ImageListener
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.scheduler import Lane
from blumfeld.wire.schema import Message

Records = Callable[[MetadataImage], Steps[Sequence[Message]]]
"""Reads the image, may wait for what it needs, and gives the records of one step."""


class _Step(NamedTuple):
    records: Records
    done: Completion[None]


class NodeImage:
    """The node's image and its listeners. Steps are taken in the order of the calls, one after the other.

    A large step is replayed over several turns into a copy, which then takes the image's place: a reader never sees
    half of it.
    """

    def __init__(self, image: MetadataImage, runtime: Runtime, events: EventLog) -> None:
        self.image = image
        self.is_loaded = False
        self._runtime = runtime
        self._events = events
        self._listeners = ImageListeners(runtime, events)
        self._queue: deque[_Step] = deque()
        self._runs = False
        self._stopped = False

    def subscribe(self, listener: ImageListener) -> None:
        """As ``ClusterMetadata.subscribe``."""
        self._listeners.subscribe(listener, self.image if self.is_loaded else None)

    def load(self, image: MetadataImage) -> None:
        """Begin with the tree as it was read. Listeners hear of everything."""
        self.image = image
        self.is_loaded = True
        self._listeners.loaded(image)

    def step(self, records: Records) -> Completion[None]:
        """Take a step behind those that wait. Completes when all listeners have applied it; fails with what
        ``records`` raised, and with ``BrokenMetadata`` if they contradict the image.
        """
        done: Completion[None] = Completion()
        if self._stopped:
            done.fail(OSError("the node stops"))
            return done
        self._queue.append(_Step(records, done))
        if not self._runs:
            self._runs = True
            self._runtime.scheduler.run(Lane.METADATA, self._take_steps(), self._ended)
        return done

    def replay(self, records: Sequence[Message]) -> Completion[None]:
        """As :meth:`step`, of records that are known."""

        def known(_: MetadataImage) -> Steps[Sequence[Message]]:
            yield from ()
            return records

        return self.step(known)

    def features(
        self, version: int, records: Callable[[MetadataImage], Sequence[Message]]
    ) -> Completion[None]:
        """As :meth:`step`, for feature levels.

        :param version: that of their znode, which is the image's ``features_epoch``
        """

        def levels(image: MetadataImage) -> Steps[Sequence[Message]]:
            yield from ()
            image.features_epoch = version
            return records(image)

        return self.step(levels)

    def stop(self) -> None:
        """Take no more steps. Those that wait fail with ``OSError``."""
        self._stopped = True
        while self._queue:
            self._queue.popleft().done.fail(OSError("the node stops"))

    def _ended(self, _: None, defect: BaseException | None) -> None:
        self._runs = False
        if defect is not None:
            self._events.error("a step of the image met a defect", exc_info=defect)

    def _take_steps(self) -> Steps[None]:
        while self._queue:
            step = self._queue.popleft()
            try:
                yield from self._listeners.applied()
                records = yield from step.records(self.image)
                if records:
                    yield from self._replay(records)
            except Exception as error:  # one push that can't be taken must not hold up the next ones
                if isinstance(error, BrokenMetadata):
                    self._events.error("a change contradicts the image", error=str(error))
                step.done.fail(error)
            else:
                step.done.complete(None)

    def _replay(self, records: Sequence[Message]) -> Steps[None]:
        is_large = len(records) > BATCH_RECORDS_MAX
        image = (yield from self.image.copied()) if is_large else self.image
        features_epoch = image.features_epoch
        step = ImageStep(image)
        for number, record in enumerate(records, start=1):
            step.replay(record)
            if is_large and not number % SLICE_RECORDS:
                yield None
        delta = step.finish(image.offset + 1, image.epoch)
        image.features_epoch = features_epoch  # the version of a znode, and no offset
        self.image = image
        self._listeners.tell(image, delta)
        yield from self._listeners.applied()

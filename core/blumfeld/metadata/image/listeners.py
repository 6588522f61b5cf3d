"""The listeners of a metadata image, and the deltas that they are still applying."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import ImageDelta
from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import ImageListener
from blumfeld.spi.defects import place_of
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.spi.runtime import Runtime


class ImageListeners:
    """Tells every listener of every delta, in the order of the calls.

    What a listener raises is logged: once, and then how often it came again. The other listeners, and later deltas, go
    on.
    """

    def __init__(self, runtime: Runtime, events: EventLog) -> None:
        self._events = events
        self._defects = RepeatedEvents(runtime)
        self._listeners: list[ImageListener] = []
        self._applying: list[Completion[None]] = []
        """Deltas that listeners have not applied to the end."""

    def subscribe(self, listener: ImageListener, image: MetadataImage | None) -> None:
        """Add a listener, and tell it of all that the image has. ``None``: no image is loaded yet."""
        self._listeners.append(listener)
        if image is not None:
            self._tell([listener], image, image.first_delta())

    def loaded(self, image: MetadataImage) -> None:
        """Tell all listeners of all that the image has."""
        if self._listeners:
            self.tell(image, image.first_delta())

    def tell(self, image: MetadataImage, delta: ImageDelta) -> None:
        """Tell all listeners of a delta that is in the image."""
        self._tell(self._listeners, image, delta)

    def applied(self) -> Steps[None]:
        """Wait until the listeners have applied all that they were told of."""
        while self._applying:
            # Taken out when it is done: if a snapshot comes meanwhile, its delta waits for the same listener.
            if self._applying[-1].done:
                self._applying.pop()
            else:
                yield self._applying[-1]

    def _tell(self, listeners: Sequence[ImageListener], image: MetadataImage, delta: ImageDelta) -> None:
        for listener in listeners:
            try:
                applying = listener(image, delta)
            except Exception as defect:
                self._defect(listener, defect)
                continue
            if applying is not None and not applying.done:
                self._applying.append(applying)

    def _defect(self, listener: ImageListener, defect: Exception) -> None:
        self._defects.say(
            self._events.error,
            "a listener of the metadata image met a defect",
            (place_of(defect),),
            listener=getattr(listener, "__qualname__", repr(listener)),
            exc_info=defect,
        )

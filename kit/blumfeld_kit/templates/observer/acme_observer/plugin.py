"""The class that the entry point names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from blumfeld.spi.hooks import Composition, Metric, NoOptions, hookimpl
from blumfeld.spi.observer import Observer

from .observer import AcmeObserver


class Plugin:
    """``acme_observer`` of a manifest. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("observers",)
    requires_spi = "1.0"

    def __init__(self) -> None:
        self._observer: AcmeObserver | None = None

    @hookimpl
    def blumfeld_make_observer(self, composition: Composition) -> Observer:
        """Return the observer of a node."""
        self._observer = AcmeObserver()
        return self._observer

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """Return the metrics of this plug-in. They are read when somebody scrapes."""
        observer = self._observer
        if observer is None:
            return ()
        text = "Requests that were answered or refused"
        return (Metric("acme_observer_requests_total", text, "counter", lambda: observer.requests_seen),)

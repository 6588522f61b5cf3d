"""The registration of a controller (KIP-919): the leader writes its own, another one asks the leader to."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blumfeld.metadata.brokers.feature_levels import supported_features
from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE, MetadataImage
from blumfeld.metadata.image.security_protocols import NAMES, protocol_number
from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.hooks import Composition, EventLog
from blumfeld.spi.hooks import Feature as FeatureRange
from blumfeld.spi.runtime import Timer
from blumfeld.wire.errors import known_code
from blumfeld.wire.messages.controller_registration import ControllerRegistrationRequest, Feature, Listener
from blumfeld.wire.schema import Message

TIMEOUT_MS = 5_000
"""One attempt. Until then the leader is looked for, and asked again."""
RETRY_MS, RETRY_MAX_MS = 100, 10_000
"""Pause after the first attempt that failed; it doubles with each failure in a row, up to the second."""


def controller_registration(
    composition: Composition, features: Mapping[str, FeatureRange]
) -> ControllerRegistrationRequest:
    """Its controller listeners, as far as they have a port yet, and its feature levels."""
    return ControllerRegistrationRequest(
        controller_id=composition.node_id,
        incarnation_id=composition.incarnation_id,
        listeners=[
            Listener(
                name=listener.name,
                host=listener.advertised_host or listener.host,
                port=listener.advertised_port or listener.port,
                security_protocol=protocol_number(listener.security_protocol)
                if listener.security_protocol in NAMES
                else 0,
            )
            for listener in composition.listeners
            if listener.kind == "controller" and (listener.advertised_port or listener.port)
        ],
        features=[
            Feature(name=f.name, min_supported_version=f.min_level, max_supported_version=f.max_level)
            for f in features.values()
        ],
    )


class ControllerRegistrar:
    """Registers this process with the active controller, and again each time the image shows another process, or none.

    The active controller itself writes its registration when it begins to lead. It registers again only if the image
    has shown that, or an earlier one of this process: then the other process's registration came behind it. A node
    without the controller's role registers no controller.

    :param image: returns the newest committed image
    """

    def __init__(
        self,
        composition: Composition,
        metadata: ClusterMetadata,
        image: Callable[[], MetadataImage],
        events: EventLog,
    ) -> None:
        self._composition = composition
        self._metadata = metadata
        self._image = image
        self._events = events
        self._pending = False
        self._shown = False
        """Whether the image has shown a registration of this process."""
        self._failures = 0
        self._timer: Timer | None = None
        self._stopped = False

    def image_changed(self, _image: ClusterImage, _delta: ImageDelta) -> None:
        """Look at each step of the image. A log without ``metadata.version`` has no controllers yet."""
        if self._timer is None and "controller" in self._composition.roles:
            self._register()

    def stop(self) -> None:
        """Register no more."""
        self._stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _register(self) -> None:
        self._timer = None
        image = self._image()
        composition, active = self._composition, self._metadata.controller
        known = image.controllers.get(composition.node_id)
        if known is not None and known.incarnation_id == composition.incarnation_id:
            self._shown = True
            return
        leads = active is not None and active.node_id == composition.node_id
        writes_own = leads and not self._shown
        if self._stopped or self._pending or writes_own or METADATA_VERSION_FEATURE not in image.features:
            return
        self._pending = True
        request = controller_registration(composition, supported_features(composition.features))
        self._metadata.submit(request, TIMEOUT_MS).when_done(self._answered)

    def _answered(self, done: Completion[Message]) -> None:
        self._pending = False
        if self._stopped:
            return
        code = 0 if done.error is not None else getattr(done.result(), "error_code", 0)
        if done.error is None and not code:
            self._failures = 0
            return
        error = known_code(code).name if code else str(done.error)
        self._events.warning("this controller could not register with the active one", error=error)
        pause_ms = min(RETRY_MS * 2 ** min(self._failures, 16), RETRY_MAX_MS)
        self._failures += 1
        self._timer = self._composition.runtime.call_later(pause_ms, self._register)

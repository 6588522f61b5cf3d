"""Warnings about configuration in the cluster's metadata that has no effect here.

Apache Kafka, or a client, may have written keys that this build ignores or would refuse. They don't keep a broker from
starting; the log names them, each once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from blumfeld.broker.cluster import ClusterView
from blumfeld.config.values import BROKER_CONFIGS, GROUP_CONFIGS, TOPIC_CONFIGS
from blumfeld.spi.cluster import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime, Timer

FIRST_LOOK_MS = 200
"""Pause between a start and the first look. It imports the table of keys, and a start must not wait for that."""
NAMED_MAX = 50
"""Keys that one warning names. Of further ones it gives the number."""
_SCOPES = {
    TOPIC_RESOURCE: ("topic", TOPIC_CONFIGS),
    BROKER_RESOURCE: ("broker", BROKER_CONFIGS),
    GROUP_RESOURCE: ("group", GROUP_CONFIGS),
}


class ConfigWarnings:
    """Checks configuration as it arrives, and warns once about each key that has no effect."""

    def __init__(self, cluster: ClusterView, runtime: Runtime, events: EventLog) -> None:
        self._cluster = cluster
        self._runtime = runtime
        self._events = events
        self._timer: Timer | None = None
        self._has_looked = False
        self._told: set[tuple[int, str, str]] = set()

    def start(self) -> None:
        """Check all configuration of the cluster soon."""
        self._timer = self._runtime.call_later(FIRST_LOOK_MS, self._look_at_all)

    def stop(self) -> None:
        """Stop checking. May be called twice, and without start."""
        if self._timer is not None:
            self._timer.cancel()
        self._has_looked = False

    def changed(self, resources: Iterable[tuple[int, str]]) -> None:
        """Check these resources, (type, name), whose values have changed. Does nothing before the first look."""
        if self._has_looked:
            self._look(resources)

    def _look_at_all(self) -> None:
        self._has_looked = True
        image = self._cluster.image
        self._look((kind, name) for kind in _SCOPES for name in image.configured(kind))

    def _look(self, resources: Iterable[tuple[int, str]]) -> None:
        lines = [line for kind, name in resources if kind in _SCOPES for line in self._new(kind, name)]
        if lines:
            more = {"more": len(lines) - NAMED_MAX} if len(lines) > NAMED_MAX else {}
            self._events.warning(
                "configuration in the cluster's metadata has no effect here",
                keys="; ".join(lines[:NAMED_MAX]),
                **more,
            )

    def _new(self, kind: int, name: str) -> Iterator[str]:
        # Imported here because it is large, and most clusters configure nothing.
        from blumfeld.config.effects import why_ineffective

        scope, definitions = _SCOPES[kind]
        for key, value in self._cluster.image.config(kind, name).items():
            if (kind, name, key) in self._told:
                continue
            reason = why_ineffective(definitions, key, value, self._cluster.config.abilities)
            if reason is not None:
                self._told.add((kind, name, key))
                yield f"{scope} {name or 'default'}: {key} ({reason})"

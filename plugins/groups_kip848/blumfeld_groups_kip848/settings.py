"""Settings of consumer groups under Kafka's keys. Each is resolved at every use, because some change while
the broker runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.spi.cluster import BROKER_RESOURCE, GROUP_RESOURCE, ClusterImage


class GroupSettings:
    """Settings of groups. A group's own value (resource type GROUP) wins over the broker's dynamic value,
    which wins over its static one.

    A group's value outside the broker's bounds (``group.consumer.min.…``, ``group.consumer.max.…``) counts as
    the nearest bound, as in Kafka: a bound may be newer than the value.
    """

    def __init__(self, config: Any, image: Callable[[], ClusterImage]) -> None:
        """``config`` is the broker's ``BrokerConfig``; ``image()`` returns the current cluster image."""
        self._config = config
        self._image = image
        self._known: dict[tuple[str, str], int] = {}
        self._known_epoch = -1
        """Epoch of the image that ``_known`` was read from. An image without an epoch is read every time."""
        self._node = str(config.get("node.id"))
        self.size_max: int = config.int("group.consumer.max.size")
        """Maximum number of members of a group."""
        self.classic_size_max: int = config.int("group.max.size")
        """Maximum number of members of a classic group; limits downgrades."""
        self.classic_session_timeout_ms_min: int = config.int("group.min.session.timeout.ms")
        self.classic_session_timeout_ms_max: int = config.int("group.max.session.timeout.ms")
        """Longest session timeout that a classic member may ask for."""
        self.migration_policy: str = config.str("group.consumer.migration.policy").lower()
        """``disabled``, ``upgrade``, ``downgrade`` or ``bidirectional``."""
        self.assignors: tuple[str, ...] = tuple(config.list("group.consumer.assignors"))
        """Names of the server-side assignors that this broker offers; the first is the default."""
        self.regex_refresh_interval_ms: int = config.int("group.consumer.regex.refresh.interval.ms")
        self._bounds: dict[str, tuple[int, int]] = {
            name: (config.int(f"group.consumer.min.{name}"), config.int(f"group.consumer.max.{name}"))
            for name in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
        }
        self._defaults: dict[str, int] = {name: config.int(f"group.consumer.{name}") for name in self._bounds}

    def session_timeout_ms(self, group_id: str) -> int:
        """Time that a member may be silent before it is fenced."""
        return self._of_group(group_id, "session.timeout.ms")

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """Interval at which members are told to send heartbeats."""
        return self._of_group(group_id, "heartbeat.interval.ms")

    def assignment_interval_ms(self, group_id: str) -> int:
        """Minimum time between two assignments of a group; 0 allows the next one at once."""
        return self._of_group(group_id, "assignment.interval.ms")

    def _of_group(self, group_id: str, name: str) -> int:
        image = self._image()
        epoch = image.features_epoch
        if epoch != self._known_epoch or epoch < 0:
            self._known_epoch = epoch
            self._known.clear()
        known = self._known.get((group_id, name))
        if known is None:
            known = self._known[group_id, name] = self._resolved(image, group_id, name)
        return known

    def _resolved(self, image: ClusterImage, group_id: str, name: str) -> int:
        own = image.config(GROUP_RESOURCE, group_id).get(f"consumer.{name}")
        if own is not None:
            low, high = self._bounds[name]
            return min(max(int(own), low), high)
        key = f"group.consumer.{name}"
        for node in (self._node, ""):
            dynamic = image.config(BROKER_RESOURCE, node).get(key)
            if dynamic is not None:
                return int(dynamic)
        return self._defaults[name]

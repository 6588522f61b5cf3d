"""The plug-in: its options, and the hook that makes a node's storage."""

from __future__ import annotations

import resource
from collections.abc import Sequence
from typing import Annotated

import msgspec

from blumfeld.config.values import TopicConfig
from blumfeld.spi.hooks import Composition, Metric, hookimpl
from blumfeld.spi.storage import LogStorage
from blumfeld_storage_local.durability import FLUSH_INTERVAL_MS, Durability, FlushMode
from blumfeld_storage_local.storage import LocalStorage

LOG_DESCRIPTORS_MAX = 1 << 16


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[storage.options]``, for which Kafka has no key."""

    flush: FlushMode = "never"
    """Syncs of written records to the device, beyond what ``flush.messages`` and ``flush.ms`` of a topic ask
    for. ``never``: when the operating system wants; ``interval``: every ``flush_interval_ms``; ``every``: before they
    are acknowledged or seen by anyone, many requests with one sync."""
    flush_interval_ms: Annotated[int, msgspec.Meta(ge=1, le=3_600_000)] | None = None
    """Interval of ``flush = "interval"``, 1000 if not given. With any other mode it is refused."""

    def __post_init__(self) -> None:
        """Refuse an interval that would have no effect."""
        if self.flush_interval_ms is not None and self.flush != "interval":
            raise ValueError(
                f'flush_interval_ms goes with flush = "interval" only, and flush is "{self.flush}"'
            )


class Plugin:
    """Log storage in directories laid out as Kafka's."""

    options_class = Options
    roles = ("storage",)

    def __init__(self) -> None:
        self._made: LocalStorage | None = None

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """The duration of syncs."""
        return () if self._made is None else self._made.metrics()

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
        """Make the storage in the node's log directories."""
        options = composition.options
        assert isinstance(options, Options)
        topic = TopicConfig(broker=composition.config)
        self._made = LocalStorage(
            composition.runtime,
            composition.data_dirs,
            composition.log("storage_local"),
            delete_delay_ms=composition.config.int("log.segment.delete.delay.ms"),
            move_bytes_per_second_max=composition.config.int(
                "replica.alter.log.dirs.io.max.bytes.per.second"
            ),
            durability=Durability(
                options.flush,
                options.flush_interval_ms or FLUSH_INTERVAL_MS,
                topic.flush_messages,
                topic.flush_ms,
            ),
            open_files_max=open_files_max(),
        )
        return self._made


def open_files_max() -> int:
    """Return half of the descriptors that this process may have. Connections and small files need the other half."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return LOG_DESCRIPTORS_MAX if soft == resource.RLIM_INFINITY else min(soft // 2, LOG_DESCRIPTORS_MAX)

"""The plug-in: makes the storage of a node."""

from __future__ import annotations

from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld.spi.storage import LogStorage
from blumfeld_storage_local.storage import LocalStorage


class Plugin:
    """Log storage in directories laid out as Kafka's."""

    options_class = NoOptions
    roles = ("storage",)

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
        """In the node's log directories."""
        return LocalStorage(
            composition.runtime,
            composition.data_dirs,
            composition.log("storage_local"),
            delete_delay_ms=composition.config.int("log.segment.delete.delay.ms"),
        )

"""The plug-in: its options, and the hooks that make a storage around the node's local one and set it to work."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from blumfeld.spi.cluster import TopicImage
from blumfeld.spi.hooks import Composition, CompositionRefused, Metric, hookimpl
from blumfeld.spi.storage import LogStorage
from blumfeld_storage_tiered.metadata_topic.remote_log_metadata import RemoteLogMetadata
from blumfeld_storage_tiered.options import Options
from blumfeld_storage_tiered.storage import TieredStorage
from blumfeld_storage_tiered.stores.opening import AT, check_apart, open_store
from blumfeld_storage_tiered.stores.urls import StoreRefusedError, parse_url, shown_url
from blumfeld_storage_tiered.tasks.gauges import gauges
from blumfeld_storage_tiered.tasks.tiering import Tiering

METADATA_FOLDER = "remote-log-metadata"
"""Folder in the data directory with snapshots of the catalogs."""


class Plugin:
    """Tiered storage."""

    options_class = Options
    roles = ("storage",)
    tiers = True

    def __init__(self) -> None:
        self._made: Tiering | None = None

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
        """Wrap the node's local storage. The store is opened, and no request made."""
        options = composition.options
        assert isinstance(options, Options)
        try:
            check_apart(options.store, composition.data_dirs)
            store = open_store(
                options.store, composition.runtime, options.of_store(), composition.object_stores
            )
        except StoreRefusedError as error:
            raise CompositionRefused(error.path, error.found, error.allowed) from None
        directory = f"{composition.data_dir}/{METADATA_FOLDER}"
        metadata = RemoteLogMetadata(composition, options.metadata_topic, directory)
        shown = shown_url(options.store)
        lasts = parse_url(options.store, AT).scheme != "memory"
        self._made = Tiering(
            composition,
            store,
            metadata,
            options.cache_bytes,
            shown,
            options.sweep,
            verify=options.verify,
            lasts=lasts,
        )
        return TieredStorage(composition.local_storage, self._made)

    @hookimpl
    def blumfeld_cli_commands(self) -> Sequence[Any]:
        """The command ``tiered`` with its verbs."""
        from blumfeld_storage_tiered.commands import app

        return [app]

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """Copies, reads and deletions by topic, the cache, and the requests to the store."""
        return () if self._made is None else gauges(self._made)

    @hookimpl
    def blumfeld_node_started(self, composition: Composition) -> None:
        """Read the metadata topic, and work for the partitions that this node leads."""
        if self._made is not None and "broker" in composition.roles:
            composition.runtime.spawn(self._made.begin(composition), "tiering")

    @hookimpl
    def blumfeld_node_stopping(self, composition: Composition) -> None:
        """Work no more."""
        if self._made is not None:
            self._made.halt()

    @hookimpl
    def blumfeld_topic_deleted(self, topic: TopicImage) -> None:
        """The last leaders of a topic delete what the store has of it."""
        if self._made is not None:
            self._made.topic_deleted(topic)

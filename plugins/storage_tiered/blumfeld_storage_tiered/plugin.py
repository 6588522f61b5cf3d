"""The plug-in: its options, and the hook that makes a storage around the node's local one."""

from __future__ import annotations

import msgspec

from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.storage import LogStorage
from blumfeld_storage_tiered.storage import TieredStorage
from blumfeld_storage_tiered.stores.options import (
    AzureOptions,
    GcsOptions,
    RequestOptions,
    S3Options,
    StoreOptions,
)


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[storage.options]``, for which Kafka has no key."""

    store: str
    """URL of the object store: ``file:///…``, ``s3://bucket/prefix``, ``gs://…``, ``az://…``."""
    local: str = "storage_local"
    """The storage that is wrapped."""
    requests: RequestOptions = RequestOptions()
    s3: S3Options = S3Options()
    gs: GcsOptions = GcsOptions()
    az: AzureOptions = AzureOptions()

    @property
    def store_options(self) -> StoreOptions:
        """What is said of the store beside its URL."""
        return StoreOptions(requests=self.requests, s3=self.s3, gs=self.gs, az=self.az)


class Plugin:
    """Tiered storage."""

    options_class = Options
    roles = ("storage",)
    tiers = True

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
        """Wrap the node's local storage."""
        return TieredStorage(composition.local_storage)

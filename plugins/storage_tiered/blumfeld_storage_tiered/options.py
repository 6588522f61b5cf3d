"""``[storage.options]`` of the manifest."""

from __future__ import annotations

from typing import Annotated

import msgspec

from blumfeld_storage_tiered.catalog.sweep_settings import SweepSettings
from blumfeld_storage_tiered.metadata_topic.topic import MetadataTopicSettings
from blumfeld_storage_tiered.objects.upload import Verify
from blumfeld_storage_tiered.stores.options import (
    AzureOptions,
    FileOptions,
    GcsOptions,
    RequestOptions,
    S3Options,
    StoreOptions,
)

Price = Annotated[float, msgspec.Meta(ge=0)]


class PriceList(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[storage.options.prices]``: what the store costs, for ``blumfeld tiered status``. Nothing else reads it. A
    GB has 10⁹ bytes, as on a bill."""

    currency: str = "USD"
    gb_month: Price = 0.0
    """One GB, stored for a month."""
    put_1000: Price = 0.0
    """A thousand requests that write or list."""
    get_1000: Price = 0.0
    """A thousand requests that read."""
    gb_out: Price = 0.0
    """One GB that leaves the store."""


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """``[storage.options]``, for which Kafka has no key."""

    store: str
    """URL of the object store: ``file:///…``, ``s3://bucket/prefix``, ``gs://…``, ``az://…``."""
    local: str = "storage_local"
    """The storage that is wrapped."""
    cache_bytes: Annotated[int, msgspec.Meta(ge=16 << 20)] = 1 << 30
    """Bound of the cache of remote chunks in the data directory."""
    verify: Verify = "size"
    """How an upload is checked before its local segment may go: by the sizes of its objects, or by reading them back.
    """
    metadata_topic: MetadataTopicSettings = MetadataTopicSettings()
    sweep: SweepSettings = SweepSettings()
    requests: RequestOptions = RequestOptions()
    file: FileOptions = FileOptions()
    s3: S3Options = S3Options()
    gs: GcsOptions = GcsOptions()
    az: AzureOptions = AzureOptions()
    prices: PriceList = PriceList()

    def of_store(self) -> StoreOptions:
        """Return the tables that say something of the store."""
        return StoreOptions(requests=self.requests, file=self.file, s3=self.s3, gs=self.gs, az=self.az)

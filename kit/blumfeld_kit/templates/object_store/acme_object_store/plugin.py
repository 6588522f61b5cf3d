"""The class that the entry point names."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld.spi.object_store import ObjectStore, StoreFactory, StoreMisconfiguredError
from blumfeld.spi.runtime import Runtime

from .store import AcmeObjectStore

SCHEME = "acme-object-store"


class Plugin:
    """``acme_object_store`` of a manifest. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("stores",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_object_stores(self, composition: Composition) -> Mapping[str, StoreFactory]:
        """Return the scheme of a URL, and what makes the store of such a URL."""

        def make(url: str, runtime: Runtime) -> ObjectStore:
            bucket = url.removeprefix(f"{SCHEME}://")
            if not bucket:
                raise StoreMisconfiguredError(f'"{url}": allowed: {SCHEME}://BUCKET')
            return AcmeObjectStore(runtime, bucket)

        return {SCHEME: make}

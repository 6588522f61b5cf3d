"""The plug-in: the scheme that it serves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

import msgspec

from acme_store_folder.folder import FolderStore
from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.object_store import ObjectStore, StoreFactory, StoreMisconfiguredError
from blumfeld.spi.runtime import Runtime

SCHEME = "folder"


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[plugins.options.store_folder]``."""

    part_file: Annotated[str, msgspec.Meta(pattern=r"^\.[a-z]+$")] = ".part"


class Plugin:
    """Named ``store_folder`` in a manifest."""

    options_class = Options
    roles = ("stores",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_object_stores(self, composition: Composition) -> Mapping[str, StoreFactory]:
        """Stores of ``folder:///PATH``."""
        options: Options = composition.options

        def make(url: str, runtime: Runtime) -> ObjectStore:
            path = url.removeprefix(f"{SCHEME}://").rstrip("/")
            if not path.startswith("/"):
                raise StoreMisconfiguredError(f'"{url}": allowed: {SCHEME}:///ABSOLUTE/PATH')
            return FolderStore(runtime, path, options.part_file)

        return {SCHEME: make}

"""The class that the entry point names."""

from __future__ import annotations

import msgspec
from blumfeld.spi.hooks import Composition, CompositionRefused, NoOptions, hookimpl
from blumfeld.spi.storage import LogStorage

from .storage import AcmeStorage


class Plugin:
    """``acme_storage`` of a manifest. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("storage",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
        """Return the storage of a node."""
        if len(composition.data_dirs) > 1:
            found = f"{len(composition.data_dirs)} directories"
            raise CompositionRefused("node.data_dirs", found, "one directory")
        return AcmeStorage(composition.runtime, composition.data_dir)

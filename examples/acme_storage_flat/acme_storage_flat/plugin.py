"""What the entry point names: the plug-in, and which compositions it refuses."""

from __future__ import annotations

import msgspec

from acme_storage_flat.storage import FlatStorage
from blumfeld.spi.hooks import Composition, CompositionRefused, hookimpl
from blumfeld.spi.storage import LogStorage


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[storage.options]``: none yet."""


class Plugin:
    """Named ``storage_flat`` in a manifest."""

    options_class = Options
    roles = ("storage",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_make_storage(self, composition: Composition) -> LogStorage:
        """One storage in the node's one directory."""
        count = len(composition.data_dirs)
        if count > 1:
            raise CompositionRefused("node.data_dirs", f"{count} directories", "one: its logs never move")
        return FlatStorage(composition.runtime, composition.data_dir)

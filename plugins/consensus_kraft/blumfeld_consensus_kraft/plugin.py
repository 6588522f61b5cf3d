"""The plug-in: the hook that makes the node's consensus."""

from __future__ import annotations

import msgspec

from blumfeld.spi.hooks import Composition, NoOptions, hookimpl
from blumfeld_consensus_kraft.kraft_metadata import KraftMetadata


class Plugin:
    """``consensus_kraft``. Making it opens nothing. Kafka's own keys say all that there is to say, so no options."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("consensus",)

    @hookimpl
    def blumfeld_make_consensus(self, composition: Composition) -> KraftMetadata:
        """The node's voter, which is the quorum."""
        return KraftMetadata(composition)

"""The plug-in: its options, and the hooks that bring the gate, sections, commands and handlers."""

from __future__ import annotations

from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.security import Security
from blumfeld_security.node_security import NodeSecurity
from blumfeld_security.options import Options


class Plugin:
    """Security of a node."""

    options_class = Options
    roles = ("security",)
    secures = True

    @hookimpl
    def blumfeld_make_security(self, composition: Composition) -> Security:
        """Make the node's security. It opens nothing."""
        return NodeSecurity(composition)

"""The plug-in: its options, and the hooks that bring the gate, sections, commands and handlers."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.spi.hooks import Composition, Metric, hookimpl
from blumfeld.spi.security import Security
from blumfeld_security.node_security import NodeSecurity
from blumfeld_security.options import Options


class Plugin:
    """Security of a node."""

    options_class = Options
    roles = ("security",)
    secures = True
    _made: NodeSecurity | None = None

    @hookimpl
    def blumfeld_make_security(self, composition: Composition) -> Security:
        """Make the node's security. It opens nothing."""
        self._made = NodeSecurity(composition)
        return self._made

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """Returns the counters of TLS."""
        return () if self._made is None else self._made.tls.metrics()

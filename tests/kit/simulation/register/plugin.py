"""The plug-in: named under ``[plugins] observers``, as one of a third party would be."""

from __future__ import annotations

import msgspec

from blumfeld.spi.hooks import Composition, hookimpl
from blumfeld.spi.observing import Observer
from tests.kit.simulation.register.node import RegisterNode


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[plugins.options.register]``."""

    nodes: tuple[str, ...]
    bug: str = ""


class Plugin:
    """The register beside a broker."""

    options_class: type[msgspec.Struct] = Options
    roles: tuple[str, ...] = ("observers",)

    @hookimpl
    def blumfeld_make_observer(self, composition: Composition) -> Observer:
        """One node of the register in each broker."""
        options = composition.options
        assert isinstance(options, Options)
        return RegisterNode(composition, options.nodes, options.bug)

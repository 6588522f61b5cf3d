"""Which decoders there are: those of this plug-in, and those that other plug-ins bring."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from blumfeld_sink_spark.errors import SettingsError

if TYPE_CHECKING:
    from blumfeld.spi.decoders import Decoder
    from blumfeld_sink_spark.settings import ArchiveSettings

_OWN = {
    "binance-spot": ("binance", "BinanceSpot"),
    "binance-usdm": ("binance", "BinanceUsdm"),
    "bitstamp": ("bitstamp", "Bitstamp"),
    "coinbase": ("coinbase", "Coinbase"),
    "confluent": ("confluent", "ConfluentDecoder"),
    "dbn": ("dbn", "DbnDecoder"),
    "hyperliquid": ("hyperliquid", "Hyperliquid"),
    "kraken": ("kraken", "Kraken"),
    "okx": ("okx", "Okx"),
    "raw": ("raw", "RawDecoder"),
}
"""Name → (module beside this one, class): a module is imported when its decoder is asked for."""


def names(plugins: Sequence[str] = ()) -> tuple[str, ...]:
    """Names of all decoders that can be found, sorted.

    :raises SettingsError: a plug-in that isn't installed or brings no decoders
    """
    brought = {decoder.name for plugin in plugins for decoder in _brought(plugin)}
    return tuple(sorted({*_OWN, *brought}))


def find(name: str, plugins: Sequence[str] = (), settings: ArchiveSettings | None = None) -> Decoder:
    """The decoder of this name. Plug-ins come first, in their order, so that they may replace one of ours.

    A class of ours that has ``of(settings, arguments)`` is made by it; ``arguments`` are what is behind the colon
    in ``NAME:ARGUMENTS``.

    :raises SettingsError: there is none; says which there are
    """
    for plugin in plugins:
        for decoder in _brought(plugin):
            if decoder.name == name:
                return decoder
    own, colon, arguments = name.partition(":")
    if own not in _OWN:
        raise SettingsError(
            f"archive.decoders: no decoder is called {name!r}; allowed: {', '.join(names(plugins))}"
        )
    module, attribute = _OWN[own]
    made_by: Any = getattr(import_module(f"{__package__}.{module}"), attribute)
    if hasattr(made_by, "of"):
        made: Decoder = made_by.of(settings, arguments)
        return made
    if colon:
        raise SettingsError(f"archive.decoders: {name!r}; {own} takes no arguments; allowed: {own}")
    plain: Decoder = made_by()
    return plain


def _brought(plugin: str) -> Sequence[Decoder]:
    """What a plug-in's ``blumfeld_decoders`` gives.

    :raises SettingsError: no such plug-in, or it has no such hook
    """
    found = entry_points(group="blumfeld.plugins", name=plugin)
    if not found:
        known = sorted(entry.name for entry in entry_points(group="blumfeld.plugins"))
        raise SettingsError(
            f"archive.decoder_plugins: {plugin!r} isn't installed; installed: {', '.join(known)}"
        )
    made = next(iter(found)).load()()
    if not hasattr(made, "blumfeld_decoders"):
        raise SettingsError(
            f"archive.decoder_plugins: {plugin!r} brings no decoders (no blumfeld_decoders); "
            "allowed: a plug-in of the role decoders"
        )
    decoders: Sequence[Decoder] = made.blumfeld_decoders()
    return decoders

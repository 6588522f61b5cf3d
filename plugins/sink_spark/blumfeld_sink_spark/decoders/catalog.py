"""The decoders of this plug-in and of the decoder plug-ins that the settings name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any

from blumfeld_sink_spark.errors import SettingsError

if TYPE_CHECKING:
    from blumfeld.spi.decoders import Decoder
    from blumfeld_sink_spark.settings import ArchiveSettings

_OWN = {
    "binance-spot": ("venues.binance", "BinanceSpot"),
    "binance-usdm": ("venues.binance", "BinanceUsdm"),
    "bitstamp": ("venues.bitstamp", "Bitstamp"),
    "coinbase": ("venues.coinbase", "Coinbase"),
    "confluent": ("schemas.confluent", "ConfluentDecoder"),
    "dbn": ("dbn.decoder", "DbnDecoder"),
    "hyperliquid": ("venues.hyperliquid", "Hyperliquid"),
    "kraken": ("venues.kraken", "Kraken"),
    "okx": ("venues.okx", "Okx"),
    "raw": ("raw", "RawDecoder"),
}
"""Name → (module below this package, class). A module is imported when its decoder is asked for."""


def names(plugins: Sequence[str] = ()) -> tuple[str, ...]:
    """Returns the names of all decoders that can be found, sorted.

    :raises SettingsError: a plug-in that isn't installed or brings no decoders
    """
    brought = {decoder.name for decoder in _brought(plugins)}
    return tuple(sorted({*_OWN, *brought}))


def find(name: str, plugins: Sequence[str] = (), settings: ArchiveSettings | None = None) -> Decoder:
    """Returns the decoder of this name. Plug-ins come first, in their order, so that one may replace ours.

    A class of ours that has ``of(settings, arguments)`` is made by that method. ``arguments`` is the text behind the
    colon in ``NAME:ARGUMENTS``.

    :raises SettingsError: no decoder has the name; the text lists those that exist
    """
    for decoder in _brought(plugins):
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


def _brought(plugins: Sequence[str]) -> Iterator[Decoder]:
    """The decoders of these plug-ins, found and called as the kernel finds and calls every plug-in.

    :raises SettingsError: a plug-in isn't installed, doesn't fill the role ``decoders``, or breaks the contract of
        plug-ins
    """
    if not plugins:
        return
    # Spark's workers come here too: without decoder plug-ins they need neither pluggy nor the hooks' contracts.
    from blumfeld.plugging.errors import ManifestError
    from blumfeld.plugging.plugins import PlannedPlugin, PluginSet
    from blumfeld.plugging.registry import Registry
    from blumfeld.spi.hooks import NoOptions
    from blumfeld.wire.errors import PluginContractError

    registry, planned = Registry(), []
    try:
        for nth, name in enumerate(plugins):
            path = f"archive.decoder_plugins[{nth}]"
            plugin_class = registry.load(name, "decoders", "settings", path)
            planned.append(
                PlannedPlugin(
                    role="decoders", name=name, path=path, plugin_class=plugin_class, options=NoOptions()
                )
            )
        for _, decoders in PluginSet(planned).each("blumfeld_decoders"):
            yield from decoders
    except (ManifestError, PluginContractError) as error:
        raise SettingsError(str(error)) from error

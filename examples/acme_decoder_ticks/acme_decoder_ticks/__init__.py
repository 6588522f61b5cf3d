"""A decoder for Blumfeld's market-data archive: trades as lines of text."""

from acme_decoder_ticks.decoder import TicksDecoder
from acme_decoder_ticks.plugin import Plugin

__all__ = ["Plugin", "TicksDecoder"]

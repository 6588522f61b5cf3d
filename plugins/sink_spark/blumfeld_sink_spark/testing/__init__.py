"""For authors of decoders: the contract that every decoder holds, as tests, and messages to try a decoder on.

Needs pytest and hypothesis: ``pip install 'blumfeld-archive[kit]'``. Importing this package costs nothing: a name is
imported when it is first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from blumfeld_sink_spark.testing.decoder_contract import DecoderContract

__all__ = ["DecoderContract"]


def __getattr__(name: str) -> Any:
    if name != "DecoderContract":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from blumfeld_sink_spark.testing.decoder_contract import DecoderContract

    return DecoderContract

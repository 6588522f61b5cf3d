"""Checks of a feed: ids that are missing, doubled or late, crossed books, clocks that differ.

Each task summarises its range alone (``Summariser``). The driver joins the ranges with the state of the batch before
(``stitch``). Nothing here reads a clock.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from blumfeld_sink_spark.quality.stitch import carried_over, stitch
from blumfeld_sink_spark.quality.summary import Summariser

if TYPE_CHECKING:
    from blumfeld.spi.decoders import Continuity, Decoder

__all__ = ["Summariser", "carried_over", "continuity_of", "stitch"]


def continuity_of(decoders: Sequence[Decoder]) -> Mapping[str, Continuity]:
    """The rules of all their streams, for ``Summariser``; where two name one stream, the first's."""
    rules: dict[str, Continuity] = {}
    for decoder in decoders:
        for stream, rule in decoder.continuity.items():
            rules.setdefault(stream, rule)
    return rules

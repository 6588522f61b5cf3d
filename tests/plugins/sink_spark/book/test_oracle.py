"""The book that is rebuilt from real captures is the book that the exchange says it has."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld_sink_spark.apply import Applied
from blumfeld_sink_spark.book.best import Best, Tops
from blumfeld_sink_spark.book.ladder import Ladder
from blumfeld_sink_spark.book.sync import Sync
from tests.plugins.sink_spark.decoding import all_of, decoded
from tests.shared_facts import shared_path

pytestmark = pytest.mark.archive

USDM = ["usdm/btcusdt_20240808.gz"]
SPOT = ["spot/btcusdt_20240808.gz", "spot/btcusdt_20240809.gz"]


def captures(names: list[str]) -> list[Path]:
    return [shared_path(f"market-data/hftbacktest/{name}") for name in names]


def tops(applied: list[Applied]) -> tuple[Sync, list[Best]]:
    sync, top = Sync(), Tops()
    bests = [
        best
        for part in applied
        if "book_deltas" in part.tables
        for best in top.take(sync.feed(part.tables["book_deltas"]))
    ]
    return sync, bests


@pytest.mark.parametrize(
    ("decoder", "names", "equal"), [("binance-usdm", USDM, 629), ("binance-spot", SPOT, 1072)]
)
def test_best_bid_and_ask_are_the_exchanges(decoder: str, names: list[str], equal: int) -> None:
    """Price and size, wherever a book's and a bookTicker's update have the same id: all of them, to the last digit.
    The book kept in columns ends at the same top as the one kept message by message.
    """
    applied = decoded(captures(names), decoder)
    sync, bests = tops(applied)
    quotes = {row["update_id"]: row for row in all_of("bbo", applied).to_pylist()}
    both = [(best, quotes[best.last_id]) for best in bests if best.last_id in quotes]
    wrong = [
        (best, quote)
        for best, quote in both
        if (best.bid, best.bid_size, best.ask, best.ask_size)
        != (quote["bid"], quote["bid_size"], quote["ask"], quote["ask_size"])
    ]
    assert (len(both), wrong[:3], sync.breaks) == (equal, [], 0)
    ladder = Ladder()
    ladder.take(Sync().feed(all_of("book_deltas", applied)))
    bid, ask = ladder.side(1, 1).to_pylist()[0], ladder.side(-1, 1).to_pylist()[0]
    assert (bid["price"], bid["size"], ask["price"], ask["size"]) == (
        bests[-1].bid,
        bests[-1].bid_size,
        bests[-1].ask,
        bests[-1].ask_size,
    )

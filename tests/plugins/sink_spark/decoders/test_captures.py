"""Golden counts on real captures, and the rules that the ids of each venue follow in them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from blumfeld.spi.decoders import Continuity
from blumfeld_sink_spark.decoders import catalog
from tests.plugins.sink_spark.decoding import messages_of, rows_of

pytestmark = pytest.mark.archive


def decode(name: str, messages: list[bytes], size: int = 5_000) -> tuple[Any, dict[str, Any], Any]:
    """The decoder, its tables and its sequences over batches of ``size``; nothing may be rejected."""
    decoder = catalog.find(name)
    done = [decoder.decode(rows_of(messages[at : at + size])) for at in range(0, len(messages), size)]
    assert not [rejected for decoded in done for rejected in decoded.rejected]
    parts: dict[str, list[Any]] = {}
    for decoded in done:
        for table, rows in decoded.tables.items():
            assert (np.diff(rows.column("row").to_numpy()) >= 0).all()
            parts.setdefault(table, []).append(rows)
    tables = {table: pa.concat_tables(rows, promote_options="default") for table, rows in parts.items()}
    numbered = [decoded.sequences for decoded in done if decoded.sequences is not None]
    return decoder, tables, pa.concat_tables(numbered) if numbered else None


def breaks(decoder: Any, sequences: Any) -> Counter[str]:
    """Returns for each stream how often its rule is broken."""
    breaks_by_stream: Counter[str] = Counter()
    places = sequences.group_by(["symbol", "stream"]).aggregate([]).to_pylist()
    for place in places:
        mine = sequences.filter(
            pc.and_(
                pc.equal(sequences["symbol"], place["symbol"]), pc.equal(sequences["stream"], place["stream"])
            )
        )
        first, last, prev = (
            mine[name].fill_null(-9).to_numpy() for name in ("first_id", "last_id", "prev_id")
        )
        holds = {
            Continuity.CONSECUTIVE: first[1:] == last[:-1] + 1,
            Continuity.CHAINED: prev[1:] == last[:-1],
            Continuity.MONOTONE: last[1:] > last[:-1],
        }[decoder.continuity[place["stream"]]]
        breaks_by_stream[place["stream"]] += int((~holds).sum())
    return breaks_by_stream


def snapshots(tables: dict[str, Any]) -> tuple[int, int]:
    flags = tables["book_deltas"].column("is_snapshot").to_numpy()
    return int((~flags).sum()), int(flags.sum())


@pytest.mark.parametrize(
    ("name", "venue", "trades", "quotes", "levels", "snapshot"),
    [
        ("usdm/btcusdt_20240808", "binance-usdm", 21_313, 66_089, 443_521, 2_000),
        ("spot/btcusdt_20240808", "binance-spot", 9_757, 28_040, 124_090, 2_000),
        ("spot/btcusdt_20240809", "binance-spot", 10_147, 45_134, 174_021, 0),
    ],
)
def test_binance_gives_the_golden_counts_and_no_break_in_any_stream(
    name: str, venue: str, trades: int, quotes: int, levels: int, snapshot: int
) -> None:
    decoder, tables, sequences = decode(venue, messages_of(f"hftbacktest/{name}.gz"))
    assert (tables["trades"].num_rows, tables["bbo"].num_rows) == (trades, quotes)
    assert snapshots(tables) == (levels, snapshot)
    assert breaks(decoder, sequences) == {"trade": 0, "depth": 0, "bookTicker": 0}


@pytest.mark.parametrize(
    ("name", "venue", "counts"),
    [
        ("COINBASE.ws.28.0", "coinbase", {"trades": 107, "book_deltas": (9_719, 8_362), "bbo": 107}),
        ("KRAKEN.ws.50.0", "kraken", {"book_deltas": (4_272, 7_473)}),
        ("OKX.ws.1.0", "okx", {"trades": 74, "book_deltas": (7_088, 1_176), "bbo": 28}),
        ("BITSTAMP.ws.1.0", "bitstamp", {"trades": 10, "book_deltas": (1_950, 0)}),
        ("BITSTAMP.http.0.0", "bitstamp", {"book_deltas": (0, 9_484)}),
        ("BINANCE_FUTURES.ws.1.0", "binance-usdm", {"agg_trades": 91, "book_deltas": (6_297, 0), "bbo": 613}),
        ("BINANCE_FUTURES.http.0.0", "binance-usdm", {"book_deltas": (0, 5_613)}),
    ],
)
def test_captures_of_other_venues_give_their_counts_and_no_break(
    name: str, venue: str, counts: dict[str, Any]
) -> None:
    decoder, tables, sequences = decode(venue, messages_of(f"cryptofeed/{name}"))
    row_counts: dict[str, Any] = {table: rows.num_rows for table, rows in tables.items()}
    if "book_deltas" in row_counts:
        row_counts["book_deltas"] = snapshots(tables)
    assert row_counts == counts
    assert sequences is None or not breaks(decoder, sequences).total()


def test_hyperliquid_gives_trades_and_whole_books() -> None:
    _, tables, sequences = decode("hyperliquid", messages_of("hftbacktest/hyperliquid/btcusd_20250126.gz"))
    assert (tables["trades"].num_rows, snapshots(tables), sequences) == (64, (0, 1_840), None)

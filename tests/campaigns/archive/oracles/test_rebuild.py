"""The plain book of the oracle."""

from __future__ import annotations

from decimal import Decimal

import pytest

from blumfeld.feeds.binance import MadeFeed, Message
from campaigns.archive.common.capture import read_capture
from campaigns.archive.oracles.rebuild import KNOWN, Best, Level, Update, compare
from tests.shared_facts import shared_path

pytestmark = pytest.mark.archive


def _levels(data: dict[str, list[list[str]]], bids: str, asks: str) -> tuple[Level, ...]:
    return tuple(
        (side, Decimal(price), Decimal(size))
        for side, name in ((1, bids), (-1, asks))
        for price, size in data[name]
    )


def _read(messages: list[Message]) -> tuple[list[Update], dict[int, Best]]:
    """Updates and quotes come from the JSON itself; no archive has a part in it."""
    updates, quotes = [], {}
    for message in messages:
        data = message.parsed()
        data = data.get("data", data)
        if "lastUpdateId" in data:
            updates.append(Update(data["lastUpdateId"], True, _levels(data, "bids", "asks")))
        elif data.get("e") == "depthUpdate":
            updates.append(Update(data["u"], False, _levels(data, "b", "a")))
        elif "B" in data:
            bid, bid_size, ask, ask_size = (Decimal(data[key]) for key in "bBaA")
            quotes[data["u"]] = (bid, bid_size, ask, ask_size)
    return updates, quotes


def test_a_made_feeds_quotes_are_its_books_best() -> None:
    compared, wrong = compare(*_read(MadeFeed(6).messages(2_000)))
    assert wrong == []
    assert compared > 400


def test_a_diff_that_is_missing_shows_in_the_quotes() -> None:
    updates, quotes = _read(MadeFeed(6).messages(2_000))
    del updates[100:110]
    assert compare(updates, quotes)[1]


def test_diffs_before_the_snapshot_wait_for_it_and_older_ones_are_left_out() -> None:
    bid, ask = (1, Decimal(5), Decimal(1)), (-1, Decimal(6), Decimal(1))
    old, new = (1, Decimal(5), Decimal(9)), (1, Decimal(5), Decimal(2))
    updates = [Update(1, False, (old,)), Update(3, False, (new,)), Update(2, True, (bid, ask))]
    quote = (Decimal(5), Decimal(2), Decimal(6), Decimal(1))
    assert compare(updates, {3: quote, 1: quote}) == (1, [])
    assert compare(updates, {3: (*quote[:3], Decimal(2))})[1] == ["at 3: 5 2 6 1, the exchange 5 2 6 2"]


def test_the_real_capture_can_be_compared_as_often_as_is_known() -> None:
    path = shared_path("market-data/hftbacktest/usdm/btcusdt_20240808.gz")
    assert compare(*_read(read_capture(path))) == (KNOWN[path.name, "binance-usdm"], [])

"""The demo's feeds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from blumfeld.cli.demo.feed import FeedError, captured_feed, synthetic_feed


def test_the_same_seed_gives_the_same_bytes() -> None:
    assert list(synthetic_feed(200, 7)) == list(synthetic_feed(200, 7))
    assert list(synthetic_feed(200, 7)) != list(synthetic_feed(200, 8))


def test_synthetic_messages_are_of_four_symbols_in_the_order_of_their_receipt() -> None:
    """The key is the symbol, also of a depth snapshot, which names none; the sender's time may be later than the
    engine's.
    """
    feed = list(synthetic_feed(2_000, 1))
    assert [m.received_ns for m in feed] == sorted(m.received_ns for m in feed)
    pairs = [(m.key, json.loads(m.value)) for m in feed]
    data = [(key, value["data"]) for key, value in pairs if "data" in value]
    assert all(value["s"].encode() == key for key, value in data)
    assert {value["e"] for _, value in data} == {"trade", "depthUpdate", "bookTicker"}
    assert {value["E"] - value["T"] for _, value in data} == {0, 1, 2, 3}
    assert {key for key, value in pairs if "lastUpdateId" in value} == {key for key, _ in pairs}
    assert len({key for key, _ in pairs}) == 4


@pytest.mark.parametrize("opener", [gzip.open, open], ids=["gzip", "plain"])
def test_a_capture_keeps_every_byte_of_the_json(tmp_path: Path, opener: object) -> None:
    """The key is the stream's symbol, or the one before where there is none; the time is the line's."""
    path = tmp_path / "feed"
    lines = (
        b'1723161255088169167 {"stream":"btcusdt@trade","data":{"E":1723161256322}}\n'
        b'1723161255319702566 {"lastUpdateId":5,"bids":[]}\n'
    )
    with opener(path, "wb") as out:  # type: ignore[operator]
        out.write(lines)
    first, second = captured_feed(path)
    assert first == (
        b"BTCUSDT",
        b'{"stream":"btcusdt@trade","data":{"E":1723161256322}}',
        1723161255088169167,
    )
    assert second == (b"BTCUSDT", b'{"lastUpdateId":5,"bids":[]}', 1723161255319702566)


def test_a_line_that_is_no_message_is_named(tmp_path: Path) -> None:
    path = tmp_path / "feed"
    path.write_bytes(b'1 {"a":1}\nnonsense\n')
    with pytest.raises(FeedError, match="line 2: expected '<nanoseconds> <JSON>', found b'nonsense'"):
        list(captured_feed(path))


def test_an_absent_or_broken_file_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(FeedError, match="No such file"):
        list(captured_feed(tmp_path / "absent"))
    cut = tmp_path / "cut.gz"
    cut.write_bytes(gzip.compress(b'1 {"a":1}\n' * 1000)[:-20])
    with pytest.raises(FeedError, match=r"cut\.gz"):
        list(captured_feed(cut))

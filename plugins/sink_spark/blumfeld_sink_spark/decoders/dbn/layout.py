"""The records of Databento's binary encoding (DBN): fixed structs, little-endian, told apart by ``rtype``.

The layouts here are the same in versions 1 to 3 of the encoding. A record says its own length in words of four
bytes; a live feed may add eight bytes (``ts_out``) at its end, so a record may be longer than its struct.
"""

from __future__ import annotations

import attrs
import numpy as np
import numpy.typing as npt

HEADER_BYTES = 16
UNDEF_PRICE = 2**63 - 1
UNDEF_TIMESTAMP = 2**64 - 1

_HEADER = [
    ("length", "u1"),
    ("rtype", "u1"),
    ("publisher_id", "<u2"),
    ("instrument_id", "<u4"),
    ("ts_event", "<u8"),
]
_RECEIVED = [("ts_recv", "<u8"), ("ts_in_delta", "<i4"), ("sequence", "<u4")]
_PAIR = [
    ("bid_px", "<i8"),
    ("ask_px", "<i8"),
    ("bid_sz", "<u4"),
    ("ask_sz", "<u4"),
    ("bid_more", "<u4"),
    ("ask_more", "<u4"),
]
_EVENT = [
    *_HEADER,
    ("price", "<i8"),
    ("size", "<u4"),
    ("action", "u1"),
    ("side", "u1"),
    ("flags", "u1"),
    ("depth", "u1"),
    *_RECEIVED,
]
_ORDER = [
    *_HEADER,
    ("order_id", "<u8"),
    ("price", "<i8"),
    ("size", "<u4"),
    ("flags", "u1"),
    ("channel_id", "u1"),
    ("action", "u1"),
    ("side", "u1"),
    *_RECEIVED,
]
_BAR = [*_HEADER, *((name, "<i8") for name in ("open", "high", "low", "close")), ("volume", "<u8")]

MBO = np.dtype(_ORDER)
TRADE = np.dtype(_EVENT)
LEVEL_1 = np.dtype([*_EVENT, ("levels", _PAIR, (1,))])
"""Layout of a record with one level. It serves consolidated and sampled records, too: they differ only in bytes that
are not read (publishers instead of counts, reserved bytes).
"""
LEVEL_10 = np.dtype([*_EVENT, ("levels", _PAIR, (10,))])
OHLCV = np.dtype(_BAR)

SECOND_NS = 1_000_000_000


@attrs.frozen
class Kind:
    """One kind of record, for which an ``rtype`` stands."""

    schema: str
    """Databento's name; ``mbp-1`` and ``tbbo`` share one."""
    struct: np.dtype[np.void]
    trades: bool = False
    """It may tell of a trade: ``action`` is ``T``."""
    sequenced: bool = True
    sampled: bool = False
    """True where the record's time is the instant of the sample (``ts_recv``), not the time of an event."""
    interval_ns: int = 0


KINDS = {
    0x00: Kind("trades", TRADE, trades=True),
    0x01: Kind("mbp-1", LEVEL_1, trades=True),
    0x0A: Kind("mbp-10", LEVEL_10, trades=True),
    0x20: Kind("ohlcv-1s", OHLCV, sequenced=False, interval_ns=SECOND_NS),
    0x21: Kind("ohlcv-1m", OHLCV, sequenced=False, interval_ns=60 * SECOND_NS),
    0x22: Kind("ohlcv-1h", OHLCV, sequenced=False, interval_ns=3600 * SECOND_NS),
    0x23: Kind("ohlcv-1d", OHLCV, sequenced=False, interval_ns=86400 * SECOND_NS),
    0xA0: Kind("mbo", MBO, trades=True),
    0xB1: Kind("cmbp-1", LEVEL_1, trades=True, sequenced=False),
    0xC0: Kind("cbbo-1s", LEVEL_1, sequenced=False, sampled=True),
    0xC1: Kind("cbbo-1m", LEVEL_1, sequenced=False, sampled=True),
    0xC2: Kind("tcbbo", LEVEL_1, trades=True, sequenced=False),
    0xC3: Kind("bbo-1s", LEVEL_1, sampled=True),
    0xC4: Kind("bbo-1m", LEVEL_1, sampled=True),
}
"""The kinds that are decoded, by ``rtype``."""

SKIPPED = {0x15: "error", 0x16: "symbol mapping", 0x17: "system"}
"""These kinds tell about the session, not the market, and give no row."""

WITHOUT_TABLE = {
    0x11: "ohlcv of a deprecated form",
    0x12: "status",
    0x13: "definition",
    0x14: "imbalance",
    0x18: "statistics",
    0x24: "ohlcv-eod",
}
"""No table holds them: a message with one is rejected, and so kept."""


def _lengths() -> npt.NDArray[np.int64]:
    lengths = np.zeros(256, np.int64)
    lengths[[*SKIPPED, *WITHOUT_TABLE]] = HEADER_BYTES
    for rtype, kind in KINDS.items():
        lengths[rtype] = kind.struct.itemsize
    return lengths


LENGTH_MIN = _lengths()
"""Least length of a record by ``rtype``, in bytes; 0 where the rtype is unknown."""


def gather(
    data: npt.NDArray[np.uint8], at: npt.NDArray[np.int64], struct: np.dtype[np.void]
) -> npt.NDArray[np.void]:
    """The structs that begin at these bytes."""
    windows = np.lib.stride_tricks.sliding_window_view(data, struct.itemsize)
    return np.ascontiguousarray(windows[at]).view(struct)[:, 0]

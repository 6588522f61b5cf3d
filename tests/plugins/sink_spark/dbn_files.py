"""DBN made by hand: records, and files around them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from blumfeld.wire.compression.codec import Codec
from blumfeld.wire.compression.payload import compress

EVENT_NS = 1_609_160_400_000_429_831
RECEIVED_NS = EVENT_NS + 274_229
UNDEF_PRICE = 2**63 - 1
UNDEF_TIME = 2**64 - 1
INSTRUMENT = 5482
PUBLISHER = 1


def header(rtype: int, size: int, event_ns: int = EVENT_NS) -> bytes:
    return struct.pack("<BBHIQ", size // 4, rtype, PUBLISHER, INSTRUMENT, event_ns)


def event(
    rtype: int = 0,
    *,
    price: int = 3_720_250_000_000,
    size: int = 5,
    action: str = "T",
    side: str = "A",
    flags: int = 129,
    sequence: int = 7,
    event_ns: int = EVENT_NS,
    received_ns: int = RECEIVED_NS,
    levels: Sequence[tuple[int, int, int, int]] = (),
    more: bytes = b"",
) -> bytes:
    """Returns a record of trades, mbp-1, bbo and the like, with (bid, ask, bid size, ask size) of each level."""
    body = struct.pack(
        "<qIccBBQiI", price, size, action.encode(), side.encode(), flags, 0, received_ns, 10, sequence
    )
    body += b"".join(struct.pack("<qqIIII", *level, 1, 1) for level in levels) + more
    return header(rtype, 16 + len(body), event_ns) + body


def trade(**fields: int | str | bytes) -> bytes:
    return event(0x00, **fields)  # type: ignore[arg-type]


def order(action: str = "A", side: str = "B", price: int = 3_722_750_000_000, order_id: int = 99) -> bytes:
    fields = (order_id, price, 3, 128, 0, action.encode(), side.encode(), RECEIVED_NS, 10, 8)
    return header(0xA0, 56) + struct.pack("<QqIBBccQiI", *fields)


def bar(rtype: int = 0x21) -> bytes:
    return header(rtype, 56) + struct.pack("<qqqqQ", 10**9, 3 * 10**9, 5 * 10**8, 2 * 10**9, 2**63 + 1)


def status() -> bytes:
    return header(0x12, 40) + bytes(24)


def system() -> bytes:
    return header(0x17, 80) + bytes(64)


BOOK = (3_720_250_000_000, 3_720_500_000_000, 24, 11)


def quote(rtype: int = 0x01, action: str = "A", **fields: int) -> bytes:
    return event(rtype, action=action, levels=[BOOK], **fields)  # type: ignore[arg-type]


def ten_levels(sequence: int = 7, first: int = 0) -> bytes:
    """Returns a record of ``mbp-10``; four levels of the bid side are empty. Sizes grow from ``24 + first`` on."""
    step = 250_000_000
    levels = [
        (BOOK[0] - step * nth if nth < 6 else UNDEF_PRICE, BOOK[1] + step * nth, 24 + first + nth, 11 + nth)
        for nth in range(10)
    ]
    return event(0x0A, action="A", side="B", levels=levels, sequence=sequence)


def file_of(records: bytes, version: int = 3, symbol: str = "ESH1", by_id: bool = False) -> bytes:
    """Returns a file. Its header names the symbol of ``INSTRUMENT`` on 28 December 2020."""
    width = 22 if version == 1 else 71
    body = struct.pack("<16sHQQQ", b"GLBX.MDP3", 0, EVENT_NS, EVENT_NS + 10**12, 2)
    body += struct.pack("<Q", 2) if version == 1 else b""
    body += bytes([0, 1, 0]) if by_id else bytes([1, 0, 0])
    body += bytes(47) if version == 1 else struct.pack("<H", width) + bytes(53)
    query_name, answer = (str(INSTRUMENT), symbol) if by_id else (symbol, str(INSTRUMENT))
    names = [name.encode().ljust(width, b"\0") for name in (query_name, answer)]
    body += struct.pack("<II", 0, 1) + names[0] + struct.pack("<III", 0, 0, 1)
    body += names[0] + struct.pack("<III", 1, 20201228, 20201229) + names[1]
    return b"DBN" + bytes([version]) + struct.pack("<I", len(body)) + body + records


def messages() -> list[bytes]:
    """Returns messages with one record of each decoded kind: alone, several together, and in files."""
    mixed = trade() + quote() + trade(sequence=8, side="N") + order() + system()
    return [
        trade(),
        quote(0xC3),
        quote(0xB1, action="T"),
        order("T", "A"),
        bar(),
        ten_levels(),
        mixed,
        file_of(trade() * 3 + quote()),
        compress(Codec.ZSTD, file_of(mixed, version=1)),
        file_of(order() * 2, version=2, by_id=True),
    ]

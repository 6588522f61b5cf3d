"""The header of a DBN file: its dataset and schema, and the names of the instruments on each day."""

from __future__ import annotations

import struct
from collections.abc import Mapping

import attrs

MAGIC = b"DBN"
VERSION_MAX = 3
_FIXED = struct.Struct("<16sHQQQ")
INSTRUMENT_ID, RAW_SYMBOL = 0, 1
"""Ways to name an instrument, of ``stype_in`` and ``stype_out``; 255 is none."""
_V1_SYMBOL_BYTES = 22


class MetadataError(Exception):
    """It isn't a header of DBN, or not of a version that is known; one line."""


@attrs.frozen
class Metadata:
    """The part of the header that the archive needs."""

    dataset: str
    """Names the venue (``GLBX.MDP3``)."""
    names: Mapping[int, tuple[tuple[int, int, str], ...]]
    """Instrument id → (first day, day after the last, name), days as YYYYMMDD."""
    end: int
    """The position of the first record."""

    def name(self, instrument_id: int, day: int) -> str:
        """The instrument's name on that day; its id where the header knows none."""
        for start, end, name in self.names.get(instrument_id, ()):
            if start <= day < end:
                return name
        return str(instrument_id)


def read(data: bytes | memoryview) -> Metadata:
    """
    :raises MetadataError: the header is damaged or of an unknown version; the text says which
    """
    view = memoryview(data)
    try:
        return _read(view)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise MetadataError("the header of DBN is cut off or damaged") from error


def _read(view: memoryview) -> Metadata:
    version = view[3]
    if not 1 <= version <= VERSION_MAX:
        raise MetadataError(f"version {version} of DBN; known: 1 to {VERSION_MAX}")
    (length,) = struct.unpack_from("<I", view, 4)
    end = 8 + length
    if end > len(view):
        raise MetadataError("the header of DBN is cut off or damaged")
    dataset, *_ = _FIXED.unpack_from(view, 8)
    at = 8 + _FIXED.size + (8 if version == 1 else 0)  # version 1 counts the records here
    stype_in, stype_out = view[at], view[at + 1]
    at += 3
    width, reserved = _V1_SYMBOL_BYTES, 47
    if version > 1:
        (width,), reserved, at = struct.unpack_from("<H", view, at), 53, at + 2
    reader = _Reader(view[:end], at + reserved, width)
    reader.at += 4 + reader.number()  # a definition of the schema: always empty so far
    for _ in ("symbols", "partial", "not found"):
        reader.at += 4 + reader.number() * width
    names = reader.mappings(stype_in, stype_out)
    return Metadata(_text(dataset), {key: tuple(mapping) for key, mapping in names.items()}, end)


def _text(raw: bytes | memoryview) -> str:
    return bytes(raw).split(b"\0", 1)[0].decode("utf-8")


@attrs.define
class _Reader:
    """A place in the variable part."""

    view: memoryview
    at: int
    width: int

    def number(self) -> int:
        """Returns the number at the place, and stays there."""
        (number,) = struct.unpack_from("<I", self.view, self.at)
        return int(number)

    def _take(self) -> int:
        number = self.number()
        self.at += 4
        return number

    def _take_text(self) -> str:
        if self.at + self.width > len(self.view):
            raise IndexError
        text = _text(self.view[self.at : self.at + self.width])
        self.at += self.width
        return text

    def mappings(self, stype_in: int, stype_out: int) -> dict[int, list[tuple[int, int, str]]]:
        """Returns the names of each instrument id, whichever way the mappings were asked for."""
        names: dict[int, list[tuple[int, int, str]]] = {}
        for _ in range(self._take()):
            symbol = self._take_text()
            for _ in range(self._take()):
                start, end, answer = self._take(), self._take(), self._take_text()
                number, name = (symbol, answer) if stype_in == INSTRUMENT_ID else (answer, symbol)
                if (
                    (stype_in == INSTRUMENT_ID or stype_out == INSTRUMENT_ID)
                    and number.isascii()
                    and number.isdigit()
                ):
                    names.setdefault(int(number), []).append((start, end, name))
        return names

"""Packers for runs of fields in which arrays lie, and unpackers for arrays, made once for each set of counts.

Three replicas, three of them in sync, none offline: that partition and the thousand like it are one
``struct.Struct``, fields, counts, elements and all. How long the arrays are is its *shape*. A cluster has few
shapes; what comes after :data:`SHAPES_MAX` of them is packed as well, by a packer made for the occasion.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct as Packer
from typing import Any

from blumfeld.wire.primitives import put_uvarint

SHAPES_MAX = 256
"""For one run of fields; 200 bytes each."""


class PackersByShape(dict[Any, Callable[..., bytes]]):
    """By the counts as they stand on the wire (one, or a tuple where there are more arrays), what packs the run.

    ``layout`` has a struct format for each field, and ``B*i`` for an array of ``i`` behind a compact count,
    ``i*i`` behind a classic one. The packer takes the fields' values in order; an array is its count, then its
    elements. It raises ``struct.error`` as ``struct`` does.
    """

    def __init__(self, layout: Sequence[str]) -> None:
        super().__init__()
        self.layout = tuple(layout)

    def __missing__(self, shape: int | tuple[int, ...]) -> Callable[..., bytes]:
        packer = self._packer((shape,) if isinstance(shape, int) else shape)
        if len(self) < SHAPES_MAX:
            self[shape] = packer
        return packer

    def _packer(self, shape: tuple[int, ...]) -> Callable[..., bytes]:
        counts, formats, position = iter(shape), [">"], 0
        long: dict[int, bytes] = {}
        for field in self.layout:
            length, is_array, element = field.partition("*")
            if not is_array:
                formats.append(field)
                position += field != "x"
                continue
            count = next(counts)
            size = max(count - (length == "B"), 0)
            if length == "B" and count > 127:
                long[position] = put_uvarint(count)
                length = f"{len(long[position])}s"
            formats.append(f"{length}{size}{element}")
            position += 1 + size
        pack = Packer("".join(formats)).pack
        return _with_long_counts(pack, long) if long else pack


def _with_long_counts(pack: Callable[..., bytes], counts: dict[int, bytes]) -> Callable[..., bytes]:
    """A compact count above 127 takes more than the byte that the caller's value would fill."""

    def pack_long(*values: Any) -> bytes:
        replaced = list(values)
        for position, varint in counts.items():
            replaced[position] = varint
        return pack(*replaced)

    return pack_long


class UnpackersByCount(dict[int, Callable[..., tuple[Any, ...]]]):
    """By the count on the wire (null excluded), what unpacks the elements behind it.

    A decoder asks for short arrays only, so that what a peer sends makes at most 128 of them.
    """

    def __init__(self, element: str, compact: bool) -> None:
        super().__init__()
        self.element = element
        self.compact = compact

    def __missing__(self, count: int) -> Callable[..., tuple[Any, ...]]:
        unpack = self[count] = Packer(f">{count - self.compact}{self.element}").unpack_from
        return unpack

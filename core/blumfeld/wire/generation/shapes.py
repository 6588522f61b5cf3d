"""Packers for runs of fields with arrays among them, and unpackers for arrays; one for each combination of
counts.

Example: a partition with three replicas, three in sync and none offline, and thousands of partitions like
it. One ``struct.Struct`` packs its fields, counts and elements together. The lengths of the arrays are the
*shape* of the run. A cluster has few shapes. Once :data:`SHAPES_MAX` shapes have a packer, a further shape
gets a temporary one each time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from struct import Struct as Packer
from typing import Any

from blumfeld.wire.primitives import put_uvarint

SHAPES_MAX = 256
"""Limit for one run of fields, at 200 bytes each."""


class PackersByShape(dict[Any, Callable[..., bytes]]):
    """Shape → function that packs the run. A shape is the count on the wire, or a tuple of counts if there are
    several arrays.

    ``layout`` has a struct format for each field. An array of ``i`` is ``B*i`` after a compact count and
    ``i*i`` after a classic one. The packer takes the fields' values in order; an array is its count, then
    its elements. It raises ``struct.error`` as ``struct`` does.
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
    """Wrap ``pack`` for compact counts above 127, which take more than the one byte that the caller's value fills."""

    def pack_long(*values: Any) -> bytes:
        replaced = list(values)
        for position, varint in counts.items():
            replaced[position] = varint
        return pack(*replaced)

    return pack_long


class UnpackersByCount(dict[int, Callable[..., tuple[Any, ...]]]):
    """Count on the wire (null excluded) → function that unpacks the elements after it.

    A decoder uses this only for short arrays, so a peer can cause at most 128 entries.
    """

    def __init__(self, element: str, compact: bool) -> None:
        super().__init__()
        self.element = element
        self.compact = compact

    def __missing__(self, count: int) -> Callable[..., tuple[Any, ...]]:
        unpack = self[count] = Packer(f">{count - self.compact}{self.element}").unpack_from
        return unpack

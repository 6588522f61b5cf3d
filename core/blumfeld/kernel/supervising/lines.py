"""The output of several nodes as one stream of whole lines. Pure."""

from __future__ import annotations

from collections.abc import Iterator

LINE_BYTES_MAX = 65_536
"""A longer line is cut into several. A node that writes without line ends must not take memory without bound."""


class Lines:
    """Cuts the bytes of one node into lines, and names the node in each.

    A line of ``logging.format = "json"`` gets the field ``node``, because a prefix would make it unreadable for the
    programs that it is meant for. Any other line begins with ``node-ID | ``.
    """

    def __init__(self, node_id: int) -> None:
        self._prefix = f"node-{node_id} | ".encode()
        self._field = b'{"node": %d, ' % node_id
        self._rest = bytearray()

    def take(self, data: bytes) -> Iterator[bytes]:
        """Yields the lines that are complete now, each with its end."""
        self._rest += data
        *whole, rest = self._rest.split(b"\n")
        self._rest = rest
        for line in whole:
            yield from self._named(bytes(line))
        while len(self._rest) > LINE_BYTES_MAX:
            yield self._prefix + bytes(self._rest[:LINE_BYTES_MAX]) + b"\n"
            del self._rest[:LINE_BYTES_MAX]

    def end(self) -> Iterator[bytes]:
        """Yields what is left when the node has ended."""
        rest, self._rest = bytes(self._rest), bytearray()
        if rest:
            yield from self._named(rest)

    def _named(self, line: bytes) -> Iterator[bytes]:
        if line.startswith(b'{"') and line.endswith(b"}"):
            yield self._field + line[1:] + b"\n"
            return
        for start in range(0, len(line), LINE_BYTES_MAX) or (0,):
            yield self._prefix + line[start : start + LINE_BYTES_MAX] + b"\n"

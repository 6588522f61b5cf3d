"""A blocking connection of an archive to one broker."""

from __future__ import annotations

from typing import Any

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.errors import NoCommonVersionError, RefusedError
from blumfeld.client.frames import FRAME_BYTES_MAX
from blumfeld.wire.api_table import ApiKey

__all__ = ["FRAME_BYTES_MAX", "SPOKEN", "Connection", "TooOldError"]

SPOKEN: dict[int, tuple[int, int]] = {
    ApiKey.FETCH: (12, 12),
    ApiKey.LIST_OFFSETS: (6, 8),
    ApiKey.METADATA: (9, 12),
}
"""The versions that an archive writes and reads: brokers since Kafka 2.7 have them."""


class TooOldError(Exception):
    """The broker lacks a needed API version, or holds records of formats 0 or 1. librdkafka can read such a broker."""


class Connection(BlockingConnection):
    """An open connection that has agreed on versions. A fault of the broker or the network is an ``OSError`` or a
    :class:`~blumfeld.wire.primitives.DecodeError`, and the connection is of no more use then.

    Records of an answer are views that hold until the next answer is received.
    """

    def __init__(self, host: str, port: int, client_id: str, timeout_s: float) -> None:
        """:param timeout_s: how long connecting, or one step of sending and receiving, may take
        :raises TooOldError: the broker doesn't speak the versions that are needed
        """
        super().__init__(host, port, client_id, timeout_s, reuse=True)
        try:
            self.negotiate(SPOKEN, required=SPOKEN)
        except (NoCommonVersionError, RefusedError) as error:
            self.close()
            raise TooOldError(str(error)) from error
        except BaseException:
            self.close()
            raise

    def answer(self) -> Any:
        """Wait for the message that answers the oldest request."""
        return self.receive().message

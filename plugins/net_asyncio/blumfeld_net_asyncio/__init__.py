"""The network on asyncio's readiness events (epoll): non-blocking sockets, one turn of the loop as the batch."""

from blumfeld_net_asyncio.plugin import Plugin

__all__ = ["Plugin"]

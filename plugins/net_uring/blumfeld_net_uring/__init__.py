"""``net_uring``: the network role on io_uring, without a library in between."""

from blumfeld_net_uring.plugin import Plugin

__all__ = ["Plugin"]

"""``net_uring``: the network role on io_uring, spoken directly."""

from blumfeld_net_uring.plugin import Plugin

__all__ = ["Plugin"]

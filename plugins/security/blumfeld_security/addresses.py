"""The client behind an address, for limits by address. Pure."""

from __future__ import annotations

from functools import lru_cache
from ipaddress import AddressValueError, IPv6Address

PREFIX_BITS = 64
"""A client with an IPv6 address has its whole /64, and may come from 2**64 addresses."""


@lru_cache(maxsize=1_024)
def origin(address: str) -> str:
    """Returns what limits by address count: an IPv4 address itself, and the /64 of an IPv6 address."""
    if ":" not in address:
        return address
    try:
        read = IPv6Address(address.partition("%")[0])
    except AddressValueError:
        return address
    if read.ipv4_mapped is not None:
        return str(read.ipv4_mapped)
    return f"{IPv6Address(int(read) >> PREFIX_BITS << PREFIX_BITS)}/{PREFIX_BITS}"

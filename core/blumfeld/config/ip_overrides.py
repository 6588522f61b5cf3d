"""``max.connections.per.ip.overrides``: connection limits of single addresses."""

from __future__ import annotations

from ipaddress import ip_address

from blumfeld.config.definitions import ConfigError

KEY = "max.connections.per.ip.overrides"
_ALLOWED = "ADDRESS:COUNT, with commas between; an address is IPv4 or IPv6, since names aren't resolved here"


def ip_overrides(given: object) -> dict[str, int]:
    """Returns address → maximum number of connections. Addresses have the form that sockets return.

    Kafka also accepts host names and resolves them once. Here a name is refused, because a look-up would
    hold the loop.

    :raises ConfigError: an entry is malformed, or a count is negative
    """
    overrides: dict[str, int] = {}
    for entry in str(given or "").split(","):
        address, _, count = entry.strip().rpartition(":")
        if not entry.strip():
            continue
        try:
            connections = int(count)
            overrides[str(ip_address(address.strip().strip("[]")))] = connections
        except ValueError:
            raise ConfigError(KEY, entry, _ALLOWED) from None
        if connections < 0:
            raise ConfigError(KEY, entry, _ALLOWED)
    return overrides

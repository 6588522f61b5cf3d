"""The keys that name the metadata quorum: ``controller.quorum.voters`` and ``controller.quorum.bootstrap.servers``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blumfeld.config.addresses import PORT_MAX, host_and_port
from blumfeld.config.definitions import ConfigError

VOTERS = "controller.quorum.voters"
BOOTSTRAP_SERVERS = "controller.quorum.bootstrap.servers"
NODE_ID_MAX = 2**31 - 1

_VOTER_FORM = "ID@HOST:PORT, with commas between, such as 1@10.0.0.1:9093"
_SERVER_FORM = "HOST:PORT, with commas between, such as 10.0.0.1:9093"


class VoterAddress(NamedTuple):
    """One entry of ``controller.quorum.voters``."""

    voter_id: int
    host: str
    port: int


def quorum_voters(entries: Sequence[str]) -> tuple[VoterAddress, ...]:
    """Returns the voters of ``controller.quorum.voters``, in their order.

    Kafka takes two entries with one id, or one address, and keeps one of them. Here both are refused: the quorum would
    have fewer voters than its list.

    :raises ConfigError: an entry has another form, or repeats an id or an address
    """
    voters: list[VoterAddress] = []
    for entry in entries:
        number, at, place = entry.partition("@")
        host, port = _reachable(VOTERS, entry, place, _VOTER_FORM)
        if not at or not number.isascii() or not number.isdigit() or int(number) > NODE_ID_MAX:
            raise ConfigError(VOTERS, entry, _VOTER_FORM)
        voter = VoterAddress(int(number), host, port)
        for other in voters:
            if other.voter_id == voter.voter_id:
                raise ConfigError(VOTERS, f"{entry}, and voter {other.voter_id} before it", "each id once")
            if other[1:] == voter[1:]:
                duplicate = f"{entry}, the address of voter {other.voter_id} before it"
                raise ConfigError(VOTERS, duplicate, "an address of its own for each voter")
        voters.append(voter)
    return tuple(voters)


def quorum_bootstrap_servers(entries: Sequence[str]) -> tuple[tuple[str, int], ...]:
    """Returns (host, port) of each of ``controller.quorum.bootstrap.servers``, in their order.

    :raises ConfigError: an entry has another form, or repeats an address
    """
    servers: list[tuple[str, int]] = []
    for entry in entries:
        server = _reachable(BOOTSTRAP_SERVERS, entry, entry, _SERVER_FORM)
        if server in servers:
            raise ConfigError(BOOTSTRAP_SERVERS, f"{entry} twice", "each address once")
        servers.append(server)
    return tuple(servers)


def _reachable(key: str, entry: str, place: str, form: str) -> tuple[str, int]:
    """Returns (host, port) that another node can dial: port 0 and an empty host are addresses to bind only."""
    try:
        host, port = host_and_port(place)
    except ValueError:
        raise ConfigError(key, entry, form) from None
    if not host or not port:
        raise ConfigError(key, entry, f"{form}; with a host, and a port from 1 to {PORT_MAX}")
    return host, port

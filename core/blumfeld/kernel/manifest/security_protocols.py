"""The security protocol of each listener, by Kafka's ``listener.security.protocol.map``.

Imported only where a build has a security plug-in: without one every listener speaks PLAINTEXT.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from blumfeld.config.values import BrokerConfig
from blumfeld.plugging.errors import Faults, Problem, one_of, shown
from blumfeld.spi.transport import Listener

PROTOCOL_MAP = "listener.security.protocol.map"
BETWEEN_BROKERS = "security.inter.broker.protocol"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def with_protocols(
    listeners: Sequence[Listener], config: BrokerConfig, faults: Faults
) -> tuple[Listener, ...]:
    """Returns the listeners with their protocols: the map's entry for the name, else the name itself if it is that of a
    protocol. Kafka compares names of listeners in capitals.

    :param faults: gets an entry that can't be read, and a listener whose protocol nothing says. Kafka takes such a
        controller listener for PLAINTEXT; here it must be said, for it would be open
    """
    path = f'config."{PROTOCOL_MAP}"'
    if not faults.sound(path):
        return tuple(listeners)
    text = config.str(PROTOCOL_MAP)
    entries = [entry.strip() for entry in text.split(",") if entry.strip()]
    faults.add(_entry_problems(entries, path))
    if not faults.sound(path):
        return tuple(listeners)
    by_name = {name.strip().upper(): protocol.strip().upper() for name, protocol in map(_pair, entries)}
    known = [listener for listener in listeners if listener.name in by_name or listener.name in PROTOCOLS]
    for listener in listeners:
        if listener not in known:
            allowed = f"an entry for it, {listener.name}:PROTOCOL; the protocol one of {', '.join(PROTOCOLS)}"
            faults.add([Problem(path, f"nothing for the listener {listener.name}", allowed)])
    made = tuple(
        msgspec.structs.replace(listener, security_protocol=by_name.get(listener.name, listener.name))
        if listener in known
        else listener
        for listener in listeners
    )
    if len(known) == len(listeners):
        faults.add(_between_brokers(made, config))
    return made


def _between_brokers(listeners: Sequence[Listener], config: BrokerConfig) -> Iterator[Problem]:
    """Yields a problem if brokers should speak another protocol with each other than their listener does."""
    if BETWEEN_BROKERS not in config.given():
        return
    wanted = config.str(BETWEEN_BROKERS)
    for listener in listeners:
        if listener.inter_broker and listener.security_protocol != wanted:
            allowed = f"{listener.security_protocol}, as the inter-broker listener {listener.name} has it, or no value"
            yield Problem(f'config."{BETWEEN_BROKERS}"', shown(wanted), allowed)


def _pair(entry: str) -> tuple[str, str]:
    name, _, protocol = entry.partition(":")
    return name, protocol


def _entry_problems(entries: Sequence[str], path: str) -> Iterator[Problem]:
    seen: set[str] = set()
    for entry in entries:
        name, protocol = (part.strip().upper() for part in _pair(entry))
        if not name or not protocol:
            yield Problem(
                path, shown(entry), f"LISTENER:PROTOCOL, the protocol one of {', '.join(PROTOCOLS)}"
            )
        elif protocol not in PROTOCOLS:
            yield Problem(path, shown(entry), one_of(protocol, PROTOCOLS))
        elif name in seen:
            yield Problem(path, f"{name} twice", "each listener once")
        seen.add(name)

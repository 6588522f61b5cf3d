"""The security protocol of each listener, by Kafka's ``listener.security.protocol.map``.

Imported only where a build has a security plug-in or a manifest has the key: a default node needs none of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import msgspec

from blumfeld.config.values import BrokerConfig
from blumfeld.plugging.errors import Faults, Problem, shown
from blumfeld.spi.transport import Listener

PROTOCOL_MAP = "listener.security.protocol.map"
_PATH = f'config."{PROTOCOL_MAP}"'
BETWEEN_BROKERS = "security.inter.broker.protocol"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


def with_protocols(
    listeners: Sequence[Listener], config: BrokerConfig, faults: Faults, dialled: Sequence[str] = ()
) -> tuple[Listener, ...]:
    """Returns the listeners with their protocols: the map's entry for the name, else the name itself if it is that of a
    protocol. Kafka compares names of listeners in capitals.

    :param faults: gets an entry that can't be read, and a listener whose protocol nothing says. Kafka takes such a
        controller listener for PLAINTEXT; here it must be said, for it would be open
    :param dialled: names of listeners that other nodes have and this one dials; their protocols must be said, too, or
        it would dial them in clear
    """
    if not faults.sound(_PATH):
        return tuple(listeners)
    entries = list(_entries(config.str(PROTOCOL_MAP)))
    faults.add(_entry_problems(entries))
    if not faults.sound(_PATH):
        return tuple(listeners)
    by_name = dict(entries)
    known = [listener for listener in listeners if listener.name in by_name or listener.name in PROTOCOLS]
    unknown = [
        *(listener.name for listener in listeners if listener not in known),
        *(name for name in dialled if name not in by_name and name not in PROTOCOLS),
    ]
    for name in unknown:
        allowed = f"an entry for it, {name}:PROTOCOL; the protocol one of {', '.join(PROTOCOLS)}"
        faults.add([Problem(_PATH, f"nothing for the listener {name}", allowed)])
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


def only_plaintext(text: str, names: Collection[str], allowed: str) -> Iterator[Problem]:
    """Yields problems of a map in a build without security: an entry that can't be read, or gives a listener another
    protocol than PLAINTEXT. Kafka's default has an entry for each protocol's own name, which no listener here has.

    :param names: the node's listeners
    :param allowed: why there is no other protocol
    """
    entries = list(_entries(text))
    yield from _entry_problems(entries)
    for name, protocol in entries:
        if protocol in PROTOCOLS[1:] and (name in names or name != protocol):
            yield Problem(_PATH, shown(f"{name}:{protocol}"), f"{name}:PLAINTEXT: {allowed}")


def _entries(text: str) -> Iterator[tuple[str, str]]:
    for entry in text.split(",") if text.strip() else ():
        name, _, protocol = (part.strip().upper() for part in entry.partition(":"))
        yield name, protocol


def _entry_problems(entries: Sequence[tuple[str, str]]) -> Iterator[Problem]:
    seen: set[str] = set()
    for name, protocol in entries:
        if not name or protocol not in PROTOCOLS:
            allowed = f"LISTENER:PROTOCOL, the protocol one of {', '.join(PROTOCOLS)}"
            yield Problem(_PATH, shown(f"{name}:{protocol}" if protocol else name), allowed)
        elif name in seen:
            yield Problem(_PATH, f"{name} twice", "each listener once")
        seen.add(name)

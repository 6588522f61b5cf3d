"""The entities that have quotas, the section of the image with their values, and which of them counts for a client
(KIP-13, KIP-546, KIP-612). Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, cast

from blumfeld.wire.messages.metadata_records import ClientQuotaRecord
from blumfeld.wire.schema import Message

USER, CLIENT_ID, IP = "user", "client-id", "ip"
PRODUCED, FETCHED = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATIONS = "request_percentage", "controller_mutation_rate"
CONNECTIONS = "connection_creation_rate"
KEYS = {USER: (PRODUCED, FETCHED, REQUEST, MUTATIONS), IP: (CONNECTIONS,)}
KEYS[CLIENT_ID] = KEYS[USER]

Entity: TypeAlias = frozenset[tuple[str, str | None]]
"""(type, name) of each part; the name ``None`` is the default of all that have no value of their own."""
Quotas: TypeAlias = Mapping[Entity, Mapping[str, float]]
"""Entity → key → value."""
SECTION = "quotas"


class QuotaSection:
    """The section ``quotas`` of the image: :data:`Quotas`."""

    name = SECTION
    records: tuple[type[Message], ...] = (ClientQuotaRecord,)

    def empty(self) -> Quotas:
        """As ``ImageSection.empty``."""
        return {}

    def replay(self, value: Quotas, records: Sequence[Message]) -> Quotas:
        """As ``ImageSection.replay``. Values of entities that didn't change are shared."""
        changed = dict(value)
        for record in cast("Sequence[ClientQuotaRecord]", records):
            entity = entity_of((part.entity_type, part.entity_name) for part in record.entity)
            values = dict(changed.get(entity, {}))
            if record.remove:
                values.pop(record.key, None)
            else:
                values[record.key] = record.value
            if values:
                changed[entity] = values
            else:
                changed.pop(entity, None)
        return changed


def entity_of(parts: Iterable[tuple[str, str | None]]) -> Entity:
    """Returns the entity of these parts."""
    return frozenset(parts)


SharedBy: TypeAlias = tuple[str | None, str | None]
"""(user, client id) that are counted together; ``None`` stands for any."""


class Limit(NamedTuple):
    """The limit of one client, and what it is counted for."""

    value: float
    shared_by: SharedBy


def limit_of(quotas: Quotas, key: str, user: str, client_id: str) -> Limit | None:
    """Returns the most specific limit of a client; ``None`` for no limit. The order is Kafka's.

    A limit of a user alone is shared by all client ids of the user, and one of a client id alone by all users. A
    default gives each its own.
    """
    for of_user, of_client in (
        (user, client_id),
        (user, None),
        (user, _ANY),
        (None, client_id),
        (None, None),
        (None, _ANY),
        (_ANY, client_id),
        (_ANY, None),
    ):
        parts = []
        if of_user is not _ANY:
            parts.append((USER, of_user))
        if of_client is not _ANY:
            parts.append((CLIENT_ID, of_client))
        value = quotas.get(frozenset(parts), {}).get(key)
        if value is not None:
            return Limit(value, (None if of_user is _ANY else user, None if of_client is _ANY else client_id))
    return None


_ANY = "\0any"
"""No part of this type in the entity. A name can't hold a zero byte (a header's client id could, and has no limit)."""


def connection_limit(quotas: Quotas, host: str) -> float | None:
    """Returns the connections a second that an address may make; ``None`` for no limit."""
    for name in (host, None):
        value = quotas.get(frozenset(((IP, name),)), {}).get(CONNECTIONS)
        if value is not None:
            return value
    return None

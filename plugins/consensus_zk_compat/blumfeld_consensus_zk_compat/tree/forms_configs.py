"""Forms of ``/config``: configurations, quotas and SCRAM credentials, and the notifications of their changes. Pure.

Below ``/config/users`` a node has a user's SCRAM credentials and quotas side by side, each under its key. See
:mod:`.forms`.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from decimal import Decimal

import msgspec

from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE
from blumfeld.wire.messages.metadata_records import ClientQuotaRecord, EntityData, UserScramCredentialRecord
from blumfeld_consensus_zk_compat.tree.forms import NoFormError, TreeError, reader, written
from blumfeld_consensus_zk_compat.tree.paths import CONFIG, DEFAULT_ENTITY, desanitized, sanitized

SCRAM_MECHANISMS = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's numbers of the mechanisms. Their names are keys of a user's node."""
WHOLE_QUOTAS = ("producer_byte_rate", "consumer_byte_rate", "connection_creation_rate")
"""Quotas that are written without a fraction."""
FRACTION_QUOTAS = ("request_percentage", "controller_mutation_rate")
QUOTAS = (*WHOLE_QUOTAS, *FRACTION_QUOTAS)
"""Keys of the quotas in a node of a user, client or address."""
ENTITY_TYPES = {"users": "user", "clients": "client-id", "ips": "ip"}
"""Kinds of entities that have quotas, and a quota's names of them."""
_RESOURCE_KINDS = {TOPIC_RESOURCE: "topics", BROKER_RESOURCE: "brokers"}


class _ConfigForm(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 1
    config: dict[str, str] = {}


_read_config = reader(_ConfigForm, "a configuration in version 1: names and values as text")


def decode_config(path: str, data: bytes) -> dict[str, str]:
    """Read the configuration of any entity; empty for a node without data, which stands above other entities only.

    :raises TreeError: it can't be read. It shows the content of a topic's node alone: others have passwords
    """
    if not data:
        return {}
    try:
        form = _read_config(path, data)
    except TreeError as error:
        if path.startswith(f"{CONFIG}/topics/"):
            raise
        raise TreeError(path, f"{len(data)} bytes that can't be read", error.allowed) from None
    if form.version != 1:
        raise TreeError(path, f"version {form.version}", "a configuration in version 1")
    return form.config


def encode_config(values: Mapping[str, str]) -> bytes:
    """Write the configuration of any entity."""
    return written(_ConfigForm(config=dict(values)))


class _ChangeForm(msgspec.Struct, frozen=True, kw_only=True):
    version: int
    entity_path: str | None = None
    entity_type: str | None = None
    entity_name: str | None = None


class _ChangeFormV2(msgspec.Struct, frozen=True, kw_only=True):
    version: int = 2
    entity_path: str


_CHANGE_ALLOWED = "the entity of a change: entity_path in version 2, entity_type and entity_name in version 1"
_read_change = reader(_ChangeForm, _CHANGE_ALLOWED)


def decode_config_change(path: str, data: bytes) -> str:
    """Read a node of ``/config/changes``: the entity whose configuration has changed, such as ``topics/orders``.

    :raises TreeError: it can't be read
    """
    form = _read_change(path, data)
    if form.version == 2 and form.entity_path:
        return form.entity_path
    if form.version == 1 and form.entity_type and form.entity_name:
        return f"{form.entity_type}/{form.entity_name}"
    raise TreeError(path, data, _CHANGE_ALLOWED)


def encode_config_change(entity: str) -> bytes:
    """Write a node of ``/config/changes``."""
    return written(_ChangeFormV2(entity_path=entity))


def config_entity(resource_type: int, name: str) -> str:
    """The entity of a resource of the image: ``topics/T``, ``brokers/N``, ``brokers/<default>``.

    :raises NoFormError: a tree has no such resources
    """
    kind = _RESOURCE_KINDS.get(resource_type)
    if kind is None:
        raise NoFormError(
            f"a cluster with a ZooKeeper keeps no configuration of resource type {resource_type}; allowed: topics "
            f"({TOPIC_RESOURCE}) and brokers ({BROKER_RESOURCE})"
        )
    return f"{kind}/{name or DEFAULT_ENTITY}"


def config_resource(entity: str) -> tuple[int, str] | None:
    """The resource of the image that an entity is; ``None`` for users, clients and addresses."""
    kind, _, name = entity.partition("/")
    for resource_type, known in _RESOURCE_KINDS.items():
        if kind == known:
            return resource_type, "" if name == DEFAULT_ENTITY else name
    return None


def quota_entity(parts: Sequence[EntityData]) -> str:
    """The entity of a quota, as a notification names it: ``users/U/clients/C``, ``ips/<default>``.

    :raises NoFormError: a tree has no such entities
    """
    names = {part.entity_type: sanitized(part.entity_name) for part in parts}
    kinds = [kind for kind, entity_type in ENTITY_TYPES.items() if entity_type in names]
    if len(kinds) != len(names) or kinds not in (["users"], ["clients"], ["ips"], ["users", "clients"]):
        raise NoFormError(f"quotas of {sorted(names)}; allowed: user, client-id, both, ip")
    return "/".join(f"{kind}/{names[ENTITY_TYPES[kind]]}" for kind in kinds)


def entity_data(entity: str) -> list[EntityData]:
    """The parts of a quota's entity.

    :raises NoFormError: it has none: it is no user, client or address
    """
    kinds = entity.split("/")
    if len(kinds) % 2 or any(kind not in ENTITY_TYPES for kind in kinds[::2]):
        raise NoFormError(f"{entity} is no entity of quotas")
    return [
        EntityData(entity_type=ENTITY_TYPES[kind], entity_name=desanitized(name))
        for kind, name in zip(kinds[::2], kinds[1::2], strict=True)
    ]


def decode_quotas(path: str, entity: str, values: Mapping[str, str]) -> list[ClientQuotaRecord]:
    """The quotas among the values of an entity.

    :raises TreeError: a quota is no number
    """
    records = []
    for key in values:
        if key in QUOTAS:
            try:
                value = msgspec.convert(values[key], float, strict=False)
            except msgspec.ValidationError:
                raise TreeError(path, values[key], f"a number for {key}") from None
            records.append(ClientQuotaRecord(entity=entity_data(entity), key=key, value=value))
    return records


def quota_text(key: str, value: float) -> str:
    """The value of a quota as Kafka writes it."""
    return str(int(value)) if key in WHOLE_QUOTAS else java_double(value)


def java_double(value: float) -> str:
    """A number as Java's ``Double.toString`` writes it: with an exponent below 0.001, and from 10,000,000."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        text = format(Decimal(repr(value)), "f")
        return text if "." in text else f"{text}.0"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    whole, *rest = map(str, digits)
    point = len(digits) - 1 + int(exponent)
    return f"{'-' if sign else ''}{whole}.{''.join(rest) or '0'}E{point}"


class _ScramForm(msgspec.Struct, frozen=True):
    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


def decode_scram(path: str, user: str, mechanism: str, text: str) -> UserScramCredentialRecord:
    """A credential of a user's node, ``salt=…,stored_key=…,server_key=…,iterations=…``.

    :raises TreeError: it can't be read
    """
    parts = dict(part.partition("=")[::2] for part in text.split(","))
    try:
        form = msgspec.convert(parts, _ScramForm, strict=False)
    except msgspec.ValidationError:
        allowed = f"for {mechanism}: salt, stored_key and server_key in base64, and iterations"
        raise TreeError(path, "a credential that can't be read", allowed) from None
    return UserScramCredentialRecord(
        name=user,
        mechanism=SCRAM_MECHANISMS[mechanism],
        salt=form.salt,
        stored_key=form.stored_key,
        server_key=form.server_key,
        iterations=form.iterations,
    )


def encode_scram(record: UserScramCredentialRecord) -> str:
    """A credential as a value of its user's node."""
    salt, stored, server = (
        b64encode(part).decode() for part in (record.salt, record.stored_key, record.server_key)
    )
    return f"salt={salt},stored_key={stored},server_key={server},iterations={record.iterations}"


def scram_mechanism(number: int) -> str:
    """The name of a mechanism.

    :raises NoFormError: a tree has no such mechanism
    """
    for name, known in SCRAM_MECHANISMS.items():
        if known == number:
            return name
    raise NoFormError(f"SCRAM mechanism {number}; allowed: {SCRAM_MECHANISMS}")

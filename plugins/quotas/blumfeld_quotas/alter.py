"""AlterClientQuotas (key 49): the command of the controller, with Kafka's checks. Pure."""

from __future__ import annotations

import ipaddress
from typing import cast

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.image_sections import Circumstances, Decided
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages import alter_client_quotas as wire
from blumfeld.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from blumfeld.wire.messages.metadata_records import ClientQuotaRecord, EntityData
from blumfeld.wire.schema import Message
from blumfeld_quotas.entities import (
    CLIENT_ID,
    CONNECTIONS,
    IP,
    KEYS,
    SECTION,
    USER,
    Entity,
    Quotas,
    entity_of,
)

WHOLE = frozenset(("producer_byte_rate", "consumer_byte_rate", CONNECTIONS))
"""Keys whose values Kafka keeps as whole numbers."""
_INT_MAX, _LONG_MAX = 2**31 - 1, 2**63 - 1
_ROUNDING = 1e-6


class AlterQuotas:
    """The command. Each entry has its own result, and an entity that is named twice is refused in both places."""

    request: type[Message] = AlterClientQuotasRequest

    def decide(self, image: ClusterImage, request: Message, at: Circumstances) -> Decided:
        """As ``ControllerCommand.decide``."""
        asked = cast("AlterClientQuotasRequest", request)
        quotas: Quotas = image.section(SECTION)
        records: list[Message] = []
        results: list[wire.ResponseEntryData] = []
        seen: set[Entity] = set()
        for entry in asked.entries:
            result = wire.ResponseEntryData(entity=entry.entity, error_message=None)
            try:
                entity = _checked_entity(entry)
                if entity in seen:
                    raise _invalid("the entity is named twice in the request")
                seen.add(entity)
                made = _records(entry, entity, quotas)
            except BrokerError as error:
                result.error_code, result.error_message = int(error.code), error.message
            else:
                records += made
            results.append(result)
        if asked.validate_only:
            records = []
        return Decided(tuple(records), AlterClientQuotasResponse(entries=results))


def _records(entry: wire.RequestEntryData, entity: Entity, quotas: Quotas) -> list[Message]:
    allowed = KEYS[IP if any(kind == IP for kind, _ in entity) else USER]
    present = quotas.get(entity, {})
    named: set[str] = set()
    records: list[Message] = []
    for op in entry.ops:
        if op.key not in allowed:
            raise _invalid(f"invalid quota key {op.key}; allowed: {', '.join(allowed)}")
        if op.key in named:
            raise _invalid(f"the key {op.key} is named twice for one entity")
        named.add(op.key)
        if not op.remove:
            _check_value(op.key, op.value)
        if op.remove and op.key not in present:
            continue
        if op.remove or present.get(op.key) != op.value:
            parts = [EntityData(entity_type=e.entity_type, entity_name=e.entity_name) for e in entry.entity]
            value = 0.0 if op.remove else op.value
            records.append(ClientQuotaRecord(entity=parts, key=op.key, value=value, remove=op.remove))
    return records


def _checked_entity(entry: wire.RequestEntryData) -> Entity:
    kinds = [part.entity_type for part in entry.entity]
    if not kinds:
        raise _invalid("an entity needs at least one part")
    for kind in kinds:
        if kind not in KEYS:
            raise _invalid(f"unknown entity type {kind}; allowed: {USER}, {CLIENT_ID}, {IP}")
        if kinds.count(kind) > 1:
            raise _invalid(f"the entity type {kind} is named twice")
    if IP in kinds and len(kinds) > 1:
        raise _invalid("an entity of ip has no user and no client-id")
    for part in entry.entity:
        if part.entity_name == "":
            raise _invalid(f"the name of {part.entity_type} is empty; null is the default of all")
        if part.entity_type == IP and part.entity_name is not None:
            _check_ip(part.entity_name)
    return entity_of((part.entity_type, part.entity_name) for part in entry.entity)


def _check_ip(name: str) -> None:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        raise _invalid(f"{name} is not a valid IP address") from None


def _check_value(key: str, value: float) -> None:
    """Refuse a value that Kafka refuses: none below or at zero, and whole numbers where it keeps them as such."""
    if not value > 0:
        raise _invalid(f"the value of {key} must be greater than 0")
    if key not in WHOLE:
        return
    if value > (_INT_MAX if key == CONNECTIONS else _LONG_MAX):
        raise _invalid(f"the value of {key} is too large")
    if abs(value - round(value)) > _ROUNDING:
        raise _invalid(f"the value of {key} must be a whole number")


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)

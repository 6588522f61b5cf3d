"""DescribeClientQuotas (key 48) and AlterClientQuotas (key 49), v0–1 (KIP-546)."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

from blumfeld.spi.completion import Completion, Steps
from blumfeld.spi.consensus import submit_for
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.hooks import Composition
from blumfeld.spi.steps import CHUNK_ELEMENTS, STEP_ELEMENTS, at_once, errors_by_elements, in_parts
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    RequestEntryData,
    ResponseEntryData,
)
from blumfeld.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from blumfeld.wire.schema import Message
from blumfeld_quotas.entities import IP, KEYS, SECTION, Entity, Quotas

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
"""Match types: this name; the default; any name and the default."""
DESCRIBED_COST = 3
"""Elements that are looked at in the time that it takes to describe one."""
CLUSTER = "kafka-cluster"


def handlers(composition: Composition) -> list[ApiHandler]:
    """Returns the handlers of both APIs."""

    def describe(request: DescribeClientQuotasRequest, context: RequestContext) -> Any:
        if not context.authorize("DescribeConfigs", "Cluster", CLUSTER):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        check_components(request.components)
        quotas: Quotas = composition.metadata.image.section(SECTION)
        steps = description(quotas, request.components, strict=request.strict)
        return steps if len(quotas) > CHUNK_ELEMENTS else at_once(steps)

    def decided(request: AlterClientQuotasRequest, context: RequestContext) -> Completion[Message]:
        return submit_for(context, request, composition.metadata, composition.node_id)

    decided_in_parts = in_parts(decided, _not_altered, ("entries",), ("entries",), once=_parts_of_entity)

    def alter(request: AlterClientQuotasRequest, context: RequestContext) -> Any:
        if not context.authorize("AlterConfigs", "Cluster", CLUSTER):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        return decided_in_parts(request, context)

    return [
        ApiHandler(key=48, min_version=0, max_version=1, handle=describe, error_response=_not_described),
        ApiHandler(
            key=49,
            min_version=0,
            max_version=1,
            listeners=("broker", "controller"),
            handle=alter,
            error_response=errors_by_elements(_not_altered, ("entries",), ("entries",)),
        ),
    ]


def check_components(components: Sequence[ComponentData]) -> None:
    """Check the filter of DescribeClientQuotas.

    :raises BrokerError: INVALID_REQUEST: a type twice, an unknown match, ``ip`` beside another; UNSUPPORTED_VERSION for
        an unknown type
    """
    kinds = [component.entity_type for component in components]
    for component in components:
        kind = component.entity_type
        if kinds.count(kind) > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"the entity type {kind} is named twice")
        if kind not in KEYS:
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"unknown entity type {kind}")
        if component.match_type not in (EXACT, DEFAULT, SPECIFIED):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"unknown match type {component.match_type}")
    if IP in kinds and len(kinds) > 1:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "ip stands beside no other entity type")


def description(
    quotas: Quotas, components: Sequence[ComponentData], *, strict: bool
) -> Steps[DescribeClientQuotasResponse]:
    """The entities that match every component, each type once. ``quotas`` must not change between the steps.

    :param strict: only entities that have no other part
    """
    entries: list[EntryData] = []
    cost = 0
    for entity, values in quotas.items():
        if _matches(entity, components, strict=strict):
            entries.append(_entry(entity, values))
            cost += DESCRIBED_COST
        cost += 1
        if cost >= STEP_ELEMENTS:
            cost = 0
            yield None
    return DescribeClientQuotasResponse(error_message=None, entries=entries)


def _entry(entity: Entity, values: Mapping[str, float]) -> EntryData:
    return EntryData(
        entity=[
            EntityData(entity_type=kind, entity_name=name)
            for kind, name in sorted(entity, key=lambda part: part[0])
        ],
        values=[ValueData(key=key, value=value) for key, value in sorted(values.items())],
    )


def _matches(entity: Entity, components: Sequence[ComponentData], *, strict: bool) -> bool:
    parts = dict(entity)
    for component in components:
        if component.entity_type not in parts:
            return False
        name = parts[component.entity_type]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return not strict or len(parts) == len(components)


def _parts_of_entity(entry: RequestEntryData) -> Hashable:
    return frozenset((part.entity_type, part.entity_name) for part in entry.entity)


def _not_described(_request: Any, code: int, message: str | None) -> Message:
    return DescribeClientQuotasResponse(error_code=code, error_message=message, entries=None)


def _not_altered(request: AlterClientQuotasRequest, code: int, message: str | None) -> Message:
    return AlterClientQuotasResponse(
        entries=[
            ResponseEntryData(error_code=code, error_message=message, entity=entry.entity)
            for entry in request.entries
        ]
    )

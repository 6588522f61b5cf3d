"""Dynamic configuration of topics, brokers and groups: IncrementalAlterConfigs and AlterConfigs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from blumfeld.config.definitions import BUILD_KEY
from blumfeld.config.values import (
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigDef,
    ConfigError,
    check_topic_configs,
    parse,
)
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.partitions.eligible import check_min_isr, with_elr_cleared
from blumfeld.metadata.topics.creation import check_tiered_name, check_topic_name
from blumfeld.spi.cluster import BROKER_RESOURCE, GROUP_RESOURCE, TOPIC_RESOURCE
from blumfeld.wire.errors import BrokerError, ErrorCode, message_of
from blumfeld.wire.messages import alter_configs as legacy
from blumfeld.wire.messages import incremental_alter_configs as incremental
from blumfeld.wire.messages.metadata_records import ConfigRecord
from blumfeld.wire.schema import Message

SET, DELETE, APPEND, SUBTRACT = range(4)
_TABLES = {TOPIC_RESOURCE: TOPIC_CONFIGS, BROKER_RESOURCE: BROKER_CONFIGS, GROUP_RESOURCE: GROUP_CONFIGS}
_NAMES = {TOPIC_RESOURCE: "topic", GROUP_RESOURCE: "group"}
R = TypeVar("R", incremental.AlterConfigsResourceResponse, legacy.AlterConfigsResourceResponse)


class _Edit(NamedTuple):
    name: str
    operation: int
    value: str | None


def incremental_alter_configs(
    state: ControllerState, request: incremental.IncrementalAlterConfigsRequest, _moment: Moment
) -> ControllerDecision:
    """Set, delete, append to and subtract from values. Each resource is changed completely or not at all.

    Errors of a resource: INVALID_REQUEST, INVALID_CONFIG, UNKNOWN_TOPIC_OR_PARTITION,
    INVALID_TOPIC_EXCEPTION, BROKER_ID_NOT_REGISTERED.
    """

    def edits(resource: Any, _old: Mapping[str, str]) -> list[_Edit]:
        return [_Edit(c.name, c.config_operation, c.value) for c in resource.configs]

    records, results = _alter(state, request.resources, edits, incremental.AlterConfigsResourceResponse)
    response = incremental.IncrementalAlterConfigsResponse(responses=results)
    return ControllerDecision([] if request.validate_only else records, response)


def alter_configs(
    state: ControllerState, request: legacy.AlterConfigsRequest, _moment: Moment
) -> ControllerDecision:
    """Replace all values of a resource: keys that the request omits are deleted. Errors as
    :func:`incremental_alter_configs`.
    """

    def edits(resource: Any, old: Mapping[str, str]) -> list[_Edit]:
        named = {c.name for c in resource.configs}
        gone = [_Edit(name, DELETE, None) for name in old if name not in named]
        return [_Edit(c.name, SET, c.value) for c in resource.configs] + gone

    records, results = _alter(state, request.resources, edits, legacy.AlterConfigsResourceResponse)
    response = legacy.AlterConfigsResponse(responses=results)
    return ControllerDecision([] if request.validate_only else records, response)


def _alter(
    state: ControllerState,
    resources: Sequence[Any],
    edits: Callable[[Any, Mapping[str, str]], list[_Edit]],
    result_class: type[R],
) -> tuple[list[Message], list[R]]:
    times = Counter((r.resource_type, r.resource_name) for r in resources)
    records: list[Message] = []
    results = []
    for resource in resources:
        kind, name = resource.resource_type, resource.resource_name
        result = result_class(resource_type=kind, resource_name=name, error_message=None)
        results.append(result)
        try:
            if times[kind, name] > 1:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            _check_resource(state, kind, name)
            old = state.image.config(kind, name)
            records += _records(state, kind, name, old, edits(resource, old))
        except BrokerError as error:
            result.error_code, result.error_message = error.code, error.message or message_of(error.code)
    return with_elr_cleared(state, records), results


def _check_resource(state: ControllerState, kind: int, name: str) -> None:
    image = state.image
    if kind not in _TABLES:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {kind}.")
    if kind != BROKER_RESOURCE and not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Default {_NAMES[kind]} resources are not allowed.")
    if kind == TOPIC_RESOURCE:
        check_topic_name(name)
        if name not in image.topics:
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if kind == BROKER_RESOURCE and name:
        if not name.isascii() or not name.isdigit():
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Invalid broker name {name}")
        if int(name) not in image.brokers:
            raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"Broker {name} is not registered")


def _records(
    state: ControllerState, kind: int, name: str, old: Mapping[str, str], edits: list[_Edit]
) -> list[Message]:
    if len({edit.name for edit in edits}) != len(edits):
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    new = dict(old)
    changed: dict[str, str | None] = {}
    for edit in edits:
        value = _checked(state, kind, name, edit, old.get(edit.name))
        if value is not None and value != old.get(edit.name):
            _check_effect(state, kind, edit.name, value)
        if value is None:
            new.pop(edit.name, None)
        else:
            new[edit.name] = value
        # A broker's unchanged value is written again, as in Kafka, so that brokers reload the files that it
        # names (KAFKA-14136).
        if value != old.get(edit.name) or kind == BROKER_RESOURCE:
            check_min_isr(state, kind, name, edit.name, value)
            changed[edit.name] = value
    if kind == TOPIC_RESOURCE:
        known = {key: value for key, value in new.items() if key in TOPIC_CONFIGS}
        was_tiered = state.config.tiers and old.get("remote.storage.enable") == "true"
        config = check_topic_configs(known, state.image.broker_config(state.config), was_tiered=was_tiered)
        if "remote.storage.enable" in changed:
            check_tiered_name(name, config)
    if kind == GROUP_RESOURCE and changed:
        _check_group(state, new)
    return [
        ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
        for key, value in changed.items()
    ]


def _checked(state: ControllerState, kind: int, name: str, edit: _Edit, old: str | None) -> str | None:
    """Returns the value after the edit; ``None`` if there is none.

    :raises BrokerError: INVALID_CONFIG; for a broker's key INVALID_REQUEST, because a Kafka broker
        validates such a request itself before it forwards it
    """
    if edit.name == BUILD_KEY:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: {BUILD_KEY}; it says what the broker is made of",
        )
    if edit.operation == DELETE and edit.name not in _TABLES[kind]:
        return None
    defn = _definition(kind, name, edit)
    value = _edited(state, kind, defn, edit, old)
    if value is None:
        return None
    try:
        parse(defn, value)
    except ConfigError as error:
        if kind != BROKER_RESOURCE:
            raise
        raise BrokerError(ErrorCode.INVALID_REQUEST, error.message) from error
    return value


def _check_effect(state: ControllerState, kind: int, key: str, value: str) -> None:
    """Refuse a new value that would have no effect in this build.

    :raises BrokerError: INVALID_CONFIG or INVALID_REQUEST, as :func:`_checked`
    """
    from blumfeld.config.effects import (
        check_change,
        check_effect,
    )  # imported late: a start without changes needs no table

    defn = _TABLES[kind].find(key)
    try:
        check_effect(defn, value, state.config.abilities)
        check_change(defn, key, value, state.config.abilities)
    except ConfigError as error:
        if kind != BROKER_RESOURCE:
            raise
        raise BrokerError(ErrorCode.INVALID_REQUEST, error.message) from error


def _check_group(state: ControllerState, values: Mapping[str, str]) -> None:
    """Check that a consumer group's intervals lie within the broker's limits (KIP-848).

    :raises ConfigError: an interval is outside its limits
    """
    config = state.image.broker_config(state.config)
    for key in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms"):
        text = values.get(f"consumer.{key}")
        low, high = (config.int(f"group.consumer.{bound}.{key}") for bound in ("min", "max"))
        if text is not None and not low <= int(text) <= high:
            raise ConfigError(
                f"consumer.{key}", text, f"a number from {low} to {high} (group.consumer.*.{key})"
            )
    held = {
        key: int(values.get(f"consumer.{key}", config.int(f"group.consumer.{key}")))
        for key in ("session.timeout.ms", "heartbeat.interval.ms")
    }
    if held["session.timeout.ms"] <= held["heartbeat.interval.ms"]:
        raise ConfigError(
            "consumer.session.timeout.ms",
            held["session.timeout.ms"],
            "more than consumer.heartbeat.interval.ms",
        )


def _definition(kind: int, name: str, edit: _Edit) -> ConfigDef:
    """Returns the key's definition.

    :raises BrokerError: INVALID_REQUEST: unknown operation, null where a value is required, a broker key
        that can't
        be changed at run time; INVALID_CONFIG: no such key
    """
    if edit.operation not in (SET, DELETE, APPEND, SUBTRACT):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"unknown operation {edit.operation} for {edit.name}")
    if edit.value is None and edit.operation != DELETE:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {edit.name}")
    defn = _TABLES[kind].find(edit.name)
    if kind == BROKER_RESOURCE:
        if defn.read_only:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Cannot update these configs dynamically: {edit.name}"
            )
        if not name and defn.update_mode == "per-broker":
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"Cannot update security configs at the default cluster level: {edit.name}",
            )
    return defn


def _edited(state: ControllerState, kind: int, defn: ConfigDef, edit: _Edit, old: str | None) -> str | None:
    if edit.operation == DELETE:
        return None
    if edit.operation == SET:
        return edit.value
    if defn.type != "LIST":
        verb = "APPEND" if edit.operation == APPEND else "SUBTRACT"
        raise ConfigError(edit.name, verb, f"SET or DELETE: can't {verb} to a key whose type is not LIST")
    items = _items(old) if old is not None else _default_items(state, kind, defn)
    given = _items(edit.value or "")
    if edit.operation == APPEND:
        return ",".join(items + [item for item in dict.fromkeys(given) if item not in items])
    return ",".join(item for item in items if item not in given)


def _items(text: str) -> list[str]:
    return [item.strip() for item in text.split(",")] if text.strip() else []


def _default_items(state: ControllerState, kind: int, defn: ConfigDef) -> list[str]:
    value: object = defn.default
    config = state.image.broker_config(state.config)
    if kind == BROKER_RESOURCE:
        value = config.get(defn.name)
    elif defn.server_default_name is not None:
        value = config.get(defn.server_default_name)
    return list(value) if isinstance(value, tuple) else []

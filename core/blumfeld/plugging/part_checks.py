"""Checks the parts that hooks made against their contracts, before anything is opened."""

from __future__ import annotations

import re
from collections.abc import Mapping
from inspect import isfunction
from typing import Any

from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.conformance import problems
from blumfeld.spi.consensus import ClusterMetadata
from blumfeld.spi.context import ApiHandler
from blumfeld.spi.groups import GroupProtocol
from blumfeld.spi.hooks import Feature, Metric
from blumfeld.spi.image_sections import ControllerCommand, ImageSection
from blumfeld.spi.migration import Migration
from blumfeld.spi.observer import Observer
from blumfeld.spi.quotas import ClientQuotas
from blumfeld.spi.replication import Replication
from blumfeld.spi.security import Authorizer, Security
from blumfeld.spi.storage import (
    LastingStorage,
    LogStorage,
    PartitionLog,
    SegmentedLog,
    SeveralDirectories,
)
from blumfeld.spi.transactions import TransactionCoordinator
from blumfeld.spi.transport import Transport
from blumfeld.wire.errors import PluginContractError

PROTOCOLS: dict[str, type[Any]] = {
    "blumfeld_make_transport": Transport,
    "blumfeld_make_storage": LogStorage,
    "blumfeld_make_migration": Migration,
    "blumfeld_make_consensus": ClusterMetadata,
    "blumfeld_make_replication": Replication,
    "blumfeld_make_authorizer": Authorizer,
    "blumfeld_make_security": Security,
    "blumfeld_make_quotas": ClientQuotas,
    "blumfeld_make_observer": Observer,
    "blumfeld_make_group_protocol": GroupProtocol,
    "blumfeld_make_transactions": TransactionCoordinator,
}
"""Making hook → the Protocol of the part that it must return."""

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*")

ITEMS: dict[str, type[Any]] = {
    "blumfeld_api_handlers": ApiHandler,
    "blumfeld_features": Feature,
    "blumfeld_metrics": Metric,
}
"""Hook that returns a sequence → the type of each item."""

PROTOCOL_ITEMS: dict[str, type[Any]] = {
    "blumfeld_assignors": ConsumerAssignor,
    "blumfeld_controller_commands": ControllerCommand,
    "blumfeld_image_sections": ImageSection,
}
"""Hook that returns a sequence → the Protocol of each item."""


def check_part(plugin: str, hook_name: str, part: Any) -> None:
    """Check a part against its Protocol; also a storage's ``log_class`` and a security's authorizer.

    :raises PluginContractError: it lacks something; the text names the plug-in and every member
    """
    if hook_name == "blumfeld_object_stores":
        _check_stores(plugin, part)
    protocol = PROTOCOLS.get(hook_name)
    if protocol is None:
        return
    lacks = [f"{type(part).__name__}: {line}" for line in problems(part, protocol)]
    if protocol is LogStorage:
        lacks += _storage_problems(part)
    elif protocol is Security and getattr(part, "authorizer", None) is not None:
        lacks += [f"its authorizer: {line}" for line in problems(part.authorizer, Authorizer)]
    if lacks:
        raise PluginContractError(
            f"plug-in {plugin}: what {hook_name} made is no {protocol.__name__} ({protocol.__module__}): "
            + "; ".join(lacks)
        )


def _storage_problems(storage: Any) -> list[str]:
    """Returns the faults of a storage: an optional part that it has only in part, and members that its log class
    lacks."""
    lacks = []
    for optional in (LastingStorage, SeveralDirectories):
        if any(hasattr(storage, name) for name in _own(optional)):
            lacks += [f"it is no {optional.__name__}: {line}" for line in problems(storage, optional)]
    log_class = getattr(storage, "log_class", None)
    if log_class is None:
        return lacks  # it is among them already
    if not isinstance(log_class, type):
        return [*lacks, f"log_class is {log_class!r}, not a class"]
    name = log_class.__name__
    if missing := problems(log_class, PartitionLog):
        return [*lacks, *(f"its log_class {name}: {line}" for line in missing)]
    if any(hasattr(log_class, member) for member in _own(SegmentedLog)) or storage.compacts:
        why = "compacts is true, and " if storage.compacts else ""
        lacks += [
            f"{why}its log_class {name} is no SegmentedLog: {o}" for o in problems(log_class, SegmentedLog)
        ]
    return lacks


def _own(protocol: type[Any]) -> list[str]:
    """Returns the methods that this Protocol adds to the one that it extends."""
    return [
        name for name, member in vars(protocol).items() if isfunction(member) and not name.startswith("_")
    ]


def check_given(plugin: str, hook_name: str, answer: Any) -> None:
    """Check the items that a hook returned in a sequence.

    :raises PluginContractError: an item is something else
    """
    protocol = PROTOCOL_ITEMS.get(hook_name)
    if protocol is not None:
        for item in answer:
            if lacks := problems(item, protocol):
                raise PluginContractError(
                    f"plug-in {plugin}: {type(item).__name__} is no {protocol.__name__}: {'; '.join(lacks)}"
                )
    kind = ITEMS.get(hook_name)
    if kind is None:
        return
    for item in answer:
        if not isinstance(item, kind):
            raise PluginContractError(
                f"plug-in {plugin}: {hook_name} gave {item!r}, which is no {kind.__name__}"
            )


def _check_stores(plugin: str, stores: Any) -> None:
    if not isinstance(stores, Mapping):
        raise PluginContractError(
            f"plug-in {plugin}: blumfeld_object_stores gave {stores!r}, which is no mapping"
        )
    for scheme, factory in stores.items():
        if not isinstance(scheme, str) or _SCHEME.fullmatch(scheme) is None or not callable(factory):
            allowed = "the scheme of a URL, and a function that makes the store"
            raise PluginContractError(
                f"plug-in {plugin}: blumfeld_object_stores gave {scheme!r}: {factory!r}; allowed: {allowed}"
            )

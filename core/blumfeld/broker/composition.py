"""The parts of a node that the kernel hands the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from blumfeld.spi.hooks import Composition

if TYPE_CHECKING:
    from blumfeld.spi.groups import GroupProtocol
    from blumfeld.spi.hooks import Feature
    from blumfeld.spi.observer import Observer
    from blumfeld.spi.quotas import ClientQuotas
    from blumfeld.spi.replication import Replication
    from blumfeld.spi.security import Authorizer
    from blumfeld.spi.transactions import TransactionCoordinator


class Announcements(Protocol):
    """pluggy's hooks for rare events."""

    blumfeld_topic_created: Callable[..., object]
    blumfeld_topic_deleted: Callable[..., object]
    blumfeld_leader_changed: Callable[..., object]


class BrokerComposition(Composition, Protocol):
    """The parts of a node that the broker needs, and that plug-ins are not handed."""

    rack: str | None
    single_node: bool
    """Whether the manifest names no other node: then internal topics have as many replicas as there are brokers."""
    features: tuple[Feature, ...]
    group_protocols: tuple[GroupProtocol, ...]
    transactions: TransactionCoordinator | None
    hook: Announcements
    authorizer: Authorizer | None
    quotas: ClientQuotas | None
    observers: tuple[tuple[str, Observer], ...]
    """(name of the plug-in, its observer)."""
    plan_json: Callable[[], str]
    """Returns the document of the node's plan: the value of ``blumfeld.build``."""

    @property
    def replication(self) -> Replication:
        """The node's replication."""
        ...

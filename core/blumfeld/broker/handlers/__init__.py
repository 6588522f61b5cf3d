"""The broker's own APIs, one file each: the file list is the support matrix.

A module is imported with the first request of its API, so that a start pays for none. Each module has
``handlers(ports)``, which returns its ``ApiHandler``. A test compares the table below with these.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from blumfeld.broker.ports import Ports
from blumfeld.spi.context import ApiHandler, LazyHandler

if TYPE_CHECKING:
    from blumfeld.broker.handlers.groups.common import GroupPorts
    from blumfeld.spi.groups import GroupProtocol


class Row(NamedTuple):
    """One module with the API key, versions and listeners that it serves."""

    module: str
    key: int
    min_version: int
    max_version: int
    listeners: tuple[str, ...] = ("broker",)
    advertised_min: int | None = None
    needs_coordinator: bool = False
    """The API is served only where a coordinator of any kind is composed."""
    needs_transactions: bool = False
    """The API is served only where transactions are coordinated."""
    where_forwarded: bool = False
    """The API is served only where nodes forward to the controller: Kafka has it for KRaft alone."""
    without_authorizer: bool = False
    """The API is served only where no authorizer is composed. An authorizer brings its own APIs on ACLs."""

    @property
    def on_groups(self) -> bool:
        """Whether it is handed the ports of groups, not those of the broker."""
        return self.module.startswith("groups.")


TABLE = (
    Row("broker.api_00_produce", 0, 3, 13, advertised_min=0),
    Row("broker.api_01_fetch", 1, 4, 18),
    Row("broker.api_02_list_offsets", 2, 1, 11),
    Row("broker.api_03_metadata", 3, 0, 13),
    Row("groups.api_08_offset_commit", 8, 2, 10),
    Row("groups.api_09_offset_fetch", 9, 1, 10),
    Row("broker.api_10_find_coordinator", 10, 0, 6, needs_coordinator=True),
    Row("groups.api_15_describe_groups", 15, 0, 6),
    Row("groups.api_16_list_groups", 16, 0, 5),
    Row("broker.api_18_api_versions", 18, 0, 4, listeners=("broker", "controller")),
    Row("broker.api_19_create_topics", 19, 2, 7, listeners=("broker", "controller")),
    Row("broker.api_20_delete_topics", 20, 1, 6, listeners=("broker", "controller")),
    Row("broker.api_21_delete_records", 21, 0, 2),
    Row("broker.api_22_init_producer_id", 22, 0, 5),
    Row("broker.api_23_offset_for_leader_epoch", 23, 2, 4),
    Row("broker.api_27_write_txn_markers", 27, 1, 2),
    Row("groups.api_28_txn_offset_commit", 28, 0, 5, needs_transactions=True),
    Row("broker.api_29_describe_acls", 29, 1, 3, listeners=("broker", "controller"), without_authorizer=True),
    Row("broker.api_30_create_acls", 30, 1, 3, listeners=("broker", "controller"), without_authorizer=True),
    Row("broker.api_31_delete_acls", 31, 1, 3, listeners=("broker", "controller"), without_authorizer=True),
    Row("broker.api_32_describe_configs", 32, 1, 4),
    Row("broker.api_33_alter_configs", 33, 0, 2, listeners=("broker", "controller")),
    Row("broker.api_34_alter_replica_log_dirs", 34, 1, 2),
    Row("broker.api_35_describe_log_dirs", 35, 1, 5),
    Row("broker.api_37_create_partitions", 37, 0, 3, listeners=("broker", "controller")),
    Row("groups.api_42_delete_groups", 42, 0, 2),
    Row("broker.api_43_elect_leaders", 43, 0, 2, listeners=("broker", "controller")),
    Row("broker.api_44_incremental_alter_configs", 44, 0, 1, listeners=("broker", "controller")),
    Row("broker.api_45_alter_partition_reassignments", 45, 0, 1, listeners=("broker", "controller")),
    Row("broker.api_46_list_partition_reassignments", 46, 0, 0),
    Row("groups.api_47_offset_delete", 47, 0, 0),
    Row("controller.api_56_alter_partition", 56, 2, 3, listeners=("controller",)),
    Row("broker.api_57_update_features", 57, 0, 2, listeners=("broker", "controller")),
    Row("broker.api_58_envelope", 58, 0, 0, listeners=("controller",)),
    Row("broker.api_60_describe_cluster", 60, 0, 2, listeners=("broker", "controller")),
    Row("broker.api_61_describe_producers", 61, 0, 0),
    Row("controller.api_62_broker_registration", 62, 0, 4, listeners=("controller",)),
    Row("controller.api_63_broker_heartbeat", 63, 0, 2, listeners=("controller",)),
    Row(
        "broker.api_64_unregister_broker", 64, 0, 0, listeners=("broker", "controller"), where_forwarded=True
    ),
    Row("controller.api_67_allocate_producer_ids", 67, 0, 0, listeners=("controller",)),
    Row("controller.api_70_controller_registration", 70, 0, 0, listeners=("controller",)),
    Row("controller.api_73_assign_replicas_to_dirs", 73, 0, 0, listeners=("controller",)),
    Row("broker.api_74_list_config_resources", 74, 0, 1),
    Row("broker.api_75_describe_topic_partitions", 75, 0, 0),
)


def own_handlers(ports: Ports, *, authorizes: bool) -> list[ApiHandler]:
    """Returns the handlers of the APIs that this composition can serve, without those on groups."""
    coordinates = bool(ports.coordinators())
    return [
        lazy_handler(ports, row)
        for row in TABLE
        if not row.on_groups
        and (coordinates or not row.needs_coordinator)
        and (ports.controller.forwards or not row.where_forwarded)
        and not (authorizes and row.without_authorizer)
    ]


def group_handlers(
    ports: GroupPorts, protocols: Sequence[GroupProtocol], transactions: bool = False
) -> list[ApiHandler]:
    """Handlers of everything that this build's groups can do, with the APIs that group types bring."""
    from blumfeld.broker.handlers.groups import group_types

    rows = (row for row in TABLE if row.on_groups and (transactions or not row.needs_transactions))
    return [
        *(lazy_handler(ports, row) for row in rows),
        *group_types.handlers(ports, protocols),
    ]


def lazy_handler(ports: Ports | GroupPorts, row: Row) -> ApiHandler:
    """Returns a handler whose module is imported with the first request."""

    def load() -> list[ApiHandler]:
        handlers: list[ApiHandler] = import_module(f"{__name__}.{row.module}").handlers(ports)
        return handlers

    versions = row.min_version, row.max_version
    return LazyHandler(row.key, load).handler(*versions, row.listeners, row.advertised_min)

"""Configurations that a client changes at this node: decided here, and written under the version of their znode.

Any node of a cluster with a ZooKeeper writes them, as in Kafka 3.9. The controller hears of it as every node does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.controller import command_for
from blumfeld.metadata.decision import ControllerState, Moment
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.sessions import BrokerSessions
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE
from blumfeld.spi.completion import Steps
from blumfeld.spi.zookeeper import (
    BadVersionError,
    Check,
    NodeExistsError,
    NoNodeError,
    ZooKeeper,
    ZooKeeperError,
)
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.metadata_records import ConfigRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import TreeError, decode_controller
from blumfeld_consensus_zk_compat.tree.forms_configs import config_entity, decode_config
from blumfeld_consensus_zk_compat.tree.image_entities import changed_entity
from blumfeld_consensus_zk_compat.tree.writing import config_operations

COMMANDS = frozenset({"AlterConfigsRequest", "IncrementalAlterConfigsRequest"})
ATTEMPTS = 5
"""Writes of one entity that others may be faster with."""


async def alter_configs(
    command: Message,
    *,
    zookeeper: ZooKeeper,
    image: NodeImage,
    config: BrokerConfig,
    moment: Callable[[], Moment],
    in_migration: bool = False,
) -> Message:
    """Decide, write, and answer when the image has it.

    :raises BrokerError: INVALID_REQUEST: a tree has no such resource; NOT_CONTROLLER (retriable): no server is
        reached, and what is written isn't known; INVALID_UPDATE_VERSION: others wrote it again and again;
        UNKNOWN_SERVER_ERROR: the znode that is to be changed can't be read
    """
    decide = command_for(type(command).__name__)
    assert decide is not None
    state = ControllerState(image=image.image, config=config, features={}, sessions=BrokerSessions(0))
    decision = decide(state, command, moment())
    records: list[Message] = list(decision.records)
    while decision.rest is not None:
        decision = decision.rest(state, moment())
        records += decision.records
    try:
        for entity, changes in _by_entity(records).items():
            values = await _written(zookeeper, entity, changes, in_migration=in_migration)
            await image.step(partial(_entity_step, entity, values))
    except BadVersionError as error:
        raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION, str(error)) from error
    except ZooKeeperError as error:
        raise BrokerError(ErrorCode.NOT_CONTROLLER, str(error)) from error
    except TreeError as error:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    return decision.response


def _entity_step(entity: str, values: Mapping[str, str], image: MetadataImage) -> Steps[Sequence[Message]]:
    """A step of the image that gives an entity these values and no others."""
    yield from ()
    return changed_entity(image, entity, values)


def _by_entity(records: Sequence[Message]) -> dict[str, list[ConfigRecord]]:
    by_entity: dict[str, list[ConfigRecord]] = {}
    for record in records:
        assert isinstance(record, ConfigRecord)
        if record.resource_type not in (TOPIC_RESOURCE, BROKER_RESOURCE):
            raise BrokerError(
                ErrorCode.INVALID_REQUEST,
                f"a ZooKeeper keeps no configuration of resource type {record.resource_type}; allowed: topics "
                f"({TOPIC_RESOURCE}) and brokers ({BROKER_RESOURCE})",
            )
        entity = config_entity(record.resource_type, record.resource_name)
        by_entity.setdefault(entity, []).append(record)
    return by_entity


async def _no_kraft(zookeeper: ZooKeeper) -> Check:
    """Returns the check that no controller of KRaft has taken the tree over: it reads no configuration any more.

    :raises BrokerError: NOT_CONTROLLER: one has
    """
    epoch = await zookeeper.get(paths.CONTROLLER_EPOCH)
    try:
        node = await zookeeper.get(paths.CONTROLLER)
    except NoNodeError:
        return Check(paths.CONTROLLER_EPOCH, epoch.stat.version)
    if decode_controller(paths.CONTROLLER, node.data).kraft_controller_epoch >= 0:
        raise BrokerError(ErrorCode.NOT_CONTROLLER, "a controller of KRaft has the cluster: ask again")
    return Check(paths.CONTROLLER_EPOCH, epoch.stat.version)


async def _written(
    zookeeper: ZooKeeper, entity: str, changes: Sequence[ConfigRecord], *, in_migration: bool
) -> dict[str, str]:
    path = paths.config(entity)
    for _ in range(ATTEMPTS):
        fence = [await _no_kraft(zookeeper)] if in_migration else []
        values: dict[str, str] = {}
        version = None
        try:
            node = await zookeeper.get(path)
            values, version = dict(decode_config(path, node.data)), node.stat.version
        except NoNodeError:
            pass
        for record in changes:
            if record.value is None:
                values.pop(record.name, None)
            else:
                values[record.name] = record.value
        try:
            await zookeeper.multi([*fence, *config_operations(entity, values, version)])
        except (BadVersionError, NodeExistsError, NoNodeError):
            continue
        return values
    raise BadVersionError(path, "others wrote it again and again")

"""What a client changes at this node, and any node of a cluster with a ZooKeeper writes, as in Kafka 3.9:
configurations, quotas, credentials, ACLs, delegation tokens.

It is decided here, and written under the version of its znode. The controller hears of it as every node does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial

from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import Moment
from blumfeld.spi.consensus import OnBehalf
from blumfeld.spi.runtime import Runtime, pause
from blumfeld.spi.zookeeper import (
    BadVersionError,
    Check,
    NodeExistsError,
    NoNodeError,
    ZooKeeper,
    ZooKeeperError,
)
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.node.configuration import node_step
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import NoFormError, TreeError, decode_controller
from blumfeld_consensus_zk_compat.tree.limits import check_fits
from blumfeld_consensus_zk_compat.tree.merging import NodeChange, node_changes, notification
from blumfeld_consensus_zk_compat.tree.versions import KnownAcls

CONFIG_COMMANDS = frozenset({"AlterConfigsRequest", "IncrementalAlterConfigsRequest"})
ATTEMPTS = 10
"""Writes of one znode that others may be faster with, as many as in Kafka."""
RETRY_MS = 50.0
"""The longest pause before the next of them."""


async def write_own(
    command: Message,
    on_behalf: OnBehalf | None,
    *,
    zookeeper: ZooKeeper,
    runtime: Runtime,
    catch_up: Callable[[], Awaitable[None]],
    image: NodeImage,
    acls: KnownAcls,
    controller: Callable[[], Controller],
    moment: Callable[[], Moment],
    in_migration: bool = False,
) -> Message:
    """Decide, write, and answer when the image has it.

    Znodes are written one after the other, as by Kafka: one that fails leaves those before it.

    :param catch_up: brings the image to what anybody was told is written. So a deletion takes an ACL that another node
        has just created
    :param acls: as the node's image has them; kept up with it
    :param controller: makes one over the node's image
    :raises BrokerError: what the command raised; INVALID_REQUEST: a tree has no such resource; NOT_CONTROLLER
        (retriable): no server is reached, and what is written isn't known; INVALID_UPDATE_VERSION: others wrote it
        again and again; UNKNOWN_SERVER_ERROR: the znode that is to be changed can't be read
    """
    try:
        await catch_up()
        decider = controller()
        decision = decider.command(command, moment(), on_behalf)
        records = list(decision.records)
        while decision.rest is not None:
            decision = decision.rest(decider.state, moment())
            records += decision.records
        check_fits(records, image.image, lambda _: True)
        for change in node_changes(records, acls):
            data = await _written(zookeeper, runtime, change, in_migration=in_migration)
            await image.step(partial(node_step, acls, change.path, data))
    except NoFormError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, str(error)) from error
    except BadVersionError as error:
        raise BrokerError(ErrorCode.INVALID_UPDATE_VERSION, str(error)) from error
    except ZooKeeperError as error:
        raise BrokerError(ErrorCode.NOT_CONTROLLER, str(error)) from error
    except TreeError as error:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
    return decision.response


async def _written(
    zookeeper: ZooKeeper, runtime: Runtime, change: NodeChange, *, in_migration: bool
) -> bytes | None:
    """Returns what the znode holds now."""
    for _ in range(ATTEMPTS):
        fence = [await _no_kraft(zookeeper)] if in_migration else []
        before = version = None
        with suppress(NoNodeError):
            node = await zookeeper.get(change.path)
            before, version = node.data, node.stat.version
        data = change.merged(before)
        try:
            await zookeeper.multi([*fence, *change.operations(data, version)])
        except (BadVersionError, NodeExistsError):
            await pause(runtime, RETRY_MS * runtime.random.random())
            continue
        except NoNodeError:
            await _make_above(zookeeper, change)
            continue
        return data
    raise BadVersionError(change.path, "others wrote it again and again")


async def _make_above(zookeeper: ZooKeeper, change: NodeChange) -> None:
    for above in (*paths.above(change.path), *paths.above(notification(change.path).path)):
        with suppress(NodeExistsError):
            await zookeeper.create(above)


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

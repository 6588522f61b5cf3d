"""Asks the nodes of one manifest as they ask each other: on the listener between brokers, with the node's own login.

The parts are those of a node that never starts: its transport dials, its security logs in.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from blumfeld.cli.cluster.questions import first_leader, leader_in, quorum_request
from blumfeld.client.channel import Channel, ChannelSettings
from blumfeld.kernel.composing.plan import Plan
from blumfeld.kernel.node import Node
from blumfeld.kernel.process import loop_factory
from blumfeld.kernel.runtime.short_lived_runtime import short_lived_runtime
from blumfeld.kernel.watching.event_log import EventLogs, Render
from blumfeld.plugging.errors import ManifestError
from blumfeld.spi.cluster import Endpoint
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import CompositionRefused
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.errors import BrokerError, PluginContractError
from blumfeld.wire.messages.describe_quorum import DescribeQuorumResponse
from blumfeld.wire.schema import Message

ANSWER_MS_MAX = 3_000
"""Longest wait for an answer, with TLS and the login before it."""


def quorum_leader_of(plans: Sequence[Plan]) -> int | None:
    """Return the node id of the quorum's leader, from the first node that answers with it; ``None`` without a leader.

    It has a loop of its own, so it is called off every other one.

    :raises OSError: no node answers, with the reason of the last one; or this one can't be made any more, as where its
        login's file has gone
    """
    try:
        with asyncio.Runner(loop_factory=loop_factory(plans[0])) as runner:
            return runner.run(_asked(plans))
    except (ManifestError, PluginContractError, CompositionRefused) as error:
        raise OSError(str(error)) from error


async def _asked(plans: Sequence[Plan]) -> int | None:
    async with short_lived_runtime() as runtime:
        node = Node(plans[0], runtime, EventLogs(_silence))
        channels = [_channel(node, runtime, endpoint) for plan in plans if (endpoint := _endpoint(plan)).port]
        try:
            return await first_leader([_leader(channel) for channel in channels])
        except BrokerError as error:
            raise OSError(str(error)) from error
        finally:
            for channel in channels:
                channel.stop()
            await node.composition.transport.stop(0)


def _endpoint(plan: Plan) -> Endpoint:
    listener = next(listener for listener in plan.listeners if listener.inter_broker)
    return Endpoint(
        listener.name, listener.advertised_host or listener.host, listener.advertised_port or listener.port
    )


def _channel(node: Node, runtime: Runtime, endpoint: Endpoint) -> Channel:
    composition = node.composition
    security = composition.security
    return Channel(
        runtime,
        composition.transport,
        lambda: endpoint,
        f"{endpoint.host}:{endpoint.port}",
        ChannelSettings(client_id="blumfeld-supervisor"),
        None if security is None else security.peer(endpoint.listener),
    )


async def _leader(channel: Channel) -> int | None:
    answer: Completion[Message] = channel.send(quorum_request(), ANSWER_MS_MAX)
    message = await answer
    assert isinstance(message, DescribeQuorumResponse)
    return leader_in(message)


def _silence() -> Render:
    return lambda *_: None

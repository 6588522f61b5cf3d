"""``blumfeld run`` with ``nodes = N``: a supervisor of N processes, each of which is `blumfeld run … --node ID`."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Sequence
from functools import partial

from blumfeld import __version__
from blumfeld.cli.own_command import own_command
from blumfeld.cli.peer_questions import quorum_leader_of
from blumfeld.config.addresses import address_text
from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.manifest.sections import Manifest
from blumfeld.kernel.node import StartError
from blumfeld.kernel.runtime.short_lived_runtime import short_lived_runtime
from blumfeld.kernel.supervising.derivation import node_manifests
from blumfeld.kernel.supervising.preparation import prepare_nodes
from blumfeld.kernel.supervising.supervisor import SupervisedNode, Supervisor, run_on_a_loop
from blumfeld.kernel.watching.event_log import EventLogs, structlog_renderer
from blumfeld.plugging.errors import Faults
from blumfeld.spi.transport import Listener


def run_nodes(manifest: Manifest, source: str, arguments: Sequence[str], faults: Faults) -> int:
    """Run all nodes until SIGTERM or SIGINT.

    :param arguments: of this `blumfeld run`; each node gets them too
    :param faults: what was wrong already when the manifest was read
    :return: 0 after a clean stop, 1 if a node could not start, 2 if a node's manifest can't be run
    :raises ManifestError: no nodes can be derived from the manifest, one can't be run, or a directory is of another
        node or cluster
    :raises PluginContractError: a plug-in broke its contract
    :raises StartError: a directory can't be used
    """
    plans = [
        make_plan(node, source, faults=faults, written=manifest)
        for node in node_manifests(manifest, source, faults)
    ]
    gc.enable()
    try:
        asyncio.run(_prepare(manifest, plans))
    except (OSError, ValueError) as error:
        raise StartError("directories", error) from error
    logs = EventLogs(structlog_renderer(manifest.logging.format), manifest.logging.level)
    logs.port_is_open(lambda prepare, use: use(prepare()))
    try:
        return run_on_a_loop(partial(_supervise, plans, tuple(arguments), logs))
    finally:
        logs.flush()


async def _prepare(manifest: Manifest, plans: Sequence[Plan]) -> None:
    async with short_lived_runtime() as runtime:
        prepare_nodes(manifest, plans, runtime)


async def _supervise(plans: Sequence[Plan], arguments: Sequence[str], logs: EventLogs) -> int:
    nodes = [
        SupervisedNode(
            plan.manifest.node.id,
            _command(plan.manifest.node.id, arguments),
            is_controller="controller" in plan.manifest.node.roles,
        )
        for plan in plans
    ]
    addresses = [_client_address(plan) for plan in plans]
    supervisor = Supervisor(
        nodes,
        logs.named("supervisor"),
        partial(asyncio.to_thread, quorum_leader_of, plans),
        lambda: _say_ready(len(plans), addresses),
    )
    return await supervisor.run()


def _command(node_id: int, arguments: Sequence[str]) -> list[str]:
    return [*own_command(), "run", *arguments, "--node", str(node_id), "--supervisor", str(os.getpid())]


def _client_address(plan: Plan) -> tuple[str, int]:
    listener: Listener = next(candidate for candidate in plan.listeners if candidate.kind == "broker")
    return listener.advertised_host or listener.host, listener.advertised_port or listener.port


def _say_ready(count: int, addresses: Sequence[tuple[str, int]]) -> None:
    servers = ",".join(address_text(*address) for address in addresses if address[1])
    print(f"blumfeld {__version__}: all {count} nodes serve; bootstrap.servers={servers}", flush=True)

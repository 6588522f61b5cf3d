"""Finds the nodes of a cluster from the address of one broker. It may run anywhere, and be of another build."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from blumfeld.cli.cluster.questions import asked, known_metadata, not_let_in, patience_s, quorum_answer
from blumfeld.cli.cluster.state import ClusterError, ClusterState, NodeState
from blumfeld.client.security.command_config import PLAINTEXT, ClientSecurity
from blumfeld.wire.messages.describe_quorum import DescribeQuorumResponse
from blumfeld.wire.messages.metadata import MetadataResponse

Address = tuple[str, int]


def addresses_of(text: str) -> list[Address]:
    """Return the addresses of ``HOST:PORT,HOST:PORT``.

    :raises ClusterError: it is something else
    """
    addresses = []
    for address in text.split(","):
        host, _, port = address.strip().rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise ClusterError(
                f"--bootstrap: found {address.strip()!r}; allowed: HOST:PORT, or several with commas"
            )
        addresses.append((host.strip("[]"), int(port)))
    return addresses


async def discovered(addresses: Sequence[Address], security: ClientSecurity = PLAINTEXT) -> ClusterState:
    """Return the nodes that the first broker which answers knows.

    :raises ClusterError: none answers
    """
    for address in addresses:
        known, quorum = await asyncio.gather(
            asked(*address, known_metadata, security), asked(*address, quorum_answer, security)
        )
        if known is not None:
            return ClusterState(nodes=nodes_of(known.metadata, quorum))
    if (reason := await not_let_in(addresses, security)) is not None:
        raise ClusterError(f"--bootstrap: {reason}")
    tried = ", ".join(f"{host}:{port}" for host, port in addresses)
    raise ClusterError(
        f"--bootstrap: no broker answered at {tried} within {patience_s(security):g} s. Name the broker listener "
        "of a node that runs, not its controller listener"
        + "; --command-config FILE logs in where it speaks TLS or SASL"
        * (security.protocol == "PLAINTEXT")
    )


def nodes_of(metadata: MetadataResponse, quorum: DescribeQuorumResponse | None) -> list[NodeState]:
    """Return the brokers and the voters. A broker that isn't live has no address: replicas name it."""
    brokers = {item.node_id: (item.host, item.port) for item in metadata.brokers}
    replicas = {
        node_id for topic in metadata.topics for item in topic.partitions for node_id in item.replica_nodes
    }
    voters = _voters(quorum)
    return [
        _node(node_id, brokers, voters, is_broker=node_id in brokers or node_id in replicas)
        for node_id in sorted({*brokers, *replicas, *voters})
    ]


def _node(
    node_id: int, brokers: Mapping[int, Address], voters: Mapping[int, Address | None], *, is_broker: bool
) -> NodeState:
    controller = voters.get(node_id)
    host, port = brokers.get(node_id) or controller or ("", 0)
    roles = (*(("broker",) if is_broker else ()), *(("controller",) if node_id in voters else ()))
    return NodeState(
        id=node_id,
        roles=roles,
        host=host,
        port=port,
        manifest="",
        log="",
        controller=controller,
        is_ours=False,
    )


def _voters(quorum: DescribeQuorumResponse | None) -> dict[int, Address | None]:
    """Return the controller listener of each voter; ``None`` where the leader doesn't tell it (before version 2)."""
    if quorum is None:
        return {}
    listeners = {node.node_id: node.listeners[0] for node in quorum.nodes if node.listeners}
    voters = [
        voter
        for topic in quorum.topics
        for partition in topic.partitions
        for voter in partition.current_voters
    ]
    return {
        voter.replica_id: (at.host, at.port) if (at := listeners.get(voter.replica_id)) is not None else None
        for voter in voters
    }

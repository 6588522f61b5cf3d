"""The cases that ADR 0033 walks through: each test is a row of its table. Only a refused connection fences at once."""

from __future__ import annotations

import pytest

from blumfeld_kit.simulation.machine.host import ADDRESS, address_of
from blumfeld_kit.simulation.network.network import Wire
from tests.plugins.consensus_kraft.test_three_nodes import Cluster, fenced

BROKER = 4
HOST = address_of(BROKER)
SHORT_S = 5.0
"""Less than ``broker.session.timeout.ms``: whoever is fenced by then was refused."""


@pytest.fixture
def cluster() -> Cluster:
    """Three combined nodes and a broker that is watched."""
    made = Cluster(brokers=1)
    made.start()
    made.until(lambda: made.leader is not None and not fenced(made, made.leader))
    made.wait(1.0)  # a broker opens its listeners after it is unfenced
    return made


def changes(cluster: Cluster, seconds: float) -> list[bool]:
    """Wait, and return each change of the broker's fencing in the controller's image."""
    at = next(node_id for node_id in (1, 2, 3) if is_controller(cluster, node_id))
    samples, is_fenced, end_s = list[bool](), False, cluster.loop.time() + seconds
    while cluster.loop.time() < end_s:
        cluster.wait(0.02)
        assert is_controller(cluster, at), "the quorum has another leader"
        now = BROKER in fenced(cluster, at)
        if now is not is_fenced:
            samples.append(now)
        is_fenced = now
    return samples


def is_controller(cluster: Cluster, node_id: int) -> bool:
    known = cluster.metadata(node_id).controller
    return known is not None and known.node_id == node_id


def break_connections(cluster: Cluster) -> None:
    """Break each connection to the broker, as any device on the way may do."""
    for connection in list(cluster.network.connections.values()):
        if connection.server.site.name == HOST:
            connection.break_off("the network broke it")


def controller_host(cluster: Cluster) -> str:
    assert cluster.leader is not None
    return address_of(cluster.leader)


def test_a_listener_that_is_opened_again_costs_one_fencing(cluster: Cluster) -> None:
    """The next heartbeat unfences the broker. In this epoch its port says nothing any more."""
    cluster.network.close_ports(HOST)
    cluster.wait(0.8)
    cluster.network.open_ports(HOST)
    assert fenced(cluster, cluster.leader or 0) == [BROKER]
    cluster.until(lambda: not fenced(cluster, cluster.leader or 0), SHORT_S)
    cluster.network.close_ports(HOST)
    assert changes(cluster, SHORT_S) == []


def test_a_full_backlog_fences_nobody(cluster: Cluster) -> None:
    """The system drops what asks for a connection, and answers nothing."""
    cluster.network.site(HOST).backlog_full = True
    break_connections(cluster)
    assert changes(cluster, SHORT_S) == []


def test_a_firewall_that_refuses_costs_one_fencing(cluster: Cluster) -> None:
    controller = controller_host(cluster)
    cluster.network.refuse(controller, HOST)
    assert changes(cluster, SHORT_S) == [True, False]
    cluster.network.refuse_no_more(controller, HOST)
    cluster.wait(1.0)
    cluster.network.refuse(controller, HOST)
    assert changes(cluster, SHORT_S) == []


def test_behind_a_proxy_the_session_decides(cluster: Cluster) -> None:
    """The proxy accepts for a process that is gone."""
    cluster.network.site(HOST).behind_proxy = True
    cluster.machines[BROKER].crash(power_cut=False)
    assert changes(cluster, SHORT_S) == []
    cluster.until(lambda: fenced(cluster, cluster.leader or 0) == [BROKER], 10)


def test_where_another_process_took_the_port_the_session_decides(cluster: Cluster) -> None:
    class Stranger:
        def data(self, data: bytes) -> None: ...
        def lost(self, reason: str) -> None: ...

    def accept(wire: Wire) -> Stranger:
        return Stranger()

    cluster.machines[BROKER].crash(power_cut=False)
    cluster.network.listen(HOST, ADDRESS[1], accept)
    assert changes(cluster, SHORT_S) == []
    cluster.until(lambda: fenced(cluster, cluster.leader or 0) == [BROKER], 10)


@pytest.mark.parametrize("out", [True, False], ids=["from the broker", "to the broker"])
def test_a_one_way_cut_refuses_nothing(cluster: Cluster, out: bool) -> None:
    controller = controller_host(cluster)
    way = (HOST, controller) if out else (controller, HOST)
    cluster.network.cut(*way)
    break_connections(cluster)
    assert changes(cluster, SHORT_S) == []
    cluster.network.heal(*way)
    cluster.until(lambda: cluster.leader is not None and not fenced(cluster, cluster.leader), SHORT_S)


@pytest.mark.parametrize("how", ["refuse", "cut out", "cut in", "backlog"])
def test_a_voter_that_alone_loses_its_leader_ends_no_leadership(cluster: Cluster, how: str) -> None:
    """A firewall sends it to an election at once, a cut after its fetch timeout. The others hear the leader."""
    leader = cluster.controller
    follower = next(node_id for node_id in (1, 2, 3) if node_id != leader)
    known = cluster.metadata(leader).controller
    here, there = address_of(follower), address_of(leader)
    if how == "refuse":
        cluster.network.refuse(here, there)
    elif how == "backlog":
        cluster.network.site(there).backlog_full = True
        for connection in list(cluster.network.connections.values()):
            if (connection.client.site.name, connection.server.site.name) == (here, there):
                connection.break_off("the network broke it")
    else:
        cluster.network.cut(*((here, there) if how == "cut out" else (there, here)))
    cluster.wait(SHORT_S)
    assert all(
        cluster.metadata(node_id).controller == known for node_id in cluster.alive if node_id != follower
    )
    cluster.network.heal_all()
    cluster.until(lambda: cluster.leader is not None, 10)

"""A node of a cluster: the quorum's keys fit its id, its roles and its listeners, or the manifest is refused."""

from __future__ import annotations

import pytest

from blumfeld.kernel.node import _is_single_node
from tests.kernel.fakes import assert_refused, plan_of

VOTERS = 'config."controller.quorum.voters"="{}"'.format
SERVERS = 'config."controller.quorum.bootstrap.servers"="{}"'.format
NAMES = 'config."controller.listener.names"="{}"'.format
BROKER = 'node.roles=["broker"]'
CONTROLLER = 'node.roles=["controller"]'
BOTH = (
    "network.listeners=["
    '{name="PLAINTEXT", bind="127.0.0.1:9092"}, {name="C", kind="controller", bind="127.0.0.1:9093"}]'
)
ANY_PORT = BOTH.replace(":9093", ":0")


@pytest.mark.parametrize(
    "overrides",
    [
        (VOTERS("1@h:9093"),),
        (VOTERS("1@h:9093,2@h:9094"), BOTH),
        (SERVERS("h:9093"), BOTH),
        (VOTERS("1@h:9093,2@h:9094"), SERVERS("h:9093"), BOTH),
        (CONTROLLER,),
        (CONTROLLER, VOTERS("1@h:9093,2@h:9094")),
        (BROKER, VOTERS("2@h:9094")),
        (BROKER, SERVERS("h:9094")),
        (BROKER, SERVERS("h:9094"), NAMES("C,OTHER")),
    ],
)
def test_nodes_of_a_cluster(overrides: tuple[str, ...]) -> None:
    plan_of(*overrides)


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (
            (VOTERS("2@h:9093,3@h:9094"), BOTH),
            'config."controller.quorum.voters": found the voters 2, 3; allowed: node 1 (node.id) among them',
        ),
        (
            (VOTERS("1@h"),),
            'config."controller.quorum.voters": found 1@h; allowed: ID@HOST:PORT',
        ),
        (
            (VOTERS("1@h:1,1@h:2"), BOTH),
            'config."controller.quorum.voters": found 1@h:2, and voter 1 before it; allowed: each id once',
        ),
        (
            (SERVERS("h:9093,h:9093"), BOTH),
            'config."controller.quorum.bootstrap.servers": found h:9093 twice; allowed: each address once',
        ),
        (
            (VOTERS("1@h:9093,2@h:9094"),),
            "network.listeners: found no listener of kind controller; allowed: one at least",
        ),
        (
            (SERVERS("h:9093"),),
            "network.listeners: found no listener of kind controller; allowed: one at least",
        ),
        (
            (VOTERS("1@h:9093,2@h:9094"), ANY_PORT),
            'network.listeners[1].bind: found "127.0.0.1:0"; allowed: the port that the other voters are told (9093 in',
        ),
        (
            (BROKER,),
            "node.roles: found a broker without controllers; allowed: the controllers in "
            'config."controller.quorum.voters" or config."controller.quorum.bootstrap.servers"',
        ),
        (
            (BROKER, VOTERS("1@h:9093,2@h:9094")),
            'config."controller.quorum.voters": found voter 1, which is node.id of this broker; allowed: ids of',
        ),
        (
            (BROKER, SERVERS("h:1"), NAMES("PLAINTEXT")),
            'config."controller.listener.names": found PLAINTEXT, a listener of this broker; allowed: the name',
        ),
        (
            (BROKER, SERVERS("h:1"), NAMES("")),
            'config."controller.listener.names": found []; allowed: ',
        ),
        (
            (BROKER, SERVERS("h:1"), BOTH),
            "network.listeners[1].kind: found controller, a role that the node doesn't have; allowed: broker",
        ),
        (
            (VOTERS("1@h:9093"), NAMES("C")),
            'config."controller.listener.names": found "C"; allowed: nothing here: say it in network.listeners[].kind',
        ),
        (
            (BROKER, SERVERS("h:1"), 'config."controller.quorum.auto.join.enable"=true'),
            'config."controller.quorum.auto.join.enable": found true, on a node that is a broker alone',
        ),
        (
            ('config."controller.quorum.voters"=1',),
            'config."controller.quorum.voters": found 1; allowed: ',
        ),
    ],
)
def test_what_cannot_be_names_its_place(overrides: tuple[str, ...], complaint: str) -> None:
    assert_refused(complaint, *overrides)


def test_a_broker_finds_the_controllers_by_their_listeners_name() -> None:
    assert plan_of(BROKER, SERVERS("h:1")).config.list("controller.listener.names") == ("CONTROLLER",)
    named = plan_of(BROKER, SERVERS("h:1"), NAMES("C"))
    assert named.config.list("controller.listener.names") == ("C",)


def test_a_node_that_names_another_is_not_a_single_one() -> None:
    """Internal topics of a single node get one replica; those of a cluster wait for their brokers."""
    assert _is_single_node(plan_of())
    assert _is_single_node(plan_of(VOTERS("1@h:9093")))
    assert not _is_single_node(plan_of(VOTERS("1@h:9093,2@h:9094"), BOTH))
    assert not _is_single_node(plan_of(SERVERS("h:9093"), BOTH))
    assert not _is_single_node(plan_of(BROKER, VOTERS("2@h:9093")))


def test_a_controller_alone_advertises_no_listener_of_a_broker() -> None:
    config = plan_of(CONTROLLER).config
    assert config.list("controller.listener.names") == ("CONTROLLER",)
    assert config.get("advertised.listeners") is None

"""``nodes = N``: the ids, roles, ports, directories and the quorum of each node."""

from __future__ import annotations

import pytest

from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.manifest.sections import listener_sections, read_manifest
from blumfeld.kernel.node import _is_single_node
from blumfeld.kernel.supervising.derivation import node_manifest, node_manifests
from blumfeld.plugging.errors import ManifestError
from tests.kernel import fakes

VOTERS, SERVERS = "controller.quorum.voters", "controller.quorum.bootstrap.servers"


def plans(*overrides: str, listen: str | None = None) -> list[Plan]:
    """The plan of each node: every one of them can be run."""
    manifest = read_manifest(fakes.MANIFEST, "m.toml", overrides=overrides, listen=listen)
    return [
        make_plan(own_manifest, "m.toml", fakes.registry())
        for own_manifest in node_manifests(manifest, "m.toml")
    ]


def binds(plan: Plan) -> list[str]:
    return [section.bind for section in listener_sections(plan.manifest)]


def complaints(*overrides: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        plans(*overrides)
    return str(caught.value).splitlines()


def test_three_nodes_are_three_voters() -> None:
    first_plan, second_plan, third_plan = plans("nodes=3")
    assert [plan.manifest.node.id for plan in (first_plan, second_plan, third_plan)] == [1, 2, 3]
    assert {plan.manifest.node.roles for plan in (first_plan, second_plan, third_plan)} == {
        ("broker", "controller")
    }
    assert [plan.manifest.node.directories for plan in (first_plan, second_plan, third_plan)] == [
        ("data/node-1",),
        ("data/node-2",),
        ("data/node-3",),
    ]
    assert binds(first_plan) == ["127.0.0.1:9092", "127.0.0.1:9093"]
    assert binds(third_plan) == ["127.0.0.1:9112", "127.0.0.1:9113"]
    voters = ("1@127.0.0.1:9093", "2@127.0.0.1:9103", "3@127.0.0.1:9113")
    assert {plan.config.list(VOTERS) for plan in (first_plan, second_plan, third_plan)} == {voters}
    assert [listener.inter_broker for listener in second_plan.listeners] == [True, False]


def test_nodes_beyond_the_third_are_brokers_alone() -> None:
    four = plans("nodes=4", "node.id=11")[3]
    assert four.manifest.node.roles == ("broker",)
    assert four.manifest.node.id == 14
    assert binds(four) == ["127.0.0.1:9122"]
    assert four.config.list(VOTERS) == ("11@127.0.0.1:9093", "12@127.0.0.1:9103", "13@127.0.0.1:9113")
    assert four.config.list("controller.listener.names") == ("CONTROLLER",)


def test_two_nodes_have_one_voter_and_topics_that_two_brokers_can_hold() -> None:
    first_plan, second_plan = plans("nodes=2")
    assert [plan.manifest.node.roles for plan in (first_plan, second_plan)] == [
        ("broker", "controller"),
        ("broker",),
    ]
    assert first_plan.config.list(VOTERS) == second_plan.config.list(VOTERS) == ("1@127.0.0.1:9093",)
    assert first_plan.config.int("offsets.topic.replication.factor") == 2
    assert not _is_single_node(first_plan), "internal topics wait for the other broker"
    given = plans("nodes=2", 'config."offsets.topic.replication.factor"=1')
    assert given[0].config.int("offsets.topic.replication.factor") == 1
    assert plans("nodes=3")[0].config.int("offsets.topic.replication.factor") == 3


def test_every_port_moves_but_any_free_one() -> None:
    listeners = (
        'network.listeners=[{name="A", bind="0.0.0.0:9000", advertised="kafka.example:19000"}, '
        '{name="B", bind="127.0.0.1:0"}, {name="C", kind="controller", bind="[::1]:9001"}]'
    )
    second_plan = plans("nodes=3", listeners, "metrics.bind=127.0.0.1:9100")[1]
    assert binds(second_plan) == ["0.0.0.0:9010", "127.0.0.1:0", "[::1]:9011"]
    assert second_plan.manifest.network.listeners is not None
    assert second_plan.manifest.network.listeners[0].advertised == "kafka.example:19010"
    assert second_plan.manifest.metrics.bind == "127.0.0.1:9110"
    assert second_plan.config.list(VOTERS) == ("1@[::1]:9001", "2@[::1]:9011", "3@[::1]:9021")


def test_the_controllers_port_is_the_next_that_no_node_takes() -> None:
    listeners = 'network.listeners=[{name="A", bind="h:9000"}, {name="B", bind="h:9001"}]'
    assert binds(plans("nodes=3", listeners)[0]) == ["h:9000", "h:9001", "127.0.0.1:9002"]
    nodes = plans("nodes=2", listeners, "metrics.bind=h:9112")
    assert binds(nodes[0])[2] == "127.0.0.1:9003"
    assert binds(plans("nodes=2", listen="127.0.0.1:19092")[0]) == ["127.0.0.1:19092", "127.0.0.1:19093"]


def test_several_directories_stay_apart() -> None:
    second_plan = plans("nodes=2", 'node.data_dirs=["/a", "/b/"]', "storage.plugin=storages_fake")[1]
    assert second_plan.manifest.node.directories == ("/a/node-2", "/b/node-2")
    assert second_plan.manifest.node.data_dir is None


def test_brokers_alone_keep_the_quorum_that_the_manifest_names() -> None:
    first_plan, second_plan = plans(
        "nodes=2", 'node.roles=["broker"]', f'config."{SERVERS}"="h:1"', "node.id=5"
    )
    assert [plan.manifest.node.id for plan in (first_plan, second_plan)] == [5, 6]
    assert second_plan.config.list(SERVERS) == ("h:1",)
    assert second_plan.config.list(VOTERS) == ()
    assert binds(second_plan) == ["127.0.0.1:9102"]


def test_one_of_the_nodes() -> None:
    manifest = read_manifest(None, overrides=["nodes=3"])
    assert node_manifest(manifest, 2, "m.toml") == node_manifests(manifest, "m.toml")[1]
    with pytest.raises(ManifestError, match=r"--node: found 4; allowed: a node of m.toml: 1, 2, 3"):
        node_manifest(manifest, 4, "m.toml")
    alone = read_manifest(None)
    assert node_manifest(alone, 1, "m.toml") == alone


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (("nodes=65",), "nodes: found 65; allowed: 64 at most"),
        (
            ("nodes=2", 'node.roles=["controller"]'),
            "nodes: found 2, with the role controller alone; allowed: 1",
        ),
        (
            ("nodes=2", f'config."{VOTERS}"="1@h:1"'),
            'config."controller.quorum.voters": found "1@h:1"; allowed: nothing here: the nodes make a quorum',
        ),
        (
            ("nodes=2", "node.id=2147483647"),
            "node.id: found 2147483647; allowed: 2147483646 at most, with nodes = 2",
        ),
        (
            (
                "nodes=3",
                'network.listeners=[{name="A", bind="h:9000"}, {name="C", kind="controller", bind="h:0"}]',
            ),
            'network.listeners[1].bind: found "h:0"; allowed: a port: the other nodes',
        ),
        (
            ("nodes=2", 'network.listeners=[{name="A", bind="h:9000"}, {name="B", bind="h:9010"}]'),
            "nodes: found port 9010 for A of node 2, and for B of node 1; allowed: ports of one node that are",
        ),
        (
            ("nodes=8", 'network.listeners=[{name="A", bind="h:65500"}]'),
            "nodes: found port 65540 for A of node 5; allowed: ports up to 65535",
        ),
        (
            ("nodes=2", "metrics.bind=h:9102"),
            "nodes: found port 9102 for PLAINTEXT of node 2, and for metrics of",
        ),
    ],
)
def test_what_cannot_be_derived(overrides: tuple[str, ...], complaint: str) -> None:
    problems = complaints(*overrides)
    assert any(line.startswith(f"m.toml: {complaint}") for line in problems), problems


def test_a_manifest_of_several_nodes_is_no_node() -> None:
    with pytest.raises(ManifestError, match="nodes: found 3; allowed: 1 for one node"):
        fakes.plan_of("nodes=3")

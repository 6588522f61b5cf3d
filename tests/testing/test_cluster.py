"""Where the nodes of a cluster are, and what starts them."""

from __future__ import annotations

from pathlib import Path

from blumfeld.kernel.manifest.sections import read_manifest
from blumfeld.testing.cluster import (
    BROKER,
    CONTROLLER,
    LOOPBACK,
    NODE_SETTINGS,
    filled,
    node_places,
    node_settings,
    voters,
)


def test_every_node_has_an_id_and_two_ports_of_its_own() -> None:
    places = node_places([LOOPBACK] * 3, 24_000)
    assert [place.id for place in places] == [1, 2, 3]
    assert [(place.port, place.controller_port) for place in places] == [
        (24_000, 24_001),
        (24_002, 24_003),
        (24_004, 24_005),
    ]
    assert voters(places) == "1@127.0.0.1:24001,2@127.0.0.1:24003,3@127.0.0.1:24005"
    assert places[2].address == "127.0.0.1:24004"


def test_free_ports_do_not_overlap() -> None:
    places = node_places([LOOPBACK] * 3)
    assert len({port for place in places for port in (place.port, place.controller_port)}) == 6


def test_a_command_is_filled_for_one_node_and_keeps_other_braces() -> None:
    places = node_places(["10.0.0.1", "10.0.0.2"], 9000)
    command = ("x", "{folder}/data", "node.id={id}", "{host}:{port}", "{voters}", "{ bind = 1 }")
    assert filled(command, places[1], places, Path("/f")) == [
        "x",
        "/f/data",
        "node.id=2",
        "10.0.0.2:9002",
        "1@10.0.0.1:9001,2@10.0.0.2:9003",
        "{ bind = 1 }",
    ]


def test_the_settings_make_a_node_of_this_build_one_of_many() -> None:
    places = node_places([LOOPBACK] * 3, 24_000)
    manifest = read_manifest(None, overrides=filled(NODE_SETTINGS, places[1], places, Path("/f")))
    assert manifest.node.id == 2
    assert manifest.config["controller.quorum.voters"] == voters(places)
    assert manifest.network.listeners is not None
    assert [(each.kind, each.bind) for each in manifest.network.listeners] == [
        ("broker", "127.0.0.1:24002"),
        ("controller", "127.0.0.1:24003"),
    ]
    others = read_manifest(None, overrides=filled(NODE_SETTINGS, places[0], places, Path("/f")))
    assert others.node.cluster_id == manifest.node.cluster_id is not None


def test_nodes_of_one_role_have_one_listener_and_only_controllers_vote() -> None:
    places = node_places([LOOPBACK] * 2, 24_000, [BROKER, CONTROLLER])
    assert voters(places) == "2@127.0.0.1:24003"
    assert [place.address for place in places] == ["127.0.0.1:24000", "127.0.0.1:24003"]
    for place, kind in zip(places, ("broker", "controller"), strict=True):
        settings = filled(node_settings(place.roles), place, places, Path("/f"))
        manifest = read_manifest(None, overrides=settings)
        assert manifest.node.roles == place.roles
        assert manifest.network.listeners is not None
        (listener,) = manifest.network.listeners
        assert (listener.kind, listener.bind) == (kind, place.address)

"""The nodes that manifests name."""

from __future__ import annotations

import pytest

from blumfeld.plugging.errors import ManifestError
from blumfeld_storage_tiered.restore.places import NodePlace, places_of


def manifest(node_id: int, *, voters: str = "", roles: str = "", more: str = "") -> str:
    config = f'"controller.quorum.voters" = "{voters}"\n' if voters else ""
    return f'[node]\nid = {node_id}\ndata_dir = "/d{node_id}"\n{roles}\n[config]\n{config}{more}'


THREE = "1@a:1,2@b:1,3@c:1"


def test_a_manifest_without_a_word_is_one_node() -> None:
    (place,) = places_of({"node.toml": ""})
    week_ms = 7 * 24 * 3_600_000
    assert place == NodePlace(
        manifest="node.toml",
        node_id=1,
        is_broker=True,
        directories=("data",),
        min_insync_replicas=1,
        retention_ms=week_ms,
    )


def test_nodes_of_one_manifest_have_directories_of_their_own() -> None:
    places = places_of({"node.toml": 'nodes = 3\n[node]\nid = 7\ndata_dirs = ["/a/", "/b"]\n'})
    assert [(place.node_id, place.directories) for place in places] == [
        (id_, (f"/a/node-{id_}", f"/b/node-{id_}")) for id_ in (7, 8, 9)
    ]


def test_each_manifest_is_a_node() -> None:
    roles = 'roles = ["controller"]'
    more = '"min.insync.replicas" = 2\n"log.retention.hours" = 1\n'
    places = places_of(
        {"a": manifest(1, voters=THREE, more=more), "b": manifest(2, roles=roles), "c": manifest(3)}
    )
    assert [place.is_broker for place in places] == [True, False, True]
    assert (places[0].min_insync_replicas, places[0].retention_ms) == (2, 3_600_000)


def test_a_voter_without_a_manifest_is_named() -> None:
    """It would begin with nothing, could be elected, and the others would follow it."""
    with pytest.raises(
        ManifestError, match=r"found no manifest of node 2, 3; allowed: the manifests of all voters"
    ):
        places_of({"a": manifest(1, voters=THREE)})


@pytest.mark.parametrize(
    ("manifests", "told"),
    [
        ({"a": manifest(1), "b": manifest(1)}, r"node\.id: found 1; allowed: an id of its own"),
        ({"a": manifest(1, roles='roles = ["controller"]')}, r"node\.roles: found no broker"),
        ({"a": "nodes = 0\n"}, r"nodes: found 0"),
        ({"a": manifest(1, voters="1-a")}, "controller.quorum.voters"),
        ({"a": manifest(1, more='"min.insync.replicas" = "x"\n')}, r"min\.insync\.replicas"),
    ],
)
def test_manifests_that_make_no_cluster_are_refused(manifests: dict[str, str], told: str) -> None:
    with pytest.raises(ManifestError, match=told):
        places_of(manifests)

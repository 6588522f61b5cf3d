"""The file of a cluster, and the manifests of its nodes."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.cli.cluster.state import (
    ClusterError,
    ClusterState,
    NodeState,
    load_state,
    manifest_toml,
    save_state,
)
from blumfeld.kernel.manifest.sections import Manifest, read_manifest
from blumfeld.kernel.supervising.derivation import node_manifests

NODE = NodeState(id=1, roles=("broker",), host="h", port=1, manifest="m", log="l", pid=5, started_ticks=77)


def test_the_file_is_read_back(tmp_path: Path) -> None:
    state = ClusterState(nodes=[NODE], bridge="bf123456", cuts=[(1, 2)])
    save_state(tmp_path, state)
    assert load_state(tmp_path) == state
    assert [path.name for path in tmp_path.iterdir()] == ["cluster.json"]


def test_a_node_that_is_not_there() -> None:
    with pytest.raises(ClusterError, match="node 7: this cluster has the nodes 1"):
        ClusterState(nodes=[NODE]).node(7)


def test_no_cluster_says_how_to_begin_one(tmp_path: Path) -> None:
    with pytest.raises(ClusterError, match=f"begin one with `blumfeld cluster up N --dir {tmp_path}`"):
        load_state(tmp_path)
    (tmp_path / "cluster.json").write_text("{}")
    with pytest.raises(ClusterError, match=r"cluster.json: Object missing required field `nodes`"):
        load_state(tmp_path)


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("nodes=4",),
        ("node.rack=r", 'node.data_dirs=["/a b", "/ü\\"c"]', "metrics.bind=127.0.0.1:9100"),
        ('config."log.segment.bytes"=1048576', 'config."log.flush.interval.ms"=5', "logging.format=json"),
        ("groups.options.groups_classic.x=true", 'plugins.observers=["a"]'),
    ],
)
def test_a_manifest_as_toml_is_the_same_manifest(overrides: tuple[str, ...]) -> None:
    for manifest in node_manifests(read_manifest(None, overrides=overrides), "m"):
        assert read_manifest(manifest_toml(manifest)) == manifest
    assert manifest_toml(Manifest()) == "\n"

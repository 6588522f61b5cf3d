"""The file of a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.cli.cluster.state import (
    ClusterError,
    ClusterState,
    NodeState,
    load_state,
    save_state,
)

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

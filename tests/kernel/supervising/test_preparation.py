"""Before several nodes start: one cluster id for all, and nothing that was there is taken for something else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from blumfeld.kernel.composing.plan import Plan, make_plan
from blumfeld.kernel.formatting.directories import AlreadyFormatted, Formatting
from blumfeld.kernel.manifest.sections import Manifest, read_manifest
from blumfeld.kernel.runtime.asyncio_runtime import AsyncioRuntime
from blumfeld.kernel.supervising.derivation import node_manifests
from blumfeld.kernel.supervising.preparation import format_nodes, prepare_nodes
from blumfeld.log.checkpoints import decode_meta_properties
from blumfeld.log.quorum_state import QuorumState, encode_quorum_state
from blumfeld.spi.runtime import Runtime
from tests.kernel import fakes
from tests.kernel.fakes import plan_of


def nodes(data_dir: Path, *overrides: str) -> tuple[Manifest, list[Plan]]:
    manifest = read_manifest(fakes.MANIFEST, overrides=overrides, data_dir=str(data_dir))
    return manifest, [
        make_plan(node_manifest, "m.toml", fakes.registry())
        for node_manifest in node_manifests(manifest, "m.toml")
    ]


def with_runtime(doing: Callable[[Runtime], object]) -> None:
    async def main() -> None:
        doing(AsyncioRuntime(lambda where, error: None))

    asyncio.run(main())


def prepare(data_dir: Path, *overrides: str) -> list[tuple[str, int]]:
    """Prepare the nodes; (cluster id, node id) of each directory."""
    manifest, plans = nodes(data_dir, *overrides)
    with_runtime(lambda runtime: prepare_nodes(manifest, plans, runtime))
    metas = [
        decode_meta_properties((data_dir / f"node-{plan.manifest.node.id}" / "meta.properties").read_bytes())
        for plan in plans
    ]
    return [(meta.cluster_id, meta.node_id) for meta in metas]


def test_all_nodes_are_formatted_for_one_cluster(tmp_path: Path) -> None:
    metas = prepare(tmp_path, "nodes=3")
    assert [node_id for _, node_id in metas] == [1, 2, 3]
    assert len({cluster_id for cluster_id, _ in metas}) == 1
    assert prepare(tmp_path, "nodes=3") == metas
    assert prepare(tmp_path, "nodes=4")[:3] == metas
    assert prepare(tmp_path, "nodes=4")[3][0] == metas[0][0]


def test_the_cluster_id_of_the_manifest(tmp_path: Path) -> None:
    assert prepare(tmp_path, "nodes=2", "node.cluster_id=mine") == [("mine", 1), ("mine", 2)]
    with pytest.raises(ValueError, match="is of cluster mine, not other"):
        prepare(tmp_path, "nodes=2", "node.cluster_id=other")


def test_the_directory_of_one_node_is_not_left_behind(tmp_path: Path) -> None:
    """Its topics would seem to be gone: the nodes would begin with empty directories below it."""
    with_runtime(lambda runtime: format_nodes([plan_of(data_dir=tmp_path)], runtime, Formatting()))
    with pytest.raises(
        ValueError, match=f"nodes = 2 has one below it.*move its content to {tmp_path}/node-1"
    ):
        prepare(tmp_path, "nodes=2")
    assert not (tmp_path / "node-1").exists()


def test_the_voters_of_a_quorum_stay(tmp_path: Path) -> None:
    """Two new voters without a log would be a majority, and could elect a leader without the cluster's metadata."""
    prepare(tmp_path, "nodes=2")
    log = tmp_path / "node-1" / "__cluster_metadata-0"
    log.mkdir()
    state = QuorumState(leader_id=1, leader_epoch=4, current_voters=(1,), data_version=0)
    (log / "quorum-state").write_bytes(encode_quorum_state(state))
    prepare(tmp_path, "nodes=2")
    with pytest.raises(ValueError, match=r"began with the voters 1, and nodes = 3 has 1, 2, 3"):
        prepare(tmp_path, "nodes=3")
    assert not (tmp_path / "node-3").exists()


def test_either_all_or_none(tmp_path: Path) -> None:
    prepare(tmp_path, "nodes=2")
    _, plans = nodes(tmp_path, "nodes=4")
    with pytest.raises(AlreadyFormatted, match="node-1 is formatted already"):
        with_runtime(lambda runtime: format_nodes(plans, runtime, Formatting()))
    assert not (tmp_path / "node-4").exists()

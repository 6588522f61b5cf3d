"""Formatting writes whose a directory is, once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from blumfeld.kernel.asyncio_runtime import AsyncioRuntime
from blumfeld.kernel.formatting import AlreadyFormatted, format_directory
from blumfeld.kernel.identity import cluster_id_of
from blumfeld.kernel.manifest import read_manifest
from blumfeld.kernel.plan import make_plan
from blumfeld.log.checkpoints import MetaProperties, decode_meta_properties
from blumfeld.metadata.checkpoint import decode_checkpoint
from tests.kernel import fakes


def formatted(data_dir: Path, *overrides: str) -> MetaProperties:
    plan = make_plan(
        read_manifest(fakes.MANIFEST, overrides=overrides, data_dir=str(data_dir)), "m.toml", fakes.registry()
    )

    async def main() -> MetaProperties:
        return format_directory(plan, AsyncioRuntime(lambda where, error: None))

    return asyncio.run(main())


def test_a_directory_is_formatted_with_the_plugins_features(tmp_path: Path) -> None:
    meta = formatted(tmp_path / "new" / "data", "node.id=4", "node.cluster_id=mine")
    directory = tmp_path / "new" / "data"
    assert (meta.cluster_id, meta.node_id) == ("mine", 4)
    assert decode_meta_properties((directory / "meta.properties").read_bytes()) == meta
    checkpoint = decode_checkpoint((directory / "bootstrap.checkpoint").read_bytes(), "bootstrap.checkpoint")
    levels = {record.name: record.feature_level for record in checkpoint.records}  # type: ignore[attr-defined]
    assert levels == {"metadata.version": 30, "paper.version": 1}


def test_it_is_formatted_once(tmp_path: Path) -> None:
    meta = formatted(tmp_path)
    with pytest.raises(AlreadyFormatted, match="is formatted already"):
        formatted(tmp_path)
    assert decode_meta_properties((tmp_path / "meta.properties").read_bytes()) == meta


def test_a_node_starts_in_the_cluster_that_was_formatted(tmp_path: Path) -> None:
    meta = formatted(tmp_path)

    async def main() -> None:
        runtime = AsyncioRuntime(lambda where, error: None)
        assert cluster_id_of(runtime, str(tmp_path), 1, None) == meta.cluster_id
        with pytest.raises(ValueError, match="of node 1, not 2"):
            cluster_id_of(runtime, str(tmp_path), 2, None)
        with pytest.raises(ValueError, match=f"of cluster {meta.cluster_id}, not another"):
            cluster_id_of(runtime, str(tmp_path), 1, "another")

    asyncio.run(main())

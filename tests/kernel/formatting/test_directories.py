"""Formatting writes whose the directories are, once."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from blumfeld.kernel.formatting.directories import AlreadyFormatted, format_directories
from blumfeld.log.checkpoints import decode_meta_properties
from blumfeld.metadata.image.checkpoint import decode_checkpoint
from blumfeld_kit.fakes.runtime import FakeRuntime
from tests.kernel.fakes import plan_of
from tests.kernel.formatting.formatted import all_formatted, formatted


def several(*data_dirs: Path) -> str:
    names = ", ".join(f'"{path}"' for path in data_dirs)
    return f"node.data_dirs=[{names}]"


def test_a_power_cut_takes_no_formatted_directory() -> None:
    """Else it would take all that the node flushed there later."""
    runtime = FakeRuntime(1)
    written = format_directories(plan_of('node.data_dirs=["/new"]'), runtime)
    assert runtime.disk is not None
    runtime.disk.crash(Random(1))
    assert FakeRuntime(2, disk=runtime.disk).files.exists("/new/meta.properties"), written


def test_a_directory_is_formatted_with_the_plugins_features(tmp_path: Path) -> None:
    meta = formatted(tmp_path / "new" / "data", "node.id=4", "node.cluster_id=mine")
    directory = tmp_path / "new" / "data"
    assert (meta.cluster_id, meta.node_id) == ("mine", 4)
    assert decode_meta_properties((directory / "meta.properties").read_bytes()) == meta
    checkpoint = decode_checkpoint((directory / "bootstrap.checkpoint").read_bytes(), "bootstrap.checkpoint")
    levels = {record.name: record.feature_level for record in checkpoint.records}  # type: ignore[attr-defined]
    assert levels == {"metadata.version": 30, "eligible.leader.replicas.version": 1, "paper.version": 1}


def test_it_is_formatted_once(tmp_path: Path) -> None:
    meta = formatted(tmp_path)
    with pytest.raises(AlreadyFormatted, match="is formatted already"):
        formatted(tmp_path)
    assert decode_meta_properties((tmp_path / "meta.properties").read_bytes()) == meta


def test_each_of_several_directories_is_formatted_for_the_same_cluster(tmp_path: Path) -> None:
    """One cluster, one node, an id for each directory; feature levels only where the metadata will lie."""
    first_dir, second_dir = tmp_path / "one", tmp_path / "two"
    meta_by_dir = all_formatted(several(first_dir, second_dir))
    assert list(meta_by_dir) == [str(first_dir), str(second_dir)]
    first, second = meta_by_dir.values()
    assert (first.cluster_id, first.node_id) == (second.cluster_id, second.node_id)
    assert first.directory_id != second.directory_id
    assert decode_meta_properties((second_dir / "meta.properties").read_bytes()) == second
    assert sorted(path.name for path in first_dir.iterdir()) == ["bootstrap.checkpoint", "meta.properties"]
    assert [path.name for path in second_dir.iterdir()] == ["meta.properties"]


def test_a_new_directory_is_formatted_for_the_cluster_of_the_others(tmp_path: Path) -> None:
    first_dir, second_dir = tmp_path / "one", tmp_path / "two"
    meta = formatted(first_dir)
    with pytest.raises(AlreadyFormatted, match="one is formatted already"):
        all_formatted(several(first_dir, second_dir))
    assert not second_dir.exists()
    meta_by_dir = all_formatted(several(first_dir, second_dir), ignore_formatted=True)
    assert {path: each.cluster_id for path, each in meta_by_dir.items()} == {str(second_dir): meta.cluster_id}
    assert all_formatted(several(first_dir, second_dir), ignore_formatted=True) == {}
    with pytest.raises(ValueError, match=f"of cluster {meta.cluster_id}, not other"):
        all_formatted(
            several(first_dir, second_dir, tmp_path / "three"), "node.cluster_id=other", ignore_formatted=True
        )
    assert not (tmp_path / "three").exists()

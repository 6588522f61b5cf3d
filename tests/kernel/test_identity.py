"""Which cluster a node belongs to, by what its directories say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blumfeld.kernel.identity import cluster_id_of, is_cluster_id
from blumfeld.kernel.runtime.real_files import RealFiles
from blumfeld.log.checkpoints import MetaProperties, encode_meta_properties
from blumfeld.spi.runtime import Runtime
from blumfeld.wire.primitives import uuid_text

NEW = b"n" * 16


def runtime(read: Callable[[str], bytes] | None = None) -> Runtime:
    """Real files, of which ``read`` may stand in for reading, and a known new id."""
    files: Any = RealFiles()
    if read is not None:
        files = SimpleNamespace(exists=files.exists, read_bytes=read)
    return cast("Runtime", SimpleNamespace(files=files, new_uuid=lambda: NEW))


def of_cluster(path: Path, cluster_id: str, directory: bytes, node_id: int = 1) -> str:
    """A directory that says this; its path."""
    path.mkdir()
    meta = MetaProperties(cluster_id=cluster_id, node_id=node_id, directory_id=directory)
    (path / "meta.properties").write_bytes(encode_meta_properties(meta))
    return str(path)


def test_a_node_of_a_cluster_makes_up_no_id(tmp_path: Path) -> None:
    """Three nodes with three ids would wait for each other for ever."""
    dirs = [str(tmp_path / "a")]
    assert cluster_id_of(runtime(), dirs, 1, "wanted", may_be_new=False) == "wanted"
    with pytest.raises(ValueError, match="isn't formatted, and a node of a cluster needs the cluster's id"):
        cluster_id_of(runtime(), dirs, 1, None, may_be_new=False)
    of_cluster(tmp_path / "a", "theirs", b"a" * 16)
    assert cluster_id_of(runtime(), dirs, 1, None, may_be_new=False) == "theirs"


def test_any_directory_says_it_for_all_and_a_new_node_takes_what_the_manifest_says_or_a_new_id(
    tmp_path: Path,
) -> None:
    """A disk that was added has nothing on it yet."""
    new = str(tmp_path / "new")
    assert cluster_id_of(runtime(), [new], 1, "wanted") == "wanted"
    assert cluster_id_of(runtime(), [new], 1, None) == uuid_text(NEW)
    dirs = [new, of_cluster(tmp_path / "b", "old", b"b" * 16)]
    assert cluster_id_of(runtime(), dirs, 1, None) == cluster_id_of(runtime(), dirs, 1, "old") == "old"


def test_another_cluster_or_node_is_refused_whichever_directory_says_so(tmp_path: Path) -> None:
    dirs = [str(tmp_path / "new"), of_cluster(tmp_path / "b", "old", b"b" * 16, node_id=2)]
    with pytest.raises(ValueError, match=r"b/meta.properties: the directory is of node 2, not 1"):
        cluster_id_of(runtime(), dirs, 1, None)
    with pytest.raises(ValueError, match=r"b/meta.properties: the directory is of cluster old, not other"):
        cluster_id_of(runtime(), dirs, 2, "other")
    with pytest.raises(ValueError, match=r"is of cluster old, not other \(.*\), and of node 2, not 1 \("):
        cluster_id_of(runtime(), dirs, 1, "other")


def test_directories_that_disagree_are_both_named(tmp_path: Path) -> None:
    dirs = [of_cluster(tmp_path / "a", "one", b"a" * 16), of_cluster(tmp_path / "b", "two", b"b" * 16)]
    with pytest.raises(
        ValueError, match=r"b/meta.properties: .* of cluster two, but .*a/meta.properties says one"
    ):
        cluster_id_of(runtime(), dirs, 1, None)


def test_a_copy_of_a_directory_is_refused(tmp_path: Path) -> None:
    """Two directories of one id would be one to the controller."""
    dirs = [of_cluster(tmp_path / "a", "one", b"a" * 16), of_cluster(tmp_path / "b", "one", b"a" * 16)]
    with pytest.raises(ValueError, match=r"is that of .*a/meta.properties too: one is a copy"):
        cluster_id_of(runtime(), dirs, 1, None)


def test_a_directory_that_cannot_be_read_is_left_to_the_storage(tmp_path: Path) -> None:
    """A bad disk must not keep the node from starting on the others; but for the metadata's."""
    dirs = [of_cluster(tmp_path / "a", "one", b"a" * 16), of_cluster(tmp_path / "b", "one", b"b" * 16)]

    def bad(which: str) -> Callable[[str], bytes]:
        def read(path: str) -> bytes:
            if path.startswith(which):
                raise OSError(5, "input/output error", path)
            return Path(path).read_bytes()

        return read

    assert cluster_id_of(runtime(bad(dirs[1])), dirs, 1, None) == "one"
    with pytest.raises(OSError, match="input/output error"):
        cluster_id_of(runtime(bad(dirs[0])), dirs, 1, None)


def test_a_cluster_id_can_stand_in_a_file_name() -> None:
    assert is_cluster_id("MkU3OEVBNTcwNTJENDM2Qg")
    assert not is_cluster_id("a b")
    assert not is_cluster_id("")
    assert not is_cluster_id("x" * 65)

"""``blumfeld format``: what it says, and its exit statuses."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.cli.app import run_app
from blumfeld.metadata.image.checkpoint import decode_checkpoint

CLUSTER = "MkU3OEVBNTcwNTJENDM2Qg"


def formatting(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The exit status, and what went to stdout and to stderr."""
    status = run_app(["format", *arguments])
    out, err = capsys.readouterr()
    return status, out, err


def several(*directories: Path) -> tuple[str, str]:
    """The override that names these log directories."""
    return "--set", "node.data_dirs=[" + ", ".join(f'"{path}"' for path in directories) + "]"


def test_each_directory_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first_dir, second_dir = tmp_path / "one", tmp_path / "two"
    status, out, err = formatting(capsys, *several(first_dir, second_dir), "--cluster-id", CLUSTER)
    assert (status, err) == (0, "")
    first, second = out.splitlines()
    assert first.startswith(f"formatted {first_dir}: cluster {CLUSTER}, node 1, directory ")
    assert second.startswith(f"formatted {second_dir}: cluster {CLUSTER}, node 1, directory ")
    assert first.split()[-1] != second.split()[-1]


def test_what_is_formatted_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first_dir, second_dir = tmp_path / "one", tmp_path / "two"
    assert formatting(capsys, "--data-dir", str(first_dir), "--cluster-id", CLUSTER)[0] == 0
    before = (first_dir / "meta.properties").read_bytes()
    status, out, err = formatting(capsys, *several(first_dir, second_dir))
    assert (status, out) == (1, "")
    assert err == f"blumfeld: {first_dir} is formatted already: see {first_dir}/meta.properties\n"
    assert not second_dir.exists()
    status, out, err = formatting(capsys, *several(first_dir, second_dir), "--ignore-formatted")
    assert (status, err) == (0, "")
    left, done = out.splitlines()
    assert left == f"left {first_dir} as it is: formatted already"
    assert done.startswith(f"formatted {second_dir}: cluster {CLUSTER}, ")
    assert (first_dir / "meta.properties").read_bytes() == before


def test_a_manifest_that_cannot_be_is_told_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = formatting(capsys, *several(tmp_path / "a", tmp_path / "a"))
    assert (status, out) == (2, "")
    assert "node.data_dirs[1]: found" in err
    assert not (tmp_path / "a").exists()


CONTROLLER = (
    "--set",
    'network.listeners=[{name="PLAINTEXT", bind="127.0.0.1:9092"}, '
    '{name="CONTROLLER", kind="controller", bind="127.0.0.1:9093"}]',
)


def test_a_dynamic_quorum_begins_with_this_node(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, err = formatting(
        capsys, "--data-dir", str(tmp_path), *CONTROLLER, "--standalone", "--feature", "group.version=0"
    )
    assert (status, err) == (0, "")
    assert out.startswith(f"formatted {tmp_path}: cluster ")
    voters = tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    assert decode_checkpoint(voters.read_bytes(), voters.name).kraft_version == 1
    bootstrap = decode_checkpoint((tmp_path / "bootstrap.checkpoint").read_bytes(), "bootstrap.checkpoint")
    names = {record.name for record in bootstrap.records}  # type: ignore[attr-defined]
    assert "metadata.version" in names
    assert "group.version" not in names


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--standalone",), "network.listeners: found no listener for other controllers"),
        (("--standalone", "--no-initial-controllers"), "--standalone: found --standalone and --no-initial-"),
        (("--initial-controllers", "1@h:1"), "--initial-controllers: found 1@h:1; allowed: a directory id"),
        (("--feature", "x"), "--feature: found x; allowed: NAME=LEVEL"),
        (("--release-version", "3.9"), "--release-version: found 3.9; allowed: 4.3-IV0 or 4.3"),
    ],
)
def test_what_cannot_be_formatted_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    status, out, err = formatting(capsys, "--data-dir", str(tmp_path / "a"), *arguments)
    assert (status, out) == (2, "")
    assert complaint in err
    assert not (tmp_path / "a").exists()

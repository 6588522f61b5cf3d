"""The places that a document may come from."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

import pytest

from blumfeld.cli.app import run_app
from blumfeld.cli.plan.errors import NoPlanError
from blumfeld.cli.plan.places import document_at
from blumfeld.kernel.description.document import PlanDocument, encode_document
from tests.kernel.description.test_differences import BUILD, PLANTED

OTHER = PLANTED["a promise"][0]()


def artefact(path: Path, document: PlanDocument, name: str = ".deps/b.whl/blumfeld_build/plan.json") -> Path:
    """A file as the builder writes it: a script before a zip."""
    path.write_bytes(b"#!/bin/sh\nexit 9\n")
    with ZipFile(path, "a") as archive:
        archive.writestr("__main__.py", "raise SystemExit('the code was run')")
        archive.writestr(name, encode_document(document))
    return path


def test_an_artefact_is_read_and_not_run(tmp_path: Path) -> None:
    assert document_at(str(artefact(tmp_path / "broker.pyz", BUILD))) == BUILD


def test_a_file_and_a_folder_hold_a_plan(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_bytes(encode_document(BUILD))
    assert document_at(str(tmp_path / "plan.json")) == document_at(str(tmp_path)) == BUILD


def test_an_artefact_without_a_plan_says_how_to_get_it(tmp_path: Path) -> None:
    pyz = artefact(tmp_path / "broker.pyz", BUILD, "elsewhere/plan.json")
    with pytest.raises(
        NoPlanError, match=r"no blumfeld_build/plan\.json in it: .*\./broker\.pyz plan --json"
    ):
        document_at(str(pyz))


@pytest.mark.parametrize("content", [b"{}", b"\xff", b"[1", b'{"format": 1}'])
def test_a_file_that_is_no_plan_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    with pytest.raises(NoPlanError, match=r"plan\.json: no plan: "):
        document_at(str(tmp_path))


def test_a_damaged_artefact_is_an_error(tmp_path: Path) -> None:
    pyz = artefact(tmp_path / "broker.pyz", BUILD)
    content = bytearray(pyz.read_bytes())
    at = content.index(b'{"format"') + 20
    content[at] ^= 1
    pyz.write_bytes(content)
    with pytest.raises(NoPlanError, match="can't be read: Bad CRC-32"):
        document_at(str(pyz))


def test_two_builds_are_compared_with_the_exit_status_of_diff(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = artefact(tmp_path / "a.pyz", BUILD), tmp_path / "b.json"
    second.write_bytes(encode_document(OTHER))
    assert run_app(["plan", str(first), str(first)]) == 0
    assert "no difference" in capsys.readouterr().out
    assert run_app(["plan", str(first), str(second)]) == 1
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"A: {first}: Blumfeld 0.1.0, spi 1.0, build ticks, manifest sha256:aaaa"
    assert said[3:] == ["ack", "  1", "    A  written: page cache", "    B  written: memory"]
    assert run_app(["plan", str(first), str(tmp_path / "none.json")]) == 2
    assert "none.json: no such file" in capsys.readouterr().err.lower()


def test_manifests_are_compared_by_what_they_come_to(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = tmp_path / "a.toml", tmp_path / "b.toml"
    first.write_text("# nothing\n[node]\nid = 4\n")
    second.write_text('[config]\n"num.partitions" = 1\n')
    assert run_app(["plan", str(first), str(second)]) == 0
    second.write_text('[config]\n"num.partitions" = 3\n')
    assert run_app(["plan", str(first), str(second), "--json"]) == 1
    out = capsys.readouterr().out.splitlines()[-1]
    assert out == '[{"part":"configuration","name":"num.partitions","first":"–","second":"3"}]'


@pytest.mark.parametrize(
    "arguments",
    [["a.json", "--listen", "h:1"], ["a.toml", "b.toml", "--set", "node.id=2"], ["a.toml", "--of", "h:1"]],
)
def test_values_are_laid_over_one_manifest_alone(
    arguments: list[str], capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").write_bytes(encode_document(BUILD))
    assert run_app(["plan", *arguments]) == 2
    assert capsys.readouterr().err.startswith("blumfeld: --")


@pytest.mark.parametrize("given", ["127.0.0.1", "127.0.0.1:abc", "localhost:99999", "broker.toml"])
def test_a_node_is_asked_at_an_address_alone(given: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(["plan", "--of", given]) == 2
    assert f"--of: {given} is no HOST:PORT of a broker" in capsys.readouterr().err

"""``blumfeld plan``."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from blumfeld.cli.app import run_app
from blumfeld.kernel.description.document import decode_document


def test_the_document_is_printed_for_a_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    manifest = tmp_path / "m.toml"
    manifest.write_bytes(b'[config]\r\n"log.segment.bytes" = 1048576\r\n')
    assert run_app(["plan", str(manifest), "--json"]) == 0
    document = decode_document(capsys.readouterr().out)
    assert document.manifest == f"sha256:{sha256(manifest.read_bytes()).hexdigest()}"
    assert document.configuration == {"log.segment.bytes": "1048576"}


def test_the_default_manifest_has_no_digest(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_app(["plan", "--json"]) == 0
    assert decode_document(capsys.readouterr().out).manifest is None

"""A manifest with a secret that every user of the machine may read is told at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.cli.manifest import load_manifest, open_secrets

SECRET = "[config]\n'listener.name.clients.ssl.key.password' = 'hunter2'\n"


@pytest.mark.parametrize(
    ("text", "mode", "told"),
    [
        (SECRET, 0o644, True),
        (SECRET, 0o640, False),
        ("[config]\n'ssl.keystore.type' = 'PEM'\n", 0o644, False),
    ],
)
def test_a_secret_in_a_manifest_that_others_may_read_is_told(
    tmp_path: Path, text: str, mode: int, told: bool
) -> None:
    file = tmp_path / "broker.toml"
    file.write_text(text)
    file.chmod(mode)
    warning = open_secrets(str(file), load_manifest(str(file)))
    assert (warning is not None) is told
    assert warning is None or warning.endswith(
        f"(mode 644); do: chmod o= {file}. It has listener.name.clients.ssl.key.password"
    )
    assert "hunter2" not in str(warning)


def test_a_node_without_a_manifest_has_no_secret() -> None:
    assert open_secrets(None, load_manifest(None)) is None

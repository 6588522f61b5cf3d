"""The demo where the client that it needs is missing."""

from __future__ import annotations

import sys

import pytest
from typer.testing import CliRunner

from blumfeld.cli.app import app


def test_without_its_client_the_demo_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from the wheel alone: confluent_kafka is no dependency of the broker."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    done = CliRunner().invoke(app, ["demo", "--messages", "10"])
    assert done.exit_code == 2
    assert done.stderr == "blumfeld: confluent_kafka is not installed: pip install confluent-kafka\n"

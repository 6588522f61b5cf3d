"""The verb `build`: a complaint is a line on stderr and the status 2, and a signal to end leaves nothing."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from blumfeld_builder.command import app
from tests.builder.fakes import make_workshop


def test_a_build_that_cant_be_is_a_line_and_status_2(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["broker.toml", "--out", "out"])
    assert (done.exit_code, done.stderr) == (2, "blumfeld build: broker.toml: no such file\n")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_to_end_leaves_nothing(
    number: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that is sent, and the one of a terminal that is closed."""

    def ended(*_: object) -> None:
        assert signal.getsignal(number) is not signal.SIG_DFL  # which would end the tests
        signal.raise_signal(number)

    monkeypatch.setattr("blumfeld_builder.artefact.pyz.write_artefact", ended)
    make_workshop(tmp_path)
    monkeypatch.chdir(tmp_path)
    before_signal = signal.getsignal(number)
    before = sorted(tmp_path.rglob("*"))
    assert CliRunner().invoke(app, ["broker.toml", "--out", "out"]).exit_code != 0
    assert sorted(tmp_path.rglob("*")) == before
    assert signal.getsignal(number) is before_signal

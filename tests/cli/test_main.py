"""The command itself, before any verb."""

from __future__ import annotations

import pytest

from blumfeld.cli.main import main


def test_an_interrupt_before_the_node_handles_signals_ends_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C in the first quarter of a second met the imports."""

    def interrupted(_: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("blumfeld.cli.run.run", interrupted)
    assert main(["run"]) == 0

"""A case of bad input: the checks that it passes, and those that it fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.testing.process import BrokerProcess
from campaigns.archive.bad_input import Scene, run_case
from campaigns.archive.common.process import Outcome

REFUSAL = "blumfeld archive: 127.0.0.1:9 doesn't answer. Is the broker up?\n"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path / "case", BrokerProcess(tmp_path), "python")


def test_a_refusal_with_its_words_status_and_time_is_good(scene: Scene) -> None:
    scene.must(Outcome(1, "", f"WARNING: of a JVM\n{REFUSAL}", 3.0), 1, "doesn't ANSWER", 60.0)
    assert scene.wrong == []
    assert scene.said == REFUSAL.strip()


@pytest.mark.parametrize(
    ("outcome", "wrong"),
    [
        (Outcome(0, "", REFUSAL, 3.0), "exit status 0, must be 1"),
        (Outcome(None, "", REFUSAL, 3.0), "exit status None, must be 1"),
        (Outcome(1, "", "ValueError: answer\n", 3.0), "must say /answer/"),
        (Outcome(1, "", f"Traceback (most recent call last):\n{REFUSAL}", 3.0), "it printed a traceback"),
        (Outcome(1, "", REFUSAL, 61.0), "it took 61 s, must be within 60"),
    ],
)
def test_anything_else_is_told(scene: Scene, outcome: Outcome, wrong: str) -> None:
    scene.must(outcome, 1, "answer", 60.0)
    assert len(scene.wrong) == 1
    assert scene.wrong[0].startswith(wrong)


def test_what_a_case_raises_is_wrong(scene: Scene) -> None:
    def breaks(scene: Scene) -> None:
        raise RuntimeError("no broker")

    run_case(breaks, scene)
    assert scene.wrong == ["RuntimeError: no broker"]

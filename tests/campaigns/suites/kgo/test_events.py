"""The outcomes in the suite's events."""

from __future__ import annotations

import json
from pathlib import Path

from campaigns.figures import save
from campaigns.suites.kgo.events import outcomes_of
from campaigns.suites.kgo.program import pattern_of
from campaigns.suites.outcomes import Outcome, Report, counts, failed_tests, lines_of


def event(action: str, test: str = "", output: str = "", elapsed: float = 0.0) -> str:
    return json.dumps({"Action": action, "Test": test, "Output": output, "Elapsed": elapsed})


EVENTS = [
    event("start"),
    event("run", "TestGood"),
    event("output", "TestGood", "    a_test.go:7: deleting topic\n"),
    event("pass", "TestGood", elapsed=1.5),
    event("run", "TestSome"),
    event("run", "TestSome/one"),
    event("output", "TestSome/one", "    a_test.go:9: lost 3 records\n"),
    event("fail", "TestSome/one"),
    event("fail", "TestSome"),
    event("run", "TestShare"),
    event("output", "TestShare", "    b_test.go:3: no share groups\n"),
    event("skip", "TestShare"),
    event("run", "TestCut"),
    event("output", "TestCut", "panic: timed out\n"),
    "a client's own line",
    "7",
]


def test_each_test_has_its_verdict_and_its_reason() -> None:
    assert outcomes_of(EVENTS, ["TestGood", "TestLater"]) == [
        Outcome("TestGood", "passed", 1.5),
        Outcome("TestSome", "failed"),
        Outcome("TestSome/one", "failed", reason="a_test.go:9: lost 3 records"),
        Outcome("TestShare", "skipped", reason="b_test.go:3: no share groups"),
        Outcome("TestCut", "failed", reason="it did not end: panic: timed out"),
        Outcome("TestLater", "not run"),
    ]


def test_subtests_count_with_their_test() -> None:
    outcomes = outcomes_of(EVENTS, ["TestLater"])
    assert failed_tests(outcomes) == ["TestSome", "TestCut", "TestLater"]
    assert counts(outcomes) == {"passed": 1, "skipped": 1, "failed": 2, "not run": 1}
    assert pattern_of(["TestSome", "TestCut"]) == "^(TestSome|TestCut)$"


def report(alone: str) -> Report:
    outcomes = tuple(outcomes_of(EVENTS))
    again = (Outcome("TestSome", alone), Outcome("TestCut", "passed"))
    return Report(contender="blumfeld", version="1", options="9 records", outcomes=outcomes, alone=again)


def test_a_report_is_good_if_all_that_failed_passed_alone(tmp_path: Path) -> None:
    assert report("passed").is_good
    assert not report("failed").is_good
    assert not Report(contender="blumfeld", version="1", options="9 records", outcomes=()).is_good
    assert lines_of(report("passed"))[:2] == [
        ("failed", "TestSome failed, passed alone"),
        ("failed", "TestSome/one failed: a_test.go:9: lost 3 records"),
    ]
    save(tmp_path / "new" / "out.json", [report("passed")])
    assert json.loads((tmp_path / "new" / "out.json").read_text())[0]["contender"] == "blumfeld"

"""The outcomes in what librdkafka's ``test-runner`` prints. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from campaigns.suites.outcomes import FAILED, NOT_RUN, PASSED, SKIPPED, Outcome

STATES = {"PASSED": PASSED, "FAILED": FAILED, "RUNNING": FAILED, "SKIPPED": SKIPPED}
NO_BROKER = "Filtered due to negative test flags"
"""The runner's reason to skip a test that needs no broker, or that is known to fail."""
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_ROW = re.compile(r"^\| +(\d{4}_\S+) +\| +(\w+) \| +([\d.]+)s *\| *(.*?) *$", re.MULTILINE)
_BEGAN = re.compile(r"=+ Running test (\S+) =+")
_ENDED_WELL = re.compile(r"=+ Test (\S+) PASSED =+")
_FAILURE = re.compile(r"^### Test .*? failed at (\S+?:\d+):\S* at .*: ###\n(.*)$", re.MULTILINE)


def outcomes_of(printed: str) -> list[Outcome]:
    """Return the outcomes of the tests in the runner's summary.

    A test that the runner leaves out is no outcome, unless the test itself says that it can't run here. A runner that
    dies prints no summary: each test that began and didn't pass has failed.
    """
    text = _COLOUR.sub("", printed)
    rows: list[tuple[str, str, str, str]] = _ROW.findall(text)
    if not rows:
        return _without_summary(text)
    outcomes = (Outcome(name, STATES[state], float(took), why) for name, state, took, why in rows)
    return [outcome for outcome in outcomes if not _was_left_out(outcome)]


def _without_summary(text: str) -> list[Outcome]:
    failure = _FAILURE.search(text)
    last = (text.strip().splitlines() or [""])[-1]
    reason = ": ".join(failure.groups()) if failure else f"it did not end: {last}"
    passed = set(_ENDED_WELL.findall(text))
    return [
        Outcome(name, PASSED) if name in passed else Outcome(name, FAILED, reason=reason)
        for name in _BEGAN.findall(text)
    ]


def _was_left_out(outcome: Outcome) -> bool:
    return outcome.verdict == SKIPPED and outcome.reason in ("", NO_BROKER)


def part_of(outcomes: Iterable[Outcome], part: str) -> list[Outcome]:
    """Return the outcomes of a run of one part as those of that part."""
    return [
        Outcome(f"{outcome.name}/{part}", outcome.verdict, outcome.seconds, outcome.reason)
        for outcome in outcomes
    ]


def whole_of(name: str, parts: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a test whose parts ran one by one: it failed if one of them did."""
    verdicts = {part.verdict for part in parts}
    verdict = next((verdict for verdict in (FAILED, NOT_RUN, PASSED) if verdict in verdicts), SKIPPED)
    return Outcome(name, verdict, sum(part.seconds for part in parts))

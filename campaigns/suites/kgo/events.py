"""The outcome of each test, read from the events of ``go tool test2json``. Pure."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence

from campaigns.suites.outcomes import FAILED, NOT_RUN, PASSED, SKIPPED, Outcome

VERDICTS = {"pass": PASSED, "fail": FAILED, "skip": SKIPPED}
REASON_LINES = 3


def outcomes_of(lines: Iterable[str], listed: Collection[str] = ()) -> list[Outcome]:
    """Return an outcome for each test and subtest of the events, and for each listed test.

    A test that began and did not end is failed: the process died, or its time was over. A listed test that did not
    begin is not run. Lines that are no events are left out.
    """
    verdicts: dict[str, tuple[str, float]] = {}
    printed: dict[str, list[str]] = {}
    for line in lines:
        event = _event(line)
        name = event.get("Test")
        if not name:
            continue
        printed.setdefault(name, [])
        if event.get("Action") == "output":
            printed[name].append(event.get("Output", ""))
        elif verdict := VERDICTS.get(event.get("Action", "")):
            verdicts[name] = (verdict, float(event.get("Elapsed", 0.0)))
    outcomes = [_outcome(name, verdicts.get(name), printed[name]) for name in printed]
    return outcomes + [Outcome(name, NOT_RUN) for name in sorted(set(listed) - printed.keys())]


def _event(line: str) -> dict[str, str]:
    try:
        event = json.loads(line)
    except ValueError:
        return {}
    return event if isinstance(event, dict) else {}


def _outcome(name: str, ended: tuple[str, float] | None, printed: Sequence[str]) -> Outcome:
    if ended is None:
        last = (line.strip() for line in printed[-REASON_LINES:])
        return Outcome(name, FAILED, reason="it did not end: " + " / ".join(last))
    verdict, seconds = ended
    return Outcome(name, verdict, seconds, "" if verdict == PASSED else _reason(printed))


def _reason(printed: Sequence[str]) -> str:
    """Return the first lines that a test printed by ``t.Log``, ``t.Error`` or ``t.Skip``."""
    lines = (line.strip() for line in printed)
    said = [line for line in lines if "_test.go:" in line]
    return " / ".join(said[:REASON_LINES])

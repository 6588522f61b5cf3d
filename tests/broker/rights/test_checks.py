"""Each check of each API is missed where it is taken out: some row of ``rights.txt`` says something else then.

A check is one line of code that asks for one right while one API is served. It is taken out by an authorizer that
allows whatever that line asks for. ``python -m tests.broker.rights.test_checks`` prints the numbers.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from pathlib import Path

from tests.broker.rights.switch import SWITCH, Check
from tests.broker.rights.test_rights import played, rows

ROOT = Path(__file__).resolve().parents[3]
MUTANTS = ROOT / "tests" / "mutants" / "security_checks.toml"
COMMON = ROOT / "core" / "blumfeld" / "broker" / "handlers" / "common.py"
ASKED_BEFORE = {
    ("MetadataRequest", COMMON, ("Describe", "Cluster")),
    ("MetadataRequest", COMMON, ("Describe", "Topic")),
    ("DescribeTopicPartitionsRequest", COMMON, ("Describe", "Topic")),
    ("DescribeClusterRequest", COMMON, ("Describe", "Cluster")),
}
"""Checks that nobody can miss: an answer shows the operations that are allowed only where Describe was asked for and
allowed, and Describe is one of them."""
NO_API = ("core/blumfeld/broker/serving/request.py", "plugins/security/blumfeld_security/acls")
"""Modules that hand the question on."""

ApiCheck = tuple[str, Check]
"""The class of a request, and a check that it met."""


def taken_out() -> tuple[int, dict[ApiCheck, bool]]:
    """Takes each check of each case out by itself. Returns how often, and whether a row of its API changed."""
    times = 0
    missed: dict[ApiCheck, bool] = {}
    with played() as (node, found):
        for case in found:
            SWITCH.checks.clear()
            there = rows(node, case)
            for check in list(SWITCH.checks):
                SWITCH.taken_out = check
                try:
                    changed = rows(node, case) != there
                finally:
                    SWITCH.taken_out = None
                key = type(case.message).__name__, check
                missed[key] = missed.get(key, False) or changed
                times += 1
    return times, missed


def places() -> Iterator[tuple[Path, range]]:
    """Yields the lines of each call that asks for a right, in all the code of APIs."""
    for folder in ("core", "plugins"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = path.read_text()
            if ".authorize" not in text or path.relative_to(ROOT).as_posix().startswith(NO_API):
                continue
            for node in ast.walk(ast.parse(text)):
                called = node.func if isinstance(node, ast.Call) else None
                if isinstance(called, ast.Attribute) and called.attr in ("authorize", "authorize_any"):
                    yield path, range(called.lineno, (called.end_lineno or called.lineno) + 1)


def planted() -> set[tuple[Path, int]]:
    """Returns the lines that a planted bug replaces (``tools/mutants.py`` requires that each is caught)."""
    lines = set()
    for mutant in tomllib.loads(MUTANTS.read_text())["mutant"]:
        path = ROOT / mutant["file"]
        before, _, _ = path.read_text().partition(mutant["old"])
        first = before.count("\n") + 1
        lines |= {(path, line) for line in range(first, first + mutant["old"].count("\n") + 1)}
    return lines


def test_a_check_that_is_taken_out_changes_a_row_of_its_api() -> None:
    _, missed = taken_out()
    survivors = {(api, Path(file), right) for (api, (file, _, right)), seen in missed.items() if not seen}
    assert survivors == ASKED_BEFORE
    reached = {(Path(file), line) for _, (file, line, _) in missed} | planted()
    alone = [f"{path}:{lines[0]}" for path, lines in places() if reached.isdisjoint((path, n) for n in lines)]
    assert not alone, "neither a request of the table nor a planted bug reaches this check"


if __name__ == "__main__":
    count, by_check = taken_out()
    killed = sum(by_check.values())
    apis = len({api for api, _ in by_check})
    print(f"{len(by_check)} checks of {apis} requests taken out {count} times: {killed} missed")
    for (api, (file, line, right)), seen in by_check.items():
        if not seen:
            print(f"not missed: {api}, {file}:{line}, {' '.join(right)}")

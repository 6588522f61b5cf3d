"""Every planted bug of tests/mutants can still be planted. `python -m campaigns mutants` says whether it is seen."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]


def load_tool() -> ModuleType:
    """tools/ is no package: a script is loaded by its path."""
    spec = importlib.util.spec_from_file_location("blumfeld_tools_mutants", ROOT / "tools" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # msgspec looks its annotations up there
    spec.loader.exec_module(module)
    return module


tool = load_tool()


def problems(mutant: Any) -> Iterator[str]:
    """Reasons why a mutant can't be planted, or proves nothing."""
    if (problem := mutant.problem()) is not None:
        yield f"{mutant.name}: {problem}"
    if not mutant.why.strip():
        yield f"{mutant.name} says no reason"
    if mutant.command[0] != "python":
        named = (argument.split("::")[0] for argument in mutant.command if argument.startswith("tests/"))
        yield from (f"{mutant.name}: {path} is not there" for path in named if not (ROOT / path).exists())


def test_every_mutant_can_be_planted() -> None:
    """Its text occurs once, the file stays Python, and what is to catch it is there.

    Red? ``python tools/mutants.py --moved`` follows code to another file; mend the rest in tests/mutants.

    One test for all: an item a mutant would cost each worker more to collect than to run.
    """
    mutants = tool.catalogue()
    assert len(mutants) > 200
    complaints = [problem for mutant in mutants for problem in problems(mutant)]
    assert not complaints, "\n".join(complaints)


def test_a_mutant_without_a_reason_or_a_test_is_told() -> None:
    mutant = tool.Mutant(
        "m", "tools/mutants.py", "JOBS_MAX = 4", "JOBS_MAX = 5", " ", ("tests/gone.py::test_x",)
    )
    assert list(problems(mutant)) == ["m says no reason", "m: tests/gone.py is not there"]


@pytest.mark.parametrize(
    ("status", "output", "verdict"),
    [
        (0, "3 passed", "SURVIVED"),
        (1, "FAILED tests/log/test_x.py::test_y - assert 1 == 2", "killed"),
        (1, "     3 FAILED: seed 3, 17.2 s: ViolationError()", "killed"),
        (1, "Traceback (most recent call last): boom", "BROKEN"),
        (1, "E   NameError: name 'x'\nFAILED tests/log/test_x.py::test_y - NameError", "BROKEN"),
        (2, "ERROR tests/log/test_x.py - ImportError", "BROKEN"),
        (4, "ERROR: file or directory not found", "BROKEN"),
        (5, "no tests ran", "BROKEN"),
        (None, "", "BROKEN"),
    ],
)
def test_only_a_failed_test_is_a_kill(status: int | None, output: str, verdict: str) -> None:
    """A bug that keeps the tests from running proves nothing about them."""
    mutant = tool.Mutant("m", "f", "a", "b", "why", ("tests",))
    assert tool.judge(mutant, tool.Outcome(status, output, 1.0)).verdict == verdict


def test_text_that_is_gone_or_doubled_is_not_planted(tmp_path: Path) -> None:
    """Else a mutant would silently test nothing, or two things."""
    (tmp_path / "m.py").write_text("a = 1\nb = 1\n")
    for old, new, problem in [
        ("a = 1", "a = 2", None),
        ("c = 1", "c = 2", "0 times"),
        ("= 1", "= 2", "2 times"),
        ("a = 1", "a = (", "no Python"),
    ]:
        complaint = tool.Mutant("m", "m.py", old, new, "why", ("tests",)).problem(tmp_path)
        assert (complaint is None) if problem is None else (complaint is not None and problem in complaint)


def test_code_that_moved_is_followed(tmp_path: Path) -> None:
    """A module that is moved must not cost a hand for each bug planted in it."""
    catalogue, core = tmp_path / "mutants", tmp_path / "core"
    catalogue.mkdir()
    (core / "new").mkdir(parents=True)
    (core / "new" / "m.py").write_text("limit = 1\nrest = 3\n")
    (core / "stays.py").write_text("wait = 2\nrest = 3\n")
    rows = [
        ("moved", "core/m.py", "limit = 1"),
        ("stays", "core/stays.py", "wait = 2"),
        ("two", "core/m.py", "rest = 3"),
    ]
    room = catalogue / "room.toml"
    room.write_text(
        "\n".join(
            f'[[mutant]]\nname = "{name}"\nfile = "{file}"\nold = "{old}"\nnew = "x"\nwhy = "y"\ncommand = ["tests"]\n'
            for name, file, old in rows
        )
    )
    assert tool.follow_moves(catalogue, tmp_path) == ["moved"]
    files = [mutant.file for mutant in tool.catalogue(catalogue)]
    assert files == ["core/new/m.py", "core/stays.py", "core/m.py"], (
        "text that is in two modules is left to a person"
    )

"""Every planted bug of tests/mutants can still be planted. `python -m campaigns mutants` says whether it is seen."""

from __future__ import annotations

import importlib.util
import sys
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


@pytest.mark.parametrize("mutant", tool.catalogue(), ids=lambda mutant: mutant.name)
def test_a_mutant_can_be_planted(mutant: Any) -> None:
    """Its text occurs once, it leaves Python, and what is to catch it is there. Mend tests/mutants if not."""
    assert mutant.problem() is None
    assert mutant.why.strip()
    if mutant.command[0] != "python":
        missing = [
            a for a in mutant.command if a.startswith("tests/") and not (ROOT / a.split("::")[0]).exists()
        ]
        assert not missing


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
        found = tool.Mutant("m", "m.py", old, new, "why", ("tests",)).problem(tmp_path)
        assert (found is None) if problem is None else (found is not None and problem in found)

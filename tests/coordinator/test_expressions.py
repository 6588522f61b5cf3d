"""Clients' regular expressions: what may be compiled, and that no other thread waits for it."""

from __future__ import annotations

import contextlib
import time

import pytest

from blumfeld.coordinator.expressions import CHARACTERS_MAX, UNICODE_CLASSES_MAX, ExpressionError, compiled

MEMORY_BYTES_MAX = 1 << 20
HOLD_S_MAX = 0.05
"""CPU time of the slowest one below is about 8 ms. Without the bounds it is from 0.27 to 1.9 s."""


@pytest.mark.parametrize(
    ("expression", "why"),
    [
        ("a" * (CHARACTERS_MAX + 1), "4097 characters; allowed: 4096"),
        (r"\pL" * (UNICODE_CLASSES_MAX + 1), "9 classes"),
        (r"(?i)(?:\PN|\pL){3}" * 5, "10 classes"),
        ("(", "missing"),
        (r"\pL{1000}", "too large"),
    ],
)
def test_what_is_refused_is_told(expression: str, why: str) -> None:
    with pytest.raises(ExpressionError, match=why):
        compiled(expression, MEMORY_BYTES_MAX)


@pytest.mark.parametrize("expression", ["x" * CHARACTERS_MAX, r"\pL" * UNICODE_CLASSES_MAX, r"\pL{1,20}-\d+"])
def test_what_is_taken(expression: str) -> None:
    assert compiled(expression, MEMORY_BYTES_MAX).groups == 0


@pytest.mark.parametrize(
    "expression",
    [
        r"(?i)" + r"\PL|" * 2_000,
        r"\pL" * 10_000,
        "a?" * 4_096,
        "a?" * (CHARACTERS_MAX // 2),
        r"(?i)(?:(?:\PL?){30}){30}" * UNICODE_CLASSES_MAX,
        "(?i)[" + "".join(map(chr, range(0x100, 0x2000, 2))) + "]",
        "(?:(?:(?:a?){9}){9}){9}" * 100,
    ],
    ids=[
        "letters or not",
        "letters",
        "optional",
        "optional in bounds",
        "repeated classes",
        "ranges",
        "nested",
    ],
)
def test_none_takes_long_to_compile_or_to_refuse(expression: str) -> None:
    """It is done on the loop, or holds the interpreter that the loop needs."""
    taken: list[float] = []
    for _ in range(3):
        began = time.thread_time()
        with contextlib.suppress(ExpressionError):
            compiled(expression, MEMORY_BYTES_MAX)
        taken.append(time.thread_time() - began)
    assert min(taken) < HOLD_S_MAX

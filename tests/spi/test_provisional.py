"""A contract says only what is used: what nothing in the tree uses yet carries a mark, and nothing else carries it."""

from __future__ import annotations

import ast
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.context import RequestContext
from blumfeld.spi.hooks import Hooks
from blumfeld.spi.partitions import LocalPartitions
from blumfeld.spi.replication import Replicas

ROOT = Path(__file__).resolve().parents[2]
SPI = ROOT / "core" / "blumfeld" / "spi"
MARK = re.compile(r"Provisional: first used by [^.]+\.")
HOOKS = {name: spec for name, spec in vars(Hooks).items() if name.startswith("blumfeld_")}
PARTS = {
    ("context", "set_principal"): RequestContext.set_principal,
    ("image", "section"): ClusterImage.section,
    ("replicas", "apply"): Replicas.apply,
    ("replicas", "stop"): Replicas.stop,
    **{
        ("local_partitions", name): getattr(LocalPartitions, name)
        for name in ("ends", "append", "advance_log_start", "read", "watch", "unwatch", "watch_leadership")
    },
}
"""Parts of contracts that have no caller yet, by the property of ``Composition`` that hands them out, or the name that
callers give to what they are handed. A caller writes ``….peers.send(…)``; a test kit that calls one counts for nothing.
"""


def trees(words: re.Pattern[str], *roots: str) -> Iterator[ast.AST]:
    """Modules below these folders that have one of the words; tests and test kits are no users.

    To parse all modules takes seconds, and a search takes milliseconds.
    """
    for root in roots:
        for path in sorted((ROOT / root).rglob("*.py")):
            if not {"tests", "testing"} & set(path.relative_to(ROOT).parts):
                source = path.read_text(encoding="utf-8")
                if words.search(source):
                    yield ast.parse(source)


def implemented(module: ast.AST) -> Iterator[str]:
    """Names of the hooks that a module implements."""
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef) and any("hookimpl" in ast.dump(d) for d in node.decorator_list):
            yield node.name


def called(module: ast.AST) -> Iterator[tuple[str, str]]:
    """(``peers``, ``send``) for each call of ``….peers.send(…)`` or ``peers.send(…)``; ``_peers`` counts too."""
    for node in ast.walk(module):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            receiver = node.func.value
            name = receiver.attr if isinstance(receiver, ast.Attribute) else getattr(receiver, "id", "")
            yield name.lstrip("_"), node.func.attr


def mark(function: object) -> str | None:
    match = MARK.search(" ".join((inspect.getdoc(function) or "").split()))
    return match and match.group()


@cache
def implementations() -> Counter[str]:
    """Number of implementations by hook."""
    modules = trees(re.compile(r"hookimpl"), "core", "plugins", "examples")
    return Counter(name for module in modules for name in implemented(module))


@cache
def calls() -> Counter[tuple[str, str]]:
    """Number of callers by part."""
    calling = re.compile("|".join(rf"{receiver}\.{method}\b" for receiver, method in PARTS))
    return Counter(call for module in trees(calling, "core", "plugins") for call in called(module))


@pytest.mark.parametrize("name", HOOKS)
def test_a_hook_is_marked_exactly_as_long_as_nobody_implements_it(name: str) -> None:
    """Its section of docs/hooks.md carries the same mark."""
    own_mark = mark(HOOKS[name])
    assert (own_mark is None) == bool(implementations()[name]), (
        f"{name}: {implementations()[name]} implementations, mark {own_mark}"
    )
    page = (ROOT / "docs" / "hooks.md").read_text()
    section = page.partition(f"## `{name}(")[2].partition("\n## ")[0]
    on_page = MARK.search(section)
    assert (on_page and on_page.group()) == own_mark


@pytest.mark.parametrize("part", PARTS, ids=".".join)
def test_a_part_of_a_contract_is_marked_exactly_as_long_as_nobody_calls_it(part: tuple[str, str]) -> None:
    assert (mark(PARTS[part]) is None) == bool(calls()[part]), f"{part}: {calls()[part]} callers"


def test_every_mark_is_counted() -> None:
    """A mark elsewhere in spi could outlive its truth."""
    marks = sum(len(MARK.findall(" ".join(path.read_text().split()))) for path in SPI.rglob("*.py"))
    assert marks == sum(mark(target) is not None for target in (*HOOKS.values(), *PARTS.values()))


def test_users_are_found_in_every_form() -> None:
    text = """
@hookimpl(tryfirst=True)
def blumfeld_x(self): self._composition.peers.send(1); peers.send(2); self._peers.send(3); peer.send(4)
def blumfeld_y(self): ...
"""
    tree = ast.parse(text)
    assert list(implemented(tree)) == ["blumfeld_x"]
    assert list(called(tree)).count(("peers", "send")) == 3
    assert implementations()["blumfeld_make_transport"] >= 2

"""No module needs another that needs it. Imports inside functions and under TYPE_CHECKING count too.

A circle means that two modules are one room with a wall drawn through it: neither can be read, tested or replaced
alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


def modules() -> dict[str, Path]:
    """Every module of ours by its name."""
    found = {}
    for base in (ROOT / "core", *sorted((ROOT / "plugins").iterdir()), ROOT):
        for path in (ROOT / "campaigns" if base == ROOT else base).rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of ours that this file names, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in known)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in known or node.module in known:
                    yield inner if inner in known else node.module


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """Strongly connected parts of more than one module (Tarjan 1972), without recursion."""
    order: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: set[frozenset[str]] = set()
    for root in graph:
        work = [(root, iter(sorted(graph[root])))] if root not in order else []
        while work:
            module, rest = work[-1]
            if module not in order:
                order[module] = lowest[module] = len(order)
                stack.append(module)
            following = next((one for one in rest if one not in order or one in stack), None)
            if following is None:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[module])
                if lowest[module] == order[module]:
                    at = stack.index(module)
                    if len(stack) - at > 1:
                        found.add(frozenset(stack[at:]))
                    del stack[at:]
            elif following in order:
                lowest[module] = min(lowest[module], order[following])
            else:
                work.append((following, iter(sorted(graph[following]))))
    return found


def test_no_two_modules_need_each_other() -> None:
    known = modules()
    graph = {name: set(imports(path, known)) - {name} for name, path in known.items()}
    assert len(graph) > 500
    assert not circles(graph)


@pytest.mark.parametrize(
    ("package", "expected"),
    [
        ("blumfeld_sink_spark", {"stores", "files", "ledger", "compaction"}),
        ("blumfeld_sink_spark.ledger", {"ledger", "writers", "publishing", "checking", "upkeep"}),
    ],
)
def test_no_two_rooms_of_the_archive_need_each_other(package: str, expected: set[str]) -> None:
    """A room is a package, or a module that stands beside them."""
    inside = f"{package}."
    known = {name: path for name, path in modules().items() if name.startswith(inside)}
    rooms: dict[str, set[str]] = {}
    for name, path in known.items():
        needed = {one.removeprefix(inside).split(".")[0] for one in imports(path, known)}
        rooms.setdefault(name.removeprefix(inside).split(".")[0], set()).update(needed)
    assert expected <= rooms.keys()
    assert not circles({room: needed - {room} for room, needed in rooms.items()})


def test_a_circle_is_found_however_long_it_is() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"g"}, "g": {"f", "a"}}
    assert circles(graph) == {frozenset("abc"), frozenset("fg")}

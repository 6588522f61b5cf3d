"""No module needs another that needs it, and no folder either. Imports in functions and under TYPE_CHECKING count too.

A circle of modules means that they are one module with a wall drawn through it: neither can be read, tested or
replaced alone. A circle of folders means the same for rooms: there is no floor on which one of them stands.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@cache
def modules() -> dict[str, Path]:
    """Every module of ours by its name."""
    paths = {}
    for base in (
        *(ROOT / name for name in ("core", "kit", "bench", "builder")),
        *sorted((ROOT / "plugins").iterdir()),
        ROOT,
    ):
        for path in (ROOT / "campaigns" if base == ROOT else base).rglob("*.py"):
            parts = path.relative_to(base).with_suffix("").parts
            paths[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return paths


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """All statements within a node, without the expressions: a sixth of the time of ``ast.walk``."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield child
            yield from statements(child)


def imports(path: Path, known: dict[str, Path]) -> Iterator[str]:
    """Modules of ours that this file names, wherever in it."""
    for node in statements(ast.parse(path.read_text(encoding="utf-8"))):
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
    cycles: set[frozenset[str]] = set()
    for root in graph:
        work = [(root, iter(sorted(graph[root])))] if root not in order else []
        while work:
            module, rest = work[-1]
            if module not in order:
                order[module] = lowest[module] = len(order)
                stack.append(module)
            following = next(
                (candidate for candidate in rest if candidate not in order or candidate in stack), None
            )
            if following is None:
                work.pop()
                if work:
                    lowest[work[-1][0]] = min(lowest[work[-1][0]], lowest[module])
                if lowest[module] == order[module]:
                    at = stack.index(module)
                    if len(stack) - at > 1:
                        cycles.add(frozenset(stack[at:]))
                    del stack[at:]
            elif following in order:
                lowest[module] = min(lowest[module], order[following])
            else:
                work.append((following, iter(sorted(graph[following]))))
    return cycles


@cache
def needs() -> dict[str, set[str]]:
    """Every module of ours with those that it imports."""
    known = modules()
    return {name: set(imports(path, known)) - {name} for name, path in known.items()}


@cache
def only_hands_on(module: str) -> bool:
    """Whether this module defines nothing: an ``__init__.py`` that names what stands in the package."""
    body = ast.parse(modules()[module].read_text(encoding="utf-8")).body
    return not any(isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) for node in body)


def rooms(package: str) -> dict[str, set[str]]:
    """The rooms of a package, each with those that it needs. A room is a folder, or a module that stands beside them.

    The package's own ``__init__.py`` is one too, unless it only hands names on.
    """
    graph: dict[str, set[str]] = {}
    inside = {name for name in modules() if name.startswith(f"{package}.")}
    if not only_hands_on(package):
        inside.add(package)
    for name in inside:
        room = room_of(name, package)
        needed = {room_of(module, package) for module in needs()[name] if module in inside}
        graph.setdefault(room, set()).update(needed - {room})
    return graph


def room_of(module: str, package: str) -> str:
    """The room of the package in which this module stands."""
    return module.removeprefix(package).lstrip(".").partition(".")[0] or "__init__"


def packages() -> list[str]:
    """Every package of ours, those inside others too."""
    return [name for name, path in modules().items() if path.name == "__init__.py"]


def test_no_two_modules_need_each_other() -> None:
    graph = needs()
    assert len(graph) > 500
    assert not circles(graph)


def test_no_two_rooms_of_a_package_need_each_other() -> None:
    knots = {package: circles(rooms(package)) for package in packages()}
    assert len(knots) > 100
    assert not {package: circle_rooms for package, circle_rooms in knots.items() if circle_rooms}


def test_a_room_is_a_folder_or_a_module_beside_the_folders() -> None:
    assert {"stores", "files", "ledger", "compaction", "apply"} <= rooms("blumfeld_sink_spark").keys()
    assert {"ledger", "writers", "publishing"} <= rooms("blumfeld_sink_spark.ledger").keys()


def drawn() -> dict[str, list[list[str]]]:
    """The floors of each package on the map, the top one first. Folders have no slash."""
    page = (ROOT / "docs" / "architecture.md").read_text().partition("\n## The rooms\n")[2]
    floors: dict[str, list[list[str]]] = {}
    for line in page.split("```")[1].splitlines()[1:]:
        if not line.startswith(" "):
            row, _, line = line.partition(" ")
            package = row.rstrip("/").replace("/", ".")
            homes = ("blumfeld.{}", "blumfeld_{}", "{}")
            package = next(home.format(package) for home in homes if home.format(package) in modules())
            floors[package] = [[]]
        for word in line.replace("/", "").split():
            if word == ">":
                floors[package].append([])
            else:
                floors[package][-1].append(word)
    return floors


def test_the_map_draws_the_rooms_of_every_large_package() -> None:
    """Large: a package of ours, or of core, that has two folders."""
    folders: dict[str, set[str]] = {}
    for package in packages():
        outer, _, folder = package.rpartition(".")
        folders.setdefault(outer, set()).add(folder)
    large = {package for package, inside in folders.items() if len(inside) > 1 and package.count(".") < 2}
    floors = drawn()
    inner = {package for package in large if package.count(".") == 1 and not package.startswith("blumfeld.")}
    assert large - inner - {"", "blumfeld"} <= floors.keys()
    for package, floor in floors.items():
        assert folders[package] <= {room for row in floor for room in row} <= rooms(package).keys(), package


def test_every_import_between_rooms_goes_down_on_the_map() -> None:
    up = []
    for package, rows in drawn().items():
        needed = rooms(package)
        floor_of = {room: number for number, row in enumerate(rows) for room in row}
        up += [
            f"{package}: {room} -> {other}"
            for room, floor in floor_of.items()
            for other in needed[room]
            if other in floor_of and floor_of[other] <= floor
        ]
    assert not up


def test_a_circle_is_found_however_long_it_is() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set(), "f": {"g"}, "g": {"f", "a"}}
    assert circles(graph) == {frozenset("abc"), frozenset("fg")}

"""Write docs/plugin-api.txt: the public names of Blumfeld for plug-ins, with their signatures.

``python tools/plugin_api_page.py`` rewrites the file. It refuses to drop a name while the old place isn't in
``blumfeld.moved`` and the major version of spi is the same. It reads the sources and imports nothing of them.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from blumfeld import moved, spi

ROOT = Path(__file__).resolve().parents[1]
CORE = ROOT / "core"
HOMES = (CORE, ROOT / "kit", ROOT / "plugins" / "storage_memory")
FILE = ROOT / "docs" / "plugin-api.txt"
PUBLIC = (
    "blumfeld.config.values",
    "blumfeld.log.checkpoints",
    "blumfeld.log.cleaning.cleaner_pass",
    "blumfeld.log.segments.file_names",
    "blumfeld.log.segments.rules",
    "blumfeld.spi",
    *(f"blumfeld.spi.{path.stem}" for path in sorted((CORE / "blumfeld" / "spi").glob("[a-z]*.py"))),
    "blumfeld.testing",
    "blumfeld.wire.api",
    "blumfeld.wire.batches.builder",
    "blumfeld.wire.batches.control_records",
    "blumfeld.wire.batches.record_batch",
    "blumfeld.wire.batches.records",
    "blumfeld.wire.codec",
    "blumfeld.wire.compression.codec",
    "blumfeld.wire.errors",
    "blumfeld.wire.primitives",
    "blumfeld.wire.schema",
    "blumfeld_kit",
    "blumfeld_kit.assignor_contract",
    "blumfeld_kit.fakes",
    "blumfeld_kit.groups",
    "blumfeld_kit.object_store_contract.kit",
    "blumfeld_kit.observer_contract",
    "blumfeld_kit.storage_contract.kit",
    "blumfeld_kit.storage_driver",
    "blumfeld_kit.transport_contract",
    "blumfeld_storage_memory",
)
"""Modules that a plug-in may import. ``blumfeld.wire.messages`` is public too: its names and fields are Kafka's."""
HEAD = f"""\
# The public names of Blumfeld for plug-ins, spi {spi.VERSION}. docs/plugin-api.md has the rules.
# Written by tools/plugin_api_page.py, and held by tests/test_plugin_api_page.py.
"""


def _path(module: str) -> Path:
    inside = module.replace(".", "/")
    places = [home / f"{inside}{end}" for home in HOMES for end in (".py", "/__init__.py")]
    return next(place for place in places if place.exists())


def _tree(module: str) -> ast.Module:
    return ast.parse(_path(module).read_text())


def definitions(module: str) -> dict[str, ast.stmt]:
    """The public names of a module, each with the statement that defines it, wherever that stands.

    ``__all__`` says which they are. A module without it has the names that it defines itself.
    """
    body = _tree(module).body
    own = {name: node for node in body for name in _defined(node)}
    exported = next((node for name, node in own.items() if name == "__all__"), None)
    if exported is None:
        return {name: node for name, node in own.items() if not name.startswith("_")}
    names: list[str] = ast.literal_eval(exported.value)  # type: ignore[attr-defined]
    sources = {
        alias.asname or alias.name: (node.module, alias.name)
        for node in ast.walk(_tree(module))
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    }
    return {name: own[name] if name in own else _imported(*sources[name]) for name in names}


def _imported(module: str, name: str) -> ast.stmt:
    definition = {name: node for node in _tree(module).body for name in _defined(node)}.get(name)
    return definitions(module)[name] if definition is None else definition


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
        yield node.name
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
    elif isinstance(node, ast.Assign):
        yield from (target.id for target in node.targets if isinstance(target, ast.Name))


def lines(name: str, node: ast.stmt) -> Iterator[str]:
    """A name with its signature. Values of constants are left out, except those of type aliases."""
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, [*node.bases, *node.keywords]))
        yield f"class {name}({bases})" if bases else f"class {name}"
        yield from (f"    {line}" for line in _members(node))
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        yield _signature(node)
    elif isinstance(node, ast.AnnAssign):
        kind = ast.unparse(node.annotation)
        shown = f" = {ast.unparse(node.value)}" if kind == "TypeAlias" and node.value is not None else ""
        yield f"{name}: {kind}{shown}"
    else:
        yield name


def _members(node: ast.ClassDef) -> Iterator[str]:
    """Fields in their order, since a struct is made by position, then methods by name."""
    for member in node.body:
        if isinstance(member, ast.AnnAssign) and not ast.unparse(member.target).startswith("_"):
            given = "" if member.value is None else f" = {ast.unparse(member.value)}"
            yield f"{ast.unparse(member.target)}: {ast.unparse(member.annotation)}{given}"
        elif isinstance(member, ast.Assign):
            yield from (name for name in _defined(member) if not name.startswith("_"))
    methods = [m for m in node.body if isinstance(m, ast.FunctionDef | ast.AsyncFunctionDef)]
    for method in sorted(methods, key=lambda method: method.name):
        if method.name == "__init__" or not method.name.startswith(("_", "test_")):
            yield _signature(method)


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> str:
    kinds = [ast.unparse(decorator) for decorator in node.decorator_list]
    shown = "".join(
        f"@{kind} " for kind in kinds if kind in ("property", "classmethod", "staticmethod", "hookspec")
    )
    word = "async def" if isinstance(node, ast.AsyncFunctionDef) else "def"
    answer = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return f"{shown}{word} {node.name}({ast.unparse(node.args)}){answer}"


def page() -> str:
    """The text of the file."""
    parts = [HEAD]
    for module in PUBLIC:
        nodes = definitions(module)
        if nodes:
            text = "\n".join(f"    {line}" for name in sorted(nodes) for line in lines(name, nodes[name]))
            parts.append(f"{module}\n{text}\n")
    return "\n".join(parts)


def names(text: str) -> set[tuple[str, str]]:
    """(module, name) of every name in such a file."""
    pairs = set()
    module = ""
    for line in text.splitlines():
        if line.startswith("blumfeld"):
            module = line
        elif line.startswith("    ") and not line.startswith("     "):
            word = line.strip().removeprefix("async ").removeprefix("def ").removeprefix("class ")
            pairs.add((module, word.partition("(")[0].partition(":")[0]))
    return pairs


def version(text: str) -> str:
    """The version of spi in the file's first line."""
    return text.partition(", spi ")[2].partition(". ")[0]


def dropped(before: str, after: str) -> list[str]:
    """Public names that are gone without a line in ``blumfeld.moved``, though the major version is the same."""
    if version(before).partition(".")[0] != version(after).partition(".")[0]:
        return []
    gone = sorted(names(before) - names(after))
    return [
        f"{module}.{name}"
        for module, name in gone
        if moved.new_place(module) is None and (module, name) not in moved.NAMES
    ]


if __name__ == "__main__":
    text = page()
    if FILE.exists() and (gone := dropped(FILE.read_text(), text)):
        sys.exit(
            f"plugin_api_page: these public names are gone: {', '.join(gone)}. Plug-ins import them. Give each old "
            "place a line in core/blumfeld/moved.py, or raise the major version in core/blumfeld/spi/__init__.py"
        )
    FILE.write_text(text)

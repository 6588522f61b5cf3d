"""The files of a simulated disk that have bytes."""

from __future__ import annotations

from blumfeld_kit.fakes.inodes import DirectoryNode, Tree


def files_of(tree: Tree) -> list[tuple[str, int]]:
    """Return (path, size) of every file that isn't empty, in the order of the paths."""
    found: list[tuple[str, int]] = []

    def walk(directory: DirectoryNode, path: str) -> None:
        for name in sorted(directory.entries):
            node = directory.entries[name]
            below = f"{path}/{name}"
            if isinstance(node, DirectoryNode):
                walk(node, below)
            elif node.size:
                found.append((below, node.size))

    walk(tree.root, "")
    return found

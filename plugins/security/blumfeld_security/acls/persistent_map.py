"""A mapping that shares its structure with the one that it was made of. Pure.

An image keeps its value for as long as a request reads it, and a change makes another value. A copy of 100,000 entries
would cost milliseconds a change; here a change copies one leaf of at most :data:`LEAF_ENTRIES_MAX` and the few nodes
above it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

REMOVED: Any = object()
"""The value, in a change, of a key that goes."""
LEAF_ENTRIES_MAX = 128
CHILDREN = 32
_BITS = 5
_DEPTH_MAX = 12
"""Below it a leaf grows instead: its keys have one hash."""


class PersistentMap(Generic[K, V]):
    """A mapping that never changes. The order of its items depends on the hashes of the keys."""

    __slots__ = ("_length", "_root")

    def __init__(self, root: Any = None, length: int = 0) -> None:
        self._root: Any = {} if root is None else root
        """A leaf is a dict. A node is a tuple of children, by the next bits of the keys' hashes."""
        self._length = length

    def __len__(self) -> int:
        return self._length

    def get(self, key: K) -> V | None:
        """Returns the value of the key, or ``None``."""
        node = self._root
        if type(node) is tuple:
            code = hash(key)
            while type(node) is tuple:
                node = node[code & (CHILDREN - 1)]
                code >>= _BITS
        value: V | None = node.get(key)
        return value

    def items(self) -> Iterator[tuple[K, V]]:
        """Yields each item once."""
        for leaf in self.leaves():
            yield from leaf.items()

    def leaves(self) -> Iterator[dict[K, V]]:
        """Yields the items in dicts of some hundred at most, which nobody may change."""
        nodes = [self._root]
        while nodes:
            node = nodes.pop()
            if type(node) is tuple:
                nodes.extend(node)
            elif node:
                yield node

    def updated(self, changes: Mapping[K, V]) -> PersistentMap[K, V]:
        """Returns the mapping with these values; without the keys whose value is :data:`REMOVED`."""
        if not changes:
            return self
        grown = [0]
        root = _updated(self._root, [(hash(key), key, value) for key, value in changes.items()], 0, grown)
        return PersistentMap(root, self._length + grown[0])


def _updated(node: Any, changes: list[tuple[int, Any, Any]], depth: int, grown: list[int]) -> Any:
    """Returns the node with the changes.

    :param changes: (what is left of the key's hash, the key, its value)
    :param grown: its only item counts how many keys came
    """
    if type(node) is tuple:
        children = list(node)
        for index, those in enumerate(_by_child(changes)):
            if those:
                children[index] = _updated(node[index], those, depth + 1, grown)
        return tuple(children)
    leaf = dict(node)
    for _, key, value in changes:
        if value is REMOVED:
            leaf.pop(key, None)
        else:
            leaf[key] = value
    grown[0] += len(leaf) - len(node)
    if len(leaf) <= LEAF_ENTRIES_MAX or depth == _DEPTH_MAX:
        return leaf
    items = [(hash(key) >> (_BITS * depth), key, value) for key, value in leaf.items()]
    return tuple(_updated({}, those, depth + 1, [0]) for those in _by_child(items))


def _by_child(items: list[tuple[int, Any, Any]]) -> list[list[tuple[int, Any, Any]]]:
    """Returns the items for each child of a node."""
    by_child: list[list[tuple[int, Any, Any]]] = [[] for _ in range(CHILDREN)]
    for code, key, value in items:
        by_child[code & (CHILDREN - 1)].append((code >> _BITS, key, value))
    return by_child

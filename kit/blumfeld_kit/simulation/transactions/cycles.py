"""Looks for a cycle in a graph of transactions: edges, and the order of those that don't overlap in time. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def find_cycle(
    edges: Sequence[Sequence[int]], spans: Sequence[tuple[float, float | None]]
) -> list[int] | None:
    """Return the nodes of a cycle, the first one again at its end; ``None`` if there is none.

    :param edges: node → the nodes that depend on it
    :param spans: (begin, end) of each node. One that ended before another began precedes it; ``None``: it never ended

    Time is a chain of further nodes: a node's end leads to the moment after it, and each moment to the nodes that begin
    in it. So the graph stays small, and a path along the chain goes forward in time only.
    """
    count = len(edges)
    ends = sorted({end for _, end in spans if end is not None})
    moments = {end: count + nth for nth, end in enumerate(ends)}
    graph: list[list[int]] = [list(each) for each in edges] + [[] for _ in ends]
    for nth in range(len(ends) - 1):
        graph[count + nth].append(count + nth + 1)
    for node, (begin, end) in enumerate(spans):
        if end is not None:
            graph[node].append(moments[end])
        before = _last_below(ends, begin)
        if before >= 0:
            graph[count + before].append(node)
    cycle = _cycle(graph)
    if cycle is None:
        return None
    nodes = [node for node in cycle if node < count]
    return [*nodes, nodes[0]] if nodes else None


def _last_below(ends: Sequence[float], begin: float) -> int:
    """Return the index of the last end before ``begin``, or -1."""
    low, high = 0, len(ends)
    while low < high:
        middle = (low + high) // 2
        if ends[middle] < begin:
            low = middle + 1
        else:
            high = middle
    return low - 1


def _cycle(graph: Sequence[Sequence[int]]) -> list[int] | None:
    """Return the nodes of some cycle, by a depth-first search without recursion."""
    state = [0] * len(graph)  # 0: not seen, 1: on the path, 2: done
    for start in range(len(graph)):
        if state[start]:
            continue
        path, nexts = [start], [iter(graph[start])]
        state[start] = 1
        while path:
            node = next(nexts[-1], None)
            if node is None:
                state[path.pop()] = 2
                nexts.pop()
            elif state[node] == 1:
                return path[path.index(node) :]
            elif not state[node]:
                state[node] = 1
                path.append(node)
                nexts.append(iter(graph[node]))
    return None

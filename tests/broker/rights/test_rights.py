"""Every API asks for the rights that Kafka asks for: for each request and each right that it needs, the answer without
it. ``rights.txt`` has them; ``python -m tests.broker.rights.test_rights`` writes it anew. The campaign ``verdicts``
holds the same requests to Apache Kafka's verdicts.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from blumfeld.wire.errors import known_code
from campaigns.raw_connection import RawConnection
from campaigns.verdicts.requests import Case, cases
from campaigns.verdicts.targets import Server
from tests.broker.rights.switch import SWITCH, Right, switched_broker

TABLE = Path(__file__).with_name("rights.txt")
HEAD = """\
# Listener and request | the right that the client lacks | what the answer says that it doesn't say otherwise
# Written by python -m tests.broker.rights.test_rights; the campaign verdicts compares with Apache Kafka.
"""
HARMLESS = "is as it is with the right"


class Node(Server):
    """The broker in this process."""

    def __init__(self, ports: dict[str, int]) -> None:
        super().__init__("Blumfeld")
        self._ports = ports

    def connect(self, kind: str, user: str, host: str) -> RawConnection:
        return RawConnection(f"127.0.0.1:{self._ports[kind]}")

    def says(self, case: Case) -> list[str]:
        """Returns what the answer says, line by line."""
        return sorted(set(_lines("", self.verdict(case, "", ""))))


def _lines(path: str, value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        own = next((str(value[key]) for key in NAMED if key in value), "")
        for field, inner in value.items():
            if field not in NAMED:
                yield from _lines(f"{path}{'/' if path else ''}{own}{':' if own else ''}{field}", inner)
        if own:
            yield f"{path}/{own}"
    elif isinstance(value, list):
        for inner in value:
            yield from _lines(path, inner)
    elif path.endswith("error_code"):
        yield f"{path}={known_code(value).name}"
    else:
        yield f"{path}={value}"


NAMED = ("name", "topic", "topic_name", "group", "group_id", "key", "transactional_id", "resource_name")


@contextmanager
def played() -> Iterator[tuple[Node, list[Case]]]:
    """A broker, and the cases for it."""
    with switched_broker() as broker:
        ports = {listener.kind: listener.port for listener in broker.node.listeners}
        node = Node(ports)
        try:
            yield node, list(cases(*node.prepare()))
        finally:
            node.close()


def row(node: Node, case: Case, right: Right, granted: list[str]) -> str:
    """Returns the table's row for a request without a right."""
    with SWITCH.refusing(lambda asked: asked == right):
        refused = node.says(case)
    told = [line for line in refused if line not in granted] or [
        f"- {line}" for line in granted if line not in refused
    ]
    return f"{case.listener} {case.name} | {' '.join(right)} | {'; '.join(told) or HARMLESS}"


def rows(node: Node, case: Case) -> list[str]:
    """Returns the rows of a request: one for each right that it asks for, and one without all of them if it takes
    either of several."""
    with SWITCH.refusing(lambda _: False):
        granted = node.says(case)
        rights = SWITCH.rights
    with SWITCH.refusing(lambda _: True):
        node.says(case)
        rights += [right for right in SWITCH.rights if right not in rights]
    told = [row(node, case, right, granted) for right in rights]
    with SWITCH.refusing(lambda _: True):
        nothing = node.says(case)
    if nothing != granted and all(line.endswith(HARMLESS) for line in told):
        told.append(f"{case.listener} {case.name} | everything | {'; '.join(nothing)}")
    return told


def test_every_request_is_refused_without_each_right_that_it_needs() -> None:
    with played() as (node, found):
        actual = [line for case in found for line in rows(node, case)]
    assert actual == [line for line in TABLE.read_text().splitlines() if not line.startswith("#")]


if __name__ == "__main__":
    with played() as (node, found):
        TABLE.write_text(HEAD + "".join(f"{line}\n" for case in found for line in rows(node, case)))

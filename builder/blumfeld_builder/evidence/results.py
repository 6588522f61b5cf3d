"""What a run of a contract kit came to, from pytest's report (JUnit XML). Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from xml.etree import ElementTree

import msgspec

FILE = "evidence.json"
NOT_TRIED = "not tried: "


class Untried(msgspec.Struct, frozen=True):
    """Tests that did not run."""

    tests: tuple[str, ...]
    why: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one plug-in."""

    plugin: str
    role: str
    distribution: str
    version: str
    kit: str
    """The module with the tests."""
    passed: int = 0
    failed: tuple[str, ...] = ()
    not_tried: tuple[Untried, ...] = ()
    allowed_to_fail: bool = False


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """``evidence.json``."""

    kit_version: str
    lock: str
    """SHA-256 of the lock that the plug-ins are from."""
    plugins: tuple[Evidence, ...]


Results = tuple[int, tuple[str, ...], tuple[Untried, ...]]
"""The number of tests that passed, the names of those that failed, and what was not tried and why."""


def results(report: bytes) -> Results:
    """Returns what a report says.

    :raises ElementTree.ParseError: it is no XML
    """
    passed = 0
    failed: list[str] = []
    untried: dict[str, list[str]] = {}
    for case in ElementTree.fromstring(report).iter("testcase"):
        name = case.get("name", "")
        if any(case.find(kind) is not None for kind in ("failure", "error")):
            failed.append(name)
        elif (skipped := case.find("skipped")) is not None:
            untried.setdefault(_why(skipped), []).append(name)
        else:
            passed += 1
    listed = tuple(Untried(tuple(sorted(names)), why) for why, names in sorted(untried.items()))
    return passed, tuple(sorted(failed)), listed


def _why(skipped: ElementTree.Element) -> str:
    """Returns the reason. Where a whole module was skipped, it stands in the text, as Python shows a tuple."""
    message, text = skipped.get("message", ""), skipped.text or ""
    said = re.search(rf"{NOT_TRIED}(.*?)(?:['\"]\)$|$)", f"{message}\n{text}", flags=re.M)
    return said[1] if said else message


def document_text(document: Document) -> str:
    """Returns the document as JSON. It holds no time: the same build gives the same text."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def failing(plugins: Sequence[Evidence]) -> Iterator[Evidence]:
    """Yields the plug-ins that fail without leave."""
    return (evidence for evidence in plugins if evidence.failed and not evidence.allowed_to_fail)

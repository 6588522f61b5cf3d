"""Write core/blumfeld/config/keys_table.py from a configs.json of Kafka's facts.

A one-off: run it again for another release of Kafka, and read the diff.

    python tools/convert_configs.py CONFIGS.json > core/blumfeld/config/keys_table.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

HEADER = '''"""Kafka {version}'s configuration keys: facts, one row a key. Written by tools/convert_configs.py.

A row is (name, type, default, importance, update mode, minimum, maximum, allowed values, broker synonyms,
flags). The default is in the form of its type; ``None`` is null. Of the flags, "i" is internal (served by
no DescribeConfigs), "r" required, "d" drops duplicates, "e" may be an empty list, "c" compares without case.
"""

# ruff: noqa: E501
# fmt: off
from __future__ import annotations

Row = tuple[
    str, str, object, str, str, float | None, float | None, tuple[str, ...], tuple[str, ...], str
]

'''
# The source of these defaults is an enum whose toString is lower case, which the facts do not show.
LOWER_CASE_DEFAULTS = {
    "group.coordinator.rebalance.protocols",
    "group.consumer.migration.policy",
    "ssl.client.auth",
}
MORE_ALLOWED = {
    # Kafka looks at this one when it starts, not when it reads its configuration.
    "offsets.topic.compression.codec": ("0", "1", "2", "3", "4"),
    "ssl.client.auth": ("required", "requested", "none"),
    "sasl.oauthbearer.assertion.algorithm": ("ES256", "RS256"),
}


def typed_default(entry: dict[str, Any]) -> object:
    """The default as our parser would return it."""
    default = entry["default"]
    if default is None or default == "<required>":
        return None
    if entry["name"] in LOWER_CASE_DEFAULTS:
        default = [word.lower() for word in default] if isinstance(default, list) else default.lower()
    if entry["type"] == "LIST":
        parts = default if isinstance(default, list) else default.split(",")
        return tuple(part.strip() for part in parts if part.strip())
    return float(default) if entry["type"] == "DOUBLE" else default


def allowed_of(entry: dict[str, Any]) -> tuple[str, ...]:
    """The values that are allowed, as strings; a range of numbers is written out."""
    words: list[str] = []
    for choice in entry.get("oneOf") or entry.get("listOf") or entry.get("oneOfCaseInsensitive") or ():
        low, dots, high = str(choice).partition("..")
        words += map(str, range(int(low), int(high) + 1)) if dots else [str(choice)]
    return tuple(words) or MORE_ALLOWED.get(entry["name"], ())


def flags_of(entry: dict[str, Any], internal: bool) -> str:
    """The letters of the table's header."""
    validator = entry.get("validator", "")
    listed = "anyNonDuplicateValues" in validator or "listOf" in entry
    may_be_empty = not listed or "Values(true" in validator or entry["name"].endswith("cleanup.policy")
    return "".join(
        letter
        for letter, is_set in (
            ("i", internal or entry.get("internal")),
            ("r", entry["default"] == "<required>"),
            ("d", entry["type"] == "LIST" and listed),
            ("e", entry["type"] == "LIST" and may_be_empty),
            (
                "c",
                "oneOfCaseInsensitive" in entry
                or (entry["name"] in MORE_ALLOWED and entry["type"] == "STRING"),
            ),
        )
        if is_set
    )


def row(entry: dict[str, Any], internal: bool = False) -> str:
    """One line of the table."""
    synonyms = entry.get("brokerSynonyms") or [synonym for synonym in [entry.get("brokerSynonym")] if synonym]
    fields = (
        entry["name"],
        entry["type"],
        typed_default(entry),
        entry["importance"],
        entry.get("updateMode", "cluster-wide"),
        entry.get("min"),
        entry.get("max"),
        allowed_of(entry),
        tuple(synonyms),
        flags_of(entry, internal),
    )
    return f"    {fields!r},\n"


def main(path: str) -> None:
    """Print the module."""
    facts = json.loads(Path(path).read_text())
    out = [HEADER.format(version=facts["kafkaVersion"])]
    quotas = [row(entry, internal=True) for entry in facts["brokerDynamicQuota"]]
    for name, rows in (
        ("BROKER_ROWS", [row(entry) for entry in facts["broker"]] + quotas),
        ("TOPIC_ROWS", [row(entry) for entry in facts["topic"]]),
        ("GROUP_ROWS", [row(entry) for entry in facts["group"]]),
    ):
        out.append(f"{name}: tuple[Row, ...] = (\n{''.join(rows)})\n\n")
    sys.stdout.write("".join(out).rstrip("\n") + "\n")


if __name__ == "__main__":
    main(sys.argv[1])

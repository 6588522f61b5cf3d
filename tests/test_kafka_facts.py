"""The facts in tests/data/kafka are whole, and Apache Kafka agrees with them. No test looks for facts elsewhere."""

from __future__ import annotations

import json
import os
import subprocess

import pytest

from tests.kafka_facts import (
    FOLDER,
    configs,
    error_codes,
    golden_batches,
    golden_messages,
    version,
    zookeeper_golden_messages,
)
from tests.kafka_peer import peer_script
from tests.shared_facts import shared_path

SCOPES = ("broker", "topic", "group")


def test_the_facts_are_whole_and_of_the_version_that_their_page_names() -> None:
    """A file that was cut short would make the tests that read it weaker, not red."""
    messages = golden_messages()
    assert len(messages) == 1456
    assert {line["case"] for line in messages} == {"default", "full"}
    assert len({(line["message"], line["version"], line["case"]) for line in messages}) == 1456
    zookeepers = zookeeper_golden_messages()
    assert len({(line["message"], line["version"], line["case"]) for line in zookeepers}) == 104
    assert len(golden_batches()) == 21
    assert [fact["code"] for fact in error_codes()] == list(range(-1, 134))
    assert [len(configs()[scope]) for scope in SCOPES] == [360, 34, 17]
    assert version() == "4.3.1"
    assert f"Apache Kafka {version()}" in (FOLDER / "README.md").read_text()


@pytest.mark.parametrize("path", ["kafka/golden_messages.jsonl", "kafka/errors.json", "else.json"])
def test_a_fact_outside_of_the_tree_is_an_error_and_no_skip(path: str) -> None:
    """Else its tests would pass here and skip in every clone."""
    with pytest.raises(ValueError, match="move it into tests/data"):
        shared_path(path)


@pytest.mark.slow
def test_apache_kafka_agrees_with_every_fact() -> None:
    """Its classes read and write each message, check each batch, and have each error code and configuration key."""
    facts = [json.dumps(line) for line in golden_messages()]
    facts += [json.dumps({"case": case, "hex": data.hex()}) for case, data in golden_batches().items()]
    facts += [json.dumps(fact) for fact in error_codes()]
    facts += [json.dumps({"scope": scope, **fact}) for scope in SCOPES for fact in configs()[scope]]
    done = subprocess.run(
        [peer_script(), "tool", str(FOLDER / "CheckGolden.java")],
        input="\n".join(facts),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout == "checked: {batches=21, configs=411, errors=135, messages=1456}\n", done.stderr


@pytest.mark.slow
def test_the_last_kafka_with_a_zookeeper_agrees_with_the_messages_that_only_it_has() -> None:
    """Its classes write the same bytes for each JSON, and the same JSON for these bytes."""
    golden = zookeeper_golden_messages()
    lines = [json.dumps({name: line[name] for name in line if name != "hex"}) for line in golden]
    done = subprocess.run(
        [peer_script(), "tool", str(FOLDER / "WriteGolden.java")],
        env={**os.environ, "KAFKA_PEER_VERSION": "3.9.2"},
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert [json.loads(line) for line in done.stdout.splitlines()] == golden, done.stderr

"""``kafka-acls``, unmodified, says of this build what it says of Apache Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest

from blumfeld.testing.embedded import EmbeddedBroker
from blumfeld_security.acls.composing import STANDARD_AUTHORIZER
from tests.kafka_peer import kafka_on, peer_script, tool

EVERYBODY = ["User:ANONYMOUS"]
COMMANDS = """
--add --allow-principal User:bob --producer --topic ticks --resource-pattern-type prefixed
--add --allow-principal User:carol --consumer --topic ticks --group *
--add --deny-principal User:mallory --operation Read --topic ticks --deny-host 10.0.0.1
--list --topic ticks-1 --resource-pattern-type match
--remove --force --allow-principal User:bob --producer --topic ticks --resource-pattern-type prefixed
--list
"""


def said(peer: str, address: str, config: Path) -> list[tuple[str, list[str]]]:
    """Each command with the lines that it printed; their order is no part of the tool's promise."""
    answers = []
    for command in COMMANDS.strip().splitlines():
        printed = tool(
            peer,
            "org.apache.kafka.tools.AclCommand",
            *("--bootstrap-server", address, "--command-config", str(config)),
            *command.split(),
        )
        lines = sorted(line.strip() for line in printed.splitlines() if line.strip())
        answers.append((command, [line for line in lines if "WARN" not in line and "SLF4J" not in line]))
    return answers


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kafka_acls_says_the_same_of_both(tmp_path: Path) -> None:
    peer = peer_script()
    config = tmp_path / "admin.properties"
    config.write_text("client.id=admin\n")
    settings = (f"authorizer.class.name={STANDARD_AUTHORIZER}", f"super.users={EVERYBODY[0]}")
    with kafka_on(peer, tmp_path / "kafka", *settings) as address:
        theirs = said(peer, address, config)
    with EmbeddedBroker(
        manifest={"security": {"plugin": "security", "options": {"acls": {"super_users": EVERYBODY}}}},
        config={"authorizer.class.name": STANDARD_AUTHORIZER},
    ) as broker:
        ours = said(peer, f"127.0.0.1:{broker.port}", config)
    for their_answer, our_answer in zip(theirs, ours, strict=True):
        assert our_answer == their_answer
    assert len(ours[-1][1]) > 2

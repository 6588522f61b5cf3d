"""Kafka's ``ConsumerGroupCommand`` on our groups: it says what it says of Kafka's own. Slow: starts Java many times."""

from __future__ import annotations

import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from blumfeld.testing.process import BrokerProcess
from tests.broker.coordination.transactional_offsets import WAIT_S, make_topics
from tests.kafka_peer import TOOL_SECONDS_MAX, kafka_on, peer_script

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

COMMAND = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
WITH_MEMBERS = (
    "--list",
    "--list --state",
    "--list --type",
    "--list --state Empty",
    "--list --type consumer",
    "--describe --group simple",
    "--describe --group classic",
    "--describe --group modern",
    "--describe --group nobody",
    "--describe --group classic --members --verbose",
    "--describe --group modern --members --verbose",
    "--describe --group classic --state",
    "--describe --group modern --state",
    "--reset-offsets --group classic --topic in --to-earliest --execute",
    "--reset-offsets --group modern --topic in --to-earliest --execute",
    "--delete-offsets --group classic --topic in",
    "--delete-offsets --group modern --topic in",
    "--delete --group classic",
    "--delete --group modern",
)
WITHOUT_MEMBERS = (
    "--reset-offsets --group simple --topic in --shift-by 3 --dry-run",
    "--reset-offsets --group simple --topic in --shift-by 3 --execute",
    "--reset-offsets --group classic --topic in:0,2 --to-latest --execute",
    "--reset-offsets --group modern --all-topics --to-earliest --execute",
    "--reset-offsets --group fresh --topic in --to-offset 7 --execute",
    "--delete-offsets --group modern --topic in:1",
    "--delete-offsets --group simple --topic in:0 --topic nowhere",
    "--describe --all-groups --offsets",
    "--delete --group simple --group classic --group fresh",
    "--delete --all-groups",
    "--list",
)


@contextmanager
def members(address: str) -> Iterator[None]:
    """A member of each protocol, which has read and committed something; and a consumer that is in no group did."""
    from confluent_kafka import Consumer, KafkaException, TopicPartition

    def consumer(group: str, **more: Any) -> Consumer:
        config = {
            "bootstrap.servers": address,
            "group.id": group,
            "client.id": f"client-{group}",
            "log_level": 0,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
        }
        return Consumer({**config, **more})

    outside = consumer("simple")
    for attempt in range(50):  # the groups' topic may still be on its way
        try:
            outside.commit(
                offsets=[TopicPartition("in", 0, 5), TopicPartition("in", 1, 6)], asynchronous=False
            )
            break
        except KafkaException:
            assert attempt < 49
            time.sleep(0.2)
    outside.close()
    live = [consumer("classic"), consumer("modern", **{"group.protocol": "consumer"})]
    try:
        for one in live:
            one.subscribe(["in"])
            assert one.poll(WAIT_S) is not None
            one.commit(
                offsets=[TopicPartition("in", partition, 4) for partition in range(3)], asynchronous=False
            )
        yield
    finally:
        for one in live:
            one.close()


def said(peer: str, address: str, command: str) -> list[str]:
    """What the tool prints, in alphabetical order, without what is of one run."""
    done = subprocess.run(
        [peer, "tool", COMMAND, "--bootstrap-server", address, *command.split()],
        capture_output=True,
        text=True,
        timeout=TOOL_SECONDS_MAX,
        check=False,
    )
    text = (done.stdout + done.stderr).replace(address, "ADDRESS")
    text = re.sub(r"[^\s()']{20,} +(?=/127\.0\.0\.1)", "ID ", text)
    lines = (" ".join(line.split()) for line in text.splitlines())
    return [
        f"exit {done.returncode}",
        *sorted(line for line in lines if line and not line.startswith("\tat ")),
    ]


def all_said(peer: str, address: str) -> dict[str, list[str]]:
    """Command → what the tool printed."""
    make_topics(address)
    answers = {}
    with members(address):
        for command in WITH_MEMBERS:
            answers[command] = said(peer, address, command)
    for command in WITHOUT_MEMBERS:
        answers[f"{command} (later)"] = said(peer, address, command)
    return answers


def test_the_tool_says_of_our_groups_what_it_says_of_kafkas(tmp_path: Path) -> None:
    """Lists, descriptions, offsets reset and deleted, groups deleted, and refusals of each; both types of groups."""
    peer = peer_script()
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    with ExitStack() as stack:
        broker = BrokerProcess(ours)
        broker.start()
        stack.callback(broker.stop)
        of_ours = all_said(peer, broker.address)
    with kafka_on(peer, theirs, "offsets.topic.num.partitions=1") as address:
        of_kafka = all_said(peer, address)
    assert {c: said for c, said in of_ours.items() if said != of_kafka[c]} == {}

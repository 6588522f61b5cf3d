"""The columns of Kafka's tools for topics and records: topics, offsets, deleted records, load, groups."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping

from blumfeld.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from campaigns.clients.catalogue import client_class
from campaigns.clients.checks.client_checks import Check
from campaigns.clients.checks.cluster_tools import ClusterTools, equal, events, table
from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import Client
from campaigns.clients.java import CONFIG_COMMAND, TOOLS, run_tool
from campaigns.clients.live_members import Protocol
from campaigns.clients.records import numbered_samples
from campaigns.clients.verdicts import require
from campaigns.consensus import KRAFT, ZOOKEEPER
from campaigns.coordinators import stable_offsets

RECORDS = 30
RECORD_BYTES = "100"
COPIED = 300
GROUPS = "consumer.group.ConsumerGroupCommand"
PROTOCOLS: Mapping[str, tuple[Protocol, ...]] = {KRAFT: ("classic", "consumer"), ZOOKEEPER: ("classic",)}
"""The protocols of groups that the brokers have, by consensus."""
HEARTBEAT_MS, SESSION_MS = 7_000, 51_000


def topics(client: Client, scene: Scene) -> None:
    """TopicCommand places replicas as told, lists no partition in trouble, adds partitions and deletes."""
    tools = ClusterTools(scene)
    assignment = _spread(tools)
    topic = tools.create(assignment)
    equal("replicas", tools.replicas(topic), assignment)
    equal("leaders", tools.leaders(topic), [replicas[0] for replicas in assignment])
    for trouble in (
        "--under-replicated-partitions",
        "--unavailable-partitions",
        "--under-min-isr-partitions",
    ):
        said = tools.ask("TopicCommand", "--describe", "--topic", topic, trouble)
        require(topic not in said, f"{trouble}: {said[-200:]}")
    tools.ask("TopicCommand", "--alter", "--topic", topic, "--partitions", "5")
    scene.wait("partitions", lambda: len(tools.described(topic)) == 5)
    tools.ask("TopicCommand", "--delete", "--topic", topic)
    scene.wait("the topic to be gone", lambda: topic not in tools.ask("TopicCommand", "--list").split())
    tools.refusal("TopicCommand", "--delete", "--topic", topic)


def records(client: Client, scene: Scene) -> None:
    """VerifiableProducer, GetOffsetShell, DeleteRecordsCommand and VerifiableConsumer agree about the records."""
    tools = ClusterTools(scene)
    topic = tools.create(_spread(tools))
    tools.write(topic, RECORDS)
    ends = tools.offsets(topic, "latest")
    equal("records", sum(ends.values()), RECORDS)
    equal("earliest", tools.offsets(topic, "earliest"), dict.fromkeys(ends, 0))
    newest = tools.offsets(topic, "max-timestamp")
    require(all(newest[nth] < ends[nth] for nth in newest), f"max-timestamp: {newest}, ends {ends}")
    deleted = ends[0] // 2
    said = tools.with_file(
        "DeleteRecordsCommand",
        "--offset-json-file",
        {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": deleted}]},
    )
    require(f"low_watermark: {deleted}" in said, f"delete-records: {said[-200:]}")
    equal("earliest", tools.offsets(topic, "earliest"), {**dict.fromkeys(ends, 0), 0: deleted})
    left = RECORDS - deleted
    printed = tools.ask(
        *("VerifiableConsumer", "--topic", topic, "--group-id", scene.group()),
        *("--max-messages", str(left), "--reset-policy", "earliest"),
    )
    consumed = sum(event["count"] for event in events(printed) if event["name"] == "records_consumed")
    equal("consumed", consumed, left)


def latency(client: Client, scene: Scene) -> None:
    """EndToEndLatency sends each record and has it back before the next, through all replicas."""
    tools = ClusterTools(scene)
    topic = tools.create(_spread(tools))
    printed = run_tool(
        TOOLS + "EndToEndLatency",
        *("--bootstrap-server", scene.bootstrap, "--topic", topic, "--num-records", str(RECORDS)),
        *("--producer-acks", "all", "--record-size", RECORD_BYTES),
    )
    require(re.search(r"^Percentiles: .*99th = \d+", printed, re.MULTILINE) is not None, f"{printed[-300:]}")


def copier(client: Client, scene: Scene) -> None:
    """TransactionalMessageCopier copies a partition and its group's offset in transactions, of which it aborts some:
    a reader of what is committed gets each record once, in order."""
    source, target = scene.new_topic(1, what="in"), scene.new_topic(1, what="out")
    samples = numbered_samples(COPIED, 1)
    client_class("confluent-kafka")(scene.bootstrap).produce(source, samples)
    run_tool(
        TOOLS + "TransactionalMessageCopier",
        *("--broker-list", scene.bootstrap, "--input-topic", source, "--input-partition", "0"),
        *("--output-topic", target, "--transactional-id", scene.topic("id"), "--transaction-size", "7"),
        *("--consumer-group", scene.group(), "--use-group-metadata", "--enable-random-aborts"),
    )
    equal("committed", stable_offsets(scene.bootstrap, scene.group()), {(source, 0): COPIED})
    client.isolation = "read_committed"
    copied = client.consume(target, scene.group("reader"), COPIED)
    equal("copied", [record.value for record in copied], [sample.value for sample in samples])


def streams_reset(client: Client, scene: Scene) -> None:
    """StreamsResetter sets an application's group back to the start of its topic, and deletes its own topics."""
    tools = ClusterTools(scene)
    source, own = scene.new_topic(1), scene.new_topic(1, what="g-store-changelog")
    confluent = client_class("confluent-kafka")(scene.bootstrap)
    confluent.produce(source, numbered_samples(RECORDS, 1))
    confluent.consume(source, scene.group(), RECORDS)
    tools.ask("StreamsResetter", "--application-id", scene.group(), "--input-topics", source)
    equal("reset", stable_offsets(scene.bootstrap, scene.group()), {(source, 0): 0})
    scene.wait("the changelog to be gone", lambda: scene.led_partitions(own) == 0)


def groups(client: Client, scene: Scene) -> None:
    """GroupsCommand and ConsumerGroupCommand list a group of each type, describe, reset and delete it, wherever its
    coordinator is. tests/broker/coordination/test_groups_by_kafkas_tool.py holds all that they print to Kafka's own.
    """
    tools = ClusterTools(scene)
    topic = scene.new_topic(1)
    types = {"classic": "Classic", "consumer": "Consumer"}
    confluent = client_class("confluent-kafka")
    confluent(scene.bootstrap).produce(topic, numbered_samples(RECORDS, 1))
    for protocol in PROTOCOLS[scene.consensus]:
        confluent(scene.bootstrap, protocol).consume(topic, scene.group(protocol), RECORDS)
    listed = {row["GROUP"]: row["TYPE"] for row in table(tools.ask("GroupsCommand", "--list"))}
    for protocol in PROTOCOLS[scene.consensus]:
        equal("type", listed.get(scene.group(protocol)), types[protocol])
        _empty_group(tools, topic, scene.group(protocol))


def _empty_group(tools: ClusterTools, topic: str, group: str) -> None:
    """Describe a group that has consumed all, reset it and delete it."""
    name = ("--group", group)
    tools.scene.wait("an empty group", lambda: "Empty" in tools.ask(GROUPS, "--describe", *name, "--state"))
    printed = tools.ask(GROUPS, "--describe", *name)
    (row,) = table(printed[printed.index("GROUP ") :])
    equal("committed", (row["TOPIC"], row["CURRENT-OFFSET"], row["LAG"]), (topic, str(RECORDS), "0"))
    tools.ask(GROUPS, "--reset-offsets", *name, "--topic", topic, "--to-offset", "7", "--execute")
    equal("reset", stable_offsets(tools.scene.bootstrap, group), {(topic, 0): 7})
    said = tools.ask(GROUPS, "--delete", *name)
    require("was successful" in said, f"delete: {said[-200:]}")


def group_settings(client: Client, scene: Scene) -> None:
    """ConfigCommand sets, shows and unsets a group's own timing, and its members are told at once."""
    tools = ClusterTools(scene)
    entity = ("--entity-name", scene.group())
    alter = ("--alter", "--entity-type", "groups", *entity)
    default_ms = _heartbeat_interval_ms(scene, "before")
    want = {
        "consumer.session.timeout.ms": str(SESSION_MS),
        "consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
    }
    tools.ask(
        CONFIG_COMMAND, *alter, "--add-config", ",".join(f"{key}={value}" for key, value in want.items())
    )
    scene.wait("the interval", lambda: _heartbeat_interval_ms(scene, "after") == HEARTBEAT_MS, 10)
    equal("--describe", tools.configs("groups", *entity), want)
    said = tools.refusal(
        CONFIG_COMMAND, *alter, "--add-config", f"consumer.session.timeout.ms={SESSION_MS * 1000}"
    )
    require("Completed" not in said, "a session of 14 hours was taken")
    tools.ask(CONFIG_COMMAND, *alter, "--delete-config", ",".join(want))
    scene.wait("the default", lambda: _heartbeat_interval_ms(scene, "unset") == default_ms, 10)


def _heartbeat_interval_ms(scene: Scene, who: str) -> int:
    """Join as a member and leave again; return the heartbeat interval that the broker told it."""
    member_id = str(uuid.uuid5(uuid.NAMESPACE_DNS, who))
    join = ConsumerGroupHeartbeatRequest(
        group_id=scene.group(),
        member_id=member_id,
        member_epoch=0,
        rebalance_timeout_ms=30_000,
        subscribed_topic_names=[scene.topic("none")],
        topic_partitions=[],
    )
    coordinator = scene.at_coordinator(scene.group())
    heartbeat = coordinator.ask(join, 1, ConsumerGroupHeartbeatResponse)
    require(heartbeat.error_code == 0, f"heartbeat: error {heartbeat.error_code} {heartbeat.error_message}")
    leave = ConsumerGroupHeartbeatRequest(group_id=scene.group(), member_id=member_id, member_epoch=-1)
    coordinator.ask(leave, 1, ConsumerGroupHeartbeatResponse)
    return heartbeat.heartbeat_interval_ms


def _spread(tools: ClusterTools) -> list[list[int]]:
    """Three partitions, each with another leader, and three replicas where there are three brokers."""
    brokers = tools.all_brokers()
    turned = [brokers[nth:] + brokers[:nth] for nth in range(len(brokers))]
    return [turned[nth % len(turned)] for nth in range(3)]


DATA_COLUMNS: dict[str, Check] = {
    "topics": topics,
    "records": records,
    "latency": latency,
    "copier": copier,
    "streams-reset": streams_reset,
    "groups-tool": groups,
    "848-configs": group_settings,
}
"""Checks of Kafka's tools that work on topics and records."""

"""The columns of Kafka's tools for topics and records: topics, offsets, deleted records, transactions, load."""

from __future__ import annotations

import re

from campaigns.clients.checks.client_checks import Check
from campaigns.clients.checks.cluster_tools import ClusterTools, events, table
from campaigns.clients.checks.scene import Scene
from campaigns.clients.checks.tool_checks import equal
from campaigns.clients.client import Client
from campaigns.clients.java import TOOLS, run_tool
from campaigns.clients.verdicts import require

RECORDS = 30
LOAD_RECORDS = 2_000
RECORD_BYTES = "100"
WAIT_MS = "40000"


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


def transactions(client: Client, scene: Scene) -> None:
    """ProducerPerformance writes in transactions, and TransactionsCommand describes them and finds none that hangs."""
    tools = ClusterTools(scene)
    topic = tools.create(_spread(tools))
    transactional_id = scene.topic("tx")
    tools.ask(
        *("ProducerPerformance", "--topic", topic, "--num-records", str(LOAD_RECORDS)),
        *("--record-size", RECORD_BYTES, "--throughput", "-1"),
        *("--transactional-id", transactional_id, "--transaction-duration-ms", "50"),
    )
    found: list[dict[str, str]] = []

    def is_complete() -> bool:
        listed = table(tools.ask("TransactionsCommand", "list"))
        found[:] = [row for row in listed if row["TransactionalId"] == transactional_id]
        return [row["TransactionState"] for row in found] == ["CompleteCommit"]

    scene.wait("the last transaction to be complete", is_complete)
    said = tools.ask("TransactionsCommand", "describe", "--transactional-id", transactional_id)
    require(transactional_id in said and "CompleteCommit" in said, f"describe: {said[-300:]}")
    written = [nth for nth, end in tools.offsets(topic, "latest").items() if end]
    place = ("--topic", topic, "--partition", str(written[0]))
    (producer,) = table(tools.ask("TransactionsCommand", "describe-producers", *place))
    equal("open transactions", producer["CurrentTransactionStartOffset"], "None")
    equal("producer", producer["ProducerId"], found[0]["ProducerId"])
    equal("hanging", table(tools.ask("TransactionsCommand", "find-hanging", "--topic", topic)), [])
    committed = sum(tools.offsets(topic, "latest").values())
    require(committed > LOAD_RECORDS, f"no markers: the ends are {committed} in all")
    printed = tools.ask(
        *("ConsumerPerformance", "--topic", topic, "--num-records", str(LOAD_RECORDS)),
        *("--timeout", WAIT_MS, "--hide-header"),
    )
    require(
        int(printed.strip().splitlines()[-1].split(", ")[4]) >= LOAD_RECORDS, f"consumed: {printed[-200:]}"
    )


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


def _spread(tools: ClusterTools) -> list[list[int]]:
    """Three partitions, each with another leader, and three replicas where there are three brokers."""
    brokers = tools.all_brokers()
    turned = [brokers[nth:] + brokers[:nth] for nth in range(len(brokers))]
    return [turned[nth % len(turned)] for nth in range(3)]


DATA_COLUMNS: dict[str, Check] = {
    "topics": topics,
    "records": records,
    "transactions": transactions,
    "latency": latency,
}
"""Checks of Kafka's tools that work on topics and records."""

"""The columns of Kafka's tools for operators: quorum, features, directories, elections, reassignments, settings."""

from __future__ import annotations

import re
from pathlib import Path

from campaigns.clients.checks.client_checks import Check
from campaigns.clients.checks.cluster_tools import ClusterTools, cells, equal, numbers, plan, table
from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import Client
from campaigns.clients.java import CONFIG_COMMAND, TOOLS, run_tool
from campaigns.clients.verdicts import NotOffered, require
from campaigns.consensus import ZOOKEEPER

RECORDS = 300
MANY_RECORDS, RECORD_BYTES = 2_000, 100
"""Enough for entries in an index: it has one for each 4 KiB."""
THROTTLE_BYTES = 20_000_000
REASSIGN = "reassign.ReassignPartitionsCommand"
ABSENT_BROKER = "99"


def quorum(client: Client, scene: Scene) -> None:
    """MetadataQuorumCommand describes one leader that all voters follow."""
    tools = ClusterTools(scene)
    brokers = tools.brokers()
    status = cells("\t".join(tools.ask("MetadataQuorumCommand", "describe", "--status").splitlines()))
    leader = status["LeaderId"]
    require(int(leader) in brokers and int(status["LeaderEpoch"]) > 0, f"leader: {status}")
    equal("voters", [int(n) for n in re.findall(r'"id": (\d+)', status["CurrentVoters"])], brokers)
    voters = table(tools.ask("MetadataQuorumCommand", "describe", "--replication"))
    equal(
        "roles",
        {v["NodeId"]: v["Status"] == "Leader" for v in voters},
        {str(b): str(b) == leader for b in brokers},
    )
    require(all(int(v["LogEndOffset"]) > 0 for v in voters), f"log ends: {voters}")


def cluster(client: Client, scene: Scene) -> None:
    """ClusterTool, BrokerApiVersionsCommand and FeatureCommand agree about the brokers; an absent one isn't removed."""
    tools = ClusterTools(scene)
    brokers = tools.brokers()
    require(len(tools.ask("ClusterTool", "cluster-id").split()[-1]) == 22, "no cluster id")
    said = tools.ask("BrokerApiVersionsCommand")
    equal("ApiVersions", sorted(int(n) for n in re.findall(r"\(id: (\d+) ", said)), brokers)
    require(said.count("Produce(0)") == len(brokers), f"Produce: {said[-200:]}")
    features = dict(
        re.findall(
            r"^Feature: (\S+)\s.*FinalizedVersionLevel: (\S+)",
            tools.ask("FeatureCommand", "describe"),
            re.MULTILINE,
        )
    )
    want = None if scene.consensus == ZOOKEEPER else "1"
    require(features.get("group.version") == want, f"features: {features}")
    tools.refusal("FeatureCommand", "upgrade", "--dry-run", "--feature", "group.version=9")
    if scene.consensus == ZOOKEEPER:  # the tool says so, and ends with status 0
        said = tools.ask("ClusterTool", "unregister", "--id", ABSENT_BROKER)
        require("does not support the broker unregistration API" in said, f"unregister: {said[-200:]}")
    else:
        tools.refusal("ClusterTool", "unregister", "--id", ABSENT_BROKER)


def directories(client: Client, scene: Scene) -> None:
    """LogDirsCommand has each replica where TopicCommand says that it is, and DumpLogSegments reads its files."""
    tools = ClusterTools(scene)
    first, second, third = tools.brokers()[:3]
    topic = tools.create([[first, second], [second, third]])
    size = ("--num-records", str(MANY_RECORDS), "--record-size", str(RECORD_BYTES), "--throughput", "-1")
    tools.ask("ProducerPerformance", "--topic", topic, *size)
    log_dirs = tools.log_dirs(topic)
    placed = {broker: sorted(replicas) for broker, replicas in log_dirs.items() if replicas}
    want = {first: [f"{topic}-0"], second: [f"{topic}-0", f"{topic}-1"], third: [f"{topic}-1"]}
    equal("replicas", placed, want)
    for name in (f"{topic}-0", f"{topic}-1"):
        sizes = {replicas[name]["size"] for replicas in log_dirs.values() if name in replicas}
        require(len(sizes) == 1, f"sizes of {name}: {sizes}")
    require(
        not any(r["isFuture"] for replicas in log_dirs.values() for r in replicas.values()), "future replicas"
    )
    dumped = sum(_dumped(Path(replicas["logDir"], name)) for name, replicas in log_dirs[second].items())
    equal("records in the files", dumped, MANY_RECORDS)


def _dumped(folder: Path) -> int:
    """Return the number of records that DumpLogSegments finds in a log, after it has found its index sound.

    :raises NotOffered: the files are on another machine
    """
    if not folder.is_dir():
        raise NotOffered("the brokers' files are not on this machine")
    log = folder / f"{0:020}.log"
    index = log.with_suffix(".index")
    # A log that never grew beyond one index interval has no index.
    files = f"{log},{index}" if index.is_file() else str(log)
    said = run_tool(TOOLS + "DumpLogSegments", "--files", files, "--print-data-log", "--deep-iteration")
    for trouble in ("isvalid: false", "Mismatches", "Non-consecutive"):
        require(trouble not in said, f"{trouble}: {said[-300:]}")
    return len(re.findall(r"^\| offset: \d+", said, re.MULTILINE))


def elections(client: Client, scene: Scene) -> None:
    """LeaderElectionCommand gives the preferred replica the lead back, and elects no other where there is no need."""
    tools = ClusterTools(scene)
    first, second, third = tools.brokers()[:3]
    topic = tools.create([[first, second, third]])
    tools.write(topic, RECORDS)
    _reassign(tools, topic, {0: [third, second, first]})
    equal("the leader stays", tools.leaders(topic), [first])
    place = ("--topic", topic, "--partition", "0")
    said = tools.ask("LeaderElectionCommand", "--election-type", "preferred", *place)
    require("Successfully completed" in said, f"preferred: {said[-200:]}")
    scene.wait("the preferred leader", lambda: tools.leaders(topic) == [third])
    said = tools.ask("LeaderElectionCommand", "--election-type", "preferred", *place)
    require("Valid replica already elected" in said, f"again: {said[-200:]}")
    said = tools.ask("LeaderElectionCommand", "--election-type", "unclean", *place)
    require("Valid replica already elected" in said, f"unclean, with a leader: {said[-200:]}")
    equal("records", tools.offsets(topic, "latest"), {0: RECORDS})


def reassignment(client: Client, scene: Scene) -> None:
    """ReassignPartitionsCommand proposes, moves with a throttle, verifies, takes the throttle away, and cancels."""
    tools = ClusterTools(scene)
    first, second, third = tools.brokers()[:3]
    topic = tools.create([[first, second], [second, third]])
    tools.write(topic, RECORDS)
    before = tools.offsets(topic, "latest")
    said = tools.with_file(
        REASSIGN,
        "--topics-to-move-json-file",
        {"version": 1, "topics": [{"topic": topic}]},
        *("--generate", "--broker-list", f"{first},{second},{third}"),
    )
    require("Proposed partition reassignment" in said, f"--generate: {said[-200:]}")
    target = {0: [second, third], 1: [third, first]}
    _reassign(tools, topic, target, "--throttle", str(THROTTLE_BYTES))
    equal("replicas", tools.replicas(topic), list(target.values()))
    in_sync = [sorted(numbers(row["Isr"])) for row in tools.described(topic)]
    equal("in sync", in_sync, [sorted(replicas) for replicas in target.values()])
    equal("throttles of the topic", tools.configs("topics", "--entity-name", topic), {})
    equal("throttles of a broker", tools.configs("brokers", "--entity-name", str(first)), {})
    equal("records", tools.offsets(topic, "latest"), before)
    said = tools.ask(REASSIGN, "--list")
    require("No partition reassignments found" in said, f"--list: {said[-200:]}")
    said = tools.with_file(REASSIGN, "--reassignment-json-file", plan(topic, target), "--cancel")
    require("None of the specified partition moves are active" in said, f"--cancel: {said[-200:]}")


def _reassign(tools: ClusterTools, topic: str, target: dict[int, list[int]], *options: str) -> None:
    """Execute a reassignment and wait until ``--verify`` says that it is complete."""
    moves = plan(topic, target)
    file = "--reassignment-json-file"
    said = tools.with_file(REASSIGN, file, moves, "--execute", *options)
    require("Successfully started" in said, f"--execute: {said[-200:]}")

    def complete() -> bool:
        verified = tools.with_file(REASSIGN, file, moves, "--verify")
        require("does not match" not in verified, f"--verify: {verified[-300:]}")
        return verified.count("is completed") == len(target)

    scene = tools.scene
    scene.wait("the reassignment", complete, 90.0)


def settings(client: Client, scene: Scene) -> None:
    """ConfigCommand sets, shows and unsets keys of a topic, a broker and all brokers. A bad value is refused."""
    tools = ClusterTools(scene)
    first = tools.brokers()[0]
    topic = tools.create([[first]])
    changed = {"retention.ms": "7200000", "cleanup.policy": "compact,delete"}
    _change(tools, changed, "topics", "--entity-name", topic)
    bad = ("--add-config", "retention.ms=long")
    tools.refusal(CONFIG_COMMAND, "--alter", "--entity-type", "topics", "--entity-name", topic, *bad)
    _change(tools, {"log.cleaner.threads": "2"}, "brokers", "--entity-name", str(first))
    _change(tools, {"log.retention.ms": "7200000"}, "brokers", "--entity-default")


def _change(tools: ClusterTools, wanted: dict[str, str], kind: str, *entity: str) -> None:
    """Set keys, find them, and unset them."""
    alter = ("--alter", "--entity-type", kind, *entity)
    given = ",".join(
        f"{key}=[{value}]" if "," in value else f"{key}={value}" for key, value in wanted.items()
    )
    tools.ask(CONFIG_COMMAND, *alter, "--add-config", given)
    tools.scene.wait(
        f"{kind} to have {given}", lambda: wanted.items() <= tools.configs(kind, *entity).items()
    )
    tools.ask(CONFIG_COMMAND, *alter, "--delete-config", ",".join(wanted))
    tools.scene.wait(
        f"{kind} without {given}", lambda: not wanted.keys() & tools.configs(kind, *entity).keys()
    )


OPERATION_COLUMNS: dict[str, Check] = {
    "quorum": quorum,
    "cluster": cluster,
    "log-dirs": directories,
    "elections": elections,
    "reassign": reassignment,
    "settings": settings,
}
"""Checks of Kafka's tools that ask about brokers and replicas. They need three brokers."""

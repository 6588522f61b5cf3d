"""Kafka's tools for operators of a cluster: how they are asked, and what they print as values."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from campaigns.clients.checks.scene import Scene
from campaigns.clients.java import CONFIG_COMMAND, TOOLS, run_tool
from campaigns.clients.verdicts import CheckFailed, NotOffered, require

BROKERS = 3
"""Brokers that checks of replicas need."""
VERB_FIRST = ("ClusterTool",)
"""Tools that want the address behind their verb."""
Assignment = Sequence[Sequence[int]]
"""The replicas of each partition, the preferred leader first."""


class ClusterTools:
    """The tools, asked about the brokers and topics of one check."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self._bootstrap = ("--bootstrap-server", scene.bootstrap)

    def ask(self, tool: str, *options: str) -> str:
        """Run a tool; return its stdout.

        :raises CheckFailed: it ended with another status than 0
        """
        if tool in VERB_FIRST:
            return run_tool(_class(tool), options[0], *self._bootstrap, *options[1:])
        return run_tool(_class(tool), *self._bootstrap, *options)

    def refusal(self, tool: str, *options: str) -> str:
        """Run a tool that must not succeed; return its words.

        :raises CheckFailed: it ended with status 0
        """
        try:
            said = self.ask(tool, *options)
        except CheckFailed as failure:
            return str(failure)
        raise CheckFailed(f"{tool} {' '.join(options)} was not refused: {said[-200:]}")

    def with_file(self, tool: str, option: str, content: object, *options: str) -> str:
        """Run a tool with a file of JSON; return its stdout."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "given.json")
            path.write_text(json.dumps(content))
            return self.ask(tool, option, str(path), *options)

    def all_brokers(self) -> list[int]:
        """The ids of the brokers that ClusterTool lists."""
        listed = self.ask("ClusterTool", "list-endpoints")
        return sorted(int(row["ID"]) for row in table(listed))

    def brokers(self) -> list[int]:
        """The same for a check that needs several.

        :raises NotOffered: they are fewer than :data:`BROKERS`
        """
        brokers = self.all_brokers()
        if len(brokers) < BROKERS:
            raise NotOffered(f"it needs {BROKERS} brokers")
        return brokers

    def create(self, assignment: Assignment) -> str:
        """A topic with these replicas; its name."""
        topic = self.scene.topic()
        given = ",".join(":".join(map(str, replicas)) for replicas in assignment)
        self.ask("TopicCommand", "--create", "--topic", topic, "--replica-assignment", given)
        led = len(assignment)
        self.scene.wait("a leader for each partition", lambda: self.scene.led_partitions(topic) == led)
        return topic

    def described(self, topic: str) -> list[dict[str, str]]:
        """The partitions of ``TopicCommand --describe``, each with ``Leader``, ``Replicas``, ``Isr``…"""
        printed = self.ask("TopicCommand", "--describe", "--topic", topic)
        return [cells(line) for line in printed.splitlines() if "\tPartition: " in line]

    def leaders(self, topic: str) -> list[int]:
        """The leader of each partition."""
        return [int(row["Leader"]) for row in self.described(topic)]

    def replicas(self, topic: str) -> list[list[int]]:
        """The replicas of each partition."""
        return [numbers(row["Replicas"]) for row in self.described(topic)]

    def offsets(self, topic: str, when: str) -> dict[int, int]:
        """Return the offset of each partition by GetOffsetShell; one without an offset is left out."""
        printed = self.ask("GetOffsetShell", "--topic", topic, "--time", when)
        fields = (line.rsplit(":", 2) for line in printed.split())
        return {int(partition): int(offset) for _, partition, offset in fields if offset}

    def write(self, topic: str, count: int) -> None:
        """Have VerifiableProducer write so many records.

        :raises CheckFailed: not each was acknowledged
        """
        printed = self.ask(
            "VerifiableProducer", "--topic", topic, "--max-messages", str(count), "--acks", "-1"
        )
        sent = [event for event in events(printed) if event["name"] == "producer_send_success"]
        if len(sent) != count:
            raise CheckFailed(f"VerifiableProducer: {len(sent)} of {count} records: {printed[-300:]}")

    def configs(self, kind: str, *options: str) -> dict[str, str]:
        """Return the settings of an entity by ``ConfigCommand --describe``."""
        printed = self.ask(CONFIG_COMMAND, "--describe", "--entity-type", kind, *options)
        return dict(re.findall(r"^\s+([a-z.]+)=(\S*) sensitive", printed, re.MULTILINE))

    def log_dirs(self, topic: str) -> dict[int, dict[str, dict[str, Any]]]:
        """Return, by LogDirsCommand, for each broker the replicas of a topic, each with its ``logDir``."""
        printed = self.ask("LogDirsCommand", "--describe", "--topic-list", topic)
        (line,) = (line for line in printed.splitlines() if line.startswith("{"))
        return {
            broker["broker"]: {
                replica["partition"]: {**replica, "logDir": place["logDir"]}
                for place in broker["logDirs"]
                for replica in place["partitions"]
            }
            for broker in json.loads(line)["brokers"]
        }


def plan(topic: str, assignment: Mapping[int, Sequence[int]]) -> dict[str, Any]:
    """The file that ReassignPartitionsCommand takes."""
    moves = [{"topic": topic, "partition": n, "replicas": list(to)} for n, to in assignment.items()]
    return {"version": 1, "partitions": moves}


def table(printed: str) -> list[dict[str, str]]:
    """The lines of a table by the titles in its first line. A line with other than a cell for each is left out."""
    titles, *lines = [line.split() for line in printed.splitlines() if line.strip()] or [[]]
    return [dict(zip(titles, line, strict=True)) for line in lines if len(line) == len(titles)]


def cells(line: str) -> dict[str, str]:
    """The cells of a line such as ``Topic: t  Partition: 0``, separated by tabs."""
    pairs = (part.partition(":") for part in line.strip().split("\t"))
    return {name: value.strip() for name, _, value in pairs}


def numbers(text: str) -> list[int]:
    """Numbers with commas between."""
    return [int(number) for number in text.split(",") if number]


def events(printed: str) -> list[dict[str, Any]]:
    """The lines of JSON that the verifiable clients print."""
    return [json.loads(line) for line in printed.splitlines() if line.startswith("{")]


def equal(what: str, actual: object, want: object) -> None:
    """Fail with both, if they differ.

    :raises CheckFailed: they do
    """
    require(actual == want, f"{what}: {actual}, not {want}")


def _class(tool: str) -> str:
    return tool if tool == CONFIG_COMMAND else TOOLS + tool

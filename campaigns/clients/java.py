"""The Java client, through Kafka's own console, perf and admin tools.

The tools are run by a script ``PEER tool CLASS ARGUMENT…``; its path is given by the environment variable
``KAFKA_PEER``, which the matrix sets from its option ``--peer``.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import ClassVar

from campaigns.clients.client import (
    SESSION_TIMEOUT_MS,
    WAIT_S,
    CheckFailed,
    Client,
    ClusterView,
    Consumed,
    run_program,
)
from campaigns.clients.live_members import MemberSpec, Protocol
from campaigns.clients.records import AS_USUAL, Headers, Received, Sample, Sending, Traits, Turn
from campaigns.clients.verdicts import NoClientError
from campaigns.references import PEER_VARIABLE

TOOLS = "org.apache.kafka.tools."
CONFIG_COMMAND = "kafka.admin.ConfigCommand"
ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "roundrobin": "org.apache.kafka.clients.consumer.RoundRobinAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
NULL, SEPARATOR = "~null~", "\x1f"
NO_HEADERS = b"NO_HEADERS"
COLUMNS = 6
"""Columns that ConsoleConsumer is told to print of a record."""
JVM_S = 120.0
"""Time that a tool may take: a JVM starts in seconds, on a busy machine in half a minute."""
REQUEST_S = 30.0
"""The Java client's own time for a request. ConsoleProducer's is 1.5 s: on a busy machine it sent records twice."""
BLOCKED_S = 25.0
"""Longest wait of a record for a broker. Each has its own: a check with a wrong login sends three."""
NOT_SENT = "ErrorLoggingCallback"
"""ConsoleProducer's logger of records that weren't taken: the tool ends with status 0 all the same."""


class JavaTools(Client):
    """Records go through lines of text: partition and time are the producer's choice."""

    name = "java"
    traits = Traits(text_only=True, sets_timestamp=False, chooses_partition=False)
    protocols = ("classic", "consumer")
    assignors = ("range", "roundrobin", "cooperative-sticky", "uniform")
    regex_protocols = ("consumer",)
    reports_refusals = True
    why_not: ClassVar = {"regex": "VerifiableConsumer has no regular expressions"}

    @classmethod
    def absent(cls) -> str | None:
        """It needs a script that runs Kafka's tools, and a JVM."""
        script = os.environ.get(PEER_VARIABLE, "")
        if not script or not Path(script).exists():
            return "no --peer (a script that runs Kafka's tools)"
        return None if shutil.which("java") else "apt install openjdk-17-jre-headless maven"

    @classmethod
    def version(cls) -> str:
        """The version that the tools print."""
        return _tool(TOOLS + "TopicCommand", "--version").decode().split()[-1]

    def cluster(self) -> ClusterView:
        """By BrokerApiVersionsCommand and TopicCommand."""
        printed = self._ask(TOOLS + "BrokerApiVersionsCommand")
        brokers = [
            (int(number), host, int(port))
            for host, port, number in re.findall(r"^(\S+):(\d+) \(id: (\d+) ", printed, re.MULTILINE)
        ]
        described = self._ask(TOOLS + "TopicCommand", "--describe")
        matches = re.findall(r"^Topic: (\S+)\s.*PartitionCount: (\d+)", described, re.MULTILINE)
        return ClusterView(brokers, {topic: int(count) for topic, count in matches})

    def produce(self, topic: str, samples: Sequence[Sample], how: Sending = AS_USUAL) -> None:
        """By ConsoleProducer, a line a record.

        :raises CheckFailed: a record wasn't taken; in the words of the client's log
        """
        options = ["--topic", topic, "--compression-codec", how.codec, "--request-required-acks", how.acks]
        options += ["--command-property", f"enable.idempotence={str(how.idempotent).lower()}"]
        options += ["--max-block-ms", str(int(BLOCKED_S * 1000))]
        options += ["--request-timeout-ms", str(int(REQUEST_S * 1000))]
        for name, value in (
            ("parse.key", "true"),
            ("parse.headers", "true"),
            ("key.separator", SEPARATOR),
            ("headers.delimiter", SEPARATOR),
            ("null.marker", NULL),
        ):
            options += ["--reader-property", f"{name}={value}"]
        lines = "".join(_line(sample) for sample in samples)
        command = tool_command(TOOLS + "ConsoleProducer")
        command += ["--bootstrap-server", self.bootstrap, *options, *self.access.java_options()]
        printed = run_program(command, lines.encode(), JVM_S)
        if NOT_SENT.encode() in printed:
            raise CheckFailed(" / ".join(_log_of(printed)))

    def consume(self, topic: str, group: str, count: int) -> Consumed:
        """By ConsoleConsumer, which commits as it closes."""
        more = ("--max-messages", str(count), "--timeout-ms", str(int(WAIT_S * 1000)))
        return _records(run_program([*self._consumer(topic, group), *more], timeout_s=JVM_S))

    def transact(self, topic: str, transactional_id: str, turns: Sequence[Turn]) -> None:
        """By a program of ours: the console producer commits one transaction only."""
        lines: list[str] = []
        for turn in turns:
            lines += map(_sending, turn.samples)
            lines += [f"offset\t{turn.group}\t{turn.source}\t{at}\t{end}" for at, end in turn.offsets.items()]
            lines.append("commit" if turn.commits else "abort")
        self._transactional("transact", topic, transactional_id, lines)

    def fence(self, topic: str, transactional_id: str, sample: Sample) -> str:
        """By the same program."""
        return self._transactional("fence", topic, transactional_id, [_sending(sample)]).strip()

    def _transactional(self, verb: str, topic: str, transactional_id: str, lines: Sequence[str]) -> str:
        program = str(files("campaigns.clients") / "java_client" / "TransactionalProducer.java")
        given = (verb, self.bootstrap, topic, transactional_id, *self.access.java_file())
        return run_program([*tool_command(program), *given], "\n".join(lines).encode(), JVM_S).decode()

    def member_command(self, spec: MemberSpec) -> tuple[Sequence[str], str]:
        """By VerifiableConsumer, or a program of ours where the broker is to resolve a regular expression."""
        self.offers(spec)
        command = [os.environ[PEER_VARIABLE], "tool"]
        settings = self._settings(spec.protocol)
        if spec.regex:
            program = files("campaigns.clients") / "java_client" / "RegexMember.java"
            settings += [f"bootstrap.servers={self.bootstrap}", f"group.id={spec.group}"]
            settings += ["auto.offset.reset=earliest", "enable.auto.commit=false"]
            return [*command, str(program), spec.topic, "/dev/stdin"], "\n".join(settings)
        command += [TOOLS + "VerifiableConsumer", "--bootstrap-server", self.bootstrap, "--topic", spec.topic]
        command += ["--group-id", spec.group, "--group-protocol", spec.protocol]
        if spec.instance_id:
            command += ["--group-instance-id", spec.instance_id]
        if spec.protocol == "classic":
            command += ["--assignment-strategy", ASSIGNORS[spec.assignor or "range"]]
            command += ["--session-timeout", str(SESSION_TIMEOUT_MS)]
        elif spec.assignor:
            command += ["--group-remote-assignor", spec.assignor]
        return [*command, "--command-config", "/dev/stdin"], "\n".join(settings)

    def offsets(self, topic: str, timestamp_ms: int) -> dict[int, tuple[int, int, int]]:
        """By GetOffsetShell."""
        offsets: dict[int, list[int]] = {}
        for when in ("earliest", "latest", str(timestamp_ms)):
            printed = self._ask(TOOLS + "GetOffsetShell", "--topic", topic, "--time", when)
            for line in printed.split():
                _, partition, offset = line.rsplit(":", 2)
                offsets.setdefault(int(partition), []).append(int(offset))
        return {partition: (o[0], o[1], o[2]) for partition, o in offsets.items()}

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """By TopicCommand."""
        options = ["--create", "--topic", topic, "--partitions", str(partitions)]
        for key, value in configs.items():
            options += ["--config", f"{key}={value}"]
        self._ask(TOOLS + "TopicCommand", *options)

    def add_partitions(self, topic: str, total: int) -> None:
        """By TopicCommand."""
        self._ask(TOOLS + "TopicCommand", "--alter", "--topic", topic, "--partitions", str(total))

    def delete_topic(self, topic: str) -> None:
        """By TopicCommand."""
        self._ask(TOOLS + "TopicCommand", "--delete", "--topic", topic)

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """By ConfigCommand."""
        printed = self._ask(CONFIG_COMMAND, "--describe", "--all", "--topic", topic)
        return dict(re.findall(r"^\s+([a-z.]+)=(\S*) sensitive", printed, re.MULTILINE))

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """By ConfigCommand."""
        self._ask(CONFIG_COMMAND, "--alter", "--topic", topic, "--add-config", f"{key}={value}")

    def group_ids(self) -> list[str]:
        """By ConsumerGroupCommand."""
        return self._ask(TOOLS + "consumer.group.ConsumerGroupCommand", "--list").split()

    def group_state(self, group: str) -> str:
        """By ConsumerGroupCommand; the last column but one."""
        printed = self._ask(
            TOOLS + "consumer.group.ConsumerGroupCommand", "--describe", "--state", "--group", group
        )
        rows = [line.split() for line in printed.splitlines() if line.startswith(group)]
        if not rows:
            raise CheckFailed(f"no state of {group} in: {printed[-200:]}")
        return rows[0][-2]

    def delete_group(self, group: str) -> None:
        """By ConsumerGroupCommand."""
        self._ask(TOOLS + "consumer.group.ConsumerGroupCommand", "--delete", "--group", group)

    def load(self, topic: str, group: str, count: int, size_bytes: int) -> int:
        """By ProducerPerformance and ConsumerPerformance; what the latter says it consumed."""
        sizes = ("--num-records", str(count), "--record-size", str(size_bytes), "--throughput", "-1")
        self._ask(TOOLS + "ProducerPerformance", "--topic", topic, *sizes)
        more = ("--num-records", str(count), "--timeout", str(int(WAIT_S * 1000)), "--hide-header")
        printed = self._ask(TOOLS + "ConsumerPerformance", "--topic", topic, "--group", group, *more)
        return int(printed.strip().splitlines()[-1].split(", ")[4])

    def _consumer(self, topic: str, group: str) -> list[str]:
        command = tool_command(TOOLS + "consumer.ConsoleConsumer")
        command += [
            "--bootstrap-server",
            self.bootstrap,
            "--topic",
            topic,
            "--group",
            group,
            "--from-beginning",
        ]
        for name in ("timestamp", "partition", "offset", "headers", "key"):
            command += ["--formatter-property", f"print.{name}=true"]
        command += ["--formatter-property", f"key.separator={SEPARATOR}"]
        command += ["--formatter-property", f"null.literal={NULL}"]
        for setting in self._settings(self.protocol):
            command += ["--command-property", setting]
        return [*command, *self.access.java_options()]

    def _settings(self, protocol: Protocol) -> list[str]:
        """With KIP-848 the session timeout and the heartbeat are the broker's, and the client refuses them."""
        given = [
            f"group.protocol={protocol}",
            "metadata.max.age.ms=1000",
            f"isolation.level={self.isolation}",
        ]
        if protocol == "classic":
            given += [f"session.timeout.ms={SESSION_TIMEOUT_MS}", "heartbeat.interval.ms=500"]
        return given

    def _ask(self, tool: str, *options: str) -> str:
        return ask_tool(self.bootstrap, tool, *options, *self.access.java_options())


class ConsoleTools(JavaTools):
    """The same programs, for the columns of Kafka's tools."""

    name = "kafka-tools"


def java_command(peer: Path | None, program: str) -> list[str]:
    """Return what runs a program of ``java_client/`` with Kafka's classes; the program's arguments follow it.

    :param peer: the script that runs Kafka's classes
    :raises NoClientError: it isn't given
    """
    if peer is None:
        raise NoClientError("the Java client needs --peer, the script that runs Kafka's classes")
    return [str(peer.resolve()), "tool", str(files("campaigns.clients") / "java_client" / program)]


def ask_tool(bootstrap: str, tool: str, *options: str) -> str:
    """Run one of Kafka's tools; return its stdout.

    :raises CheckFailed: it ended with another status than 0, or not in time
    """
    return run_tool(tool, "--bootstrap-server", bootstrap, *options)


def run_tool(tool: str, *options: str) -> str:
    """The same with all options given."""
    return _tool(tool, *options).decode()


def tool_command(tool: str) -> list[str]:
    """Return the command of one of Kafka's tools; its options follow it."""
    return [os.environ[PEER_VARIABLE], "tool", tool]


def _tool(tool: str, *options: str) -> bytes:
    return run_program([*tool_command(tool), *options], timeout_s=JVM_S)


def _sending(sample: Sample) -> str:
    return f"send\t{sample.partition}\t{_text(sample.key)}\t{_text(sample.value)}"


def _line(sample: Sample) -> str:
    headers = ",".join(f"{name}:{NULL if v is None else v.decode()}" for name, v in sample.headers)
    return SEPARATOR.join((headers or NULL, _text(sample.key), _text(sample.value))) + "\n"


def _text(content: bytes | None) -> str:
    return NULL if content is None else content.decode()


def _log_of(printed: bytes) -> list[str]:
    """Return the first message of the client's log, which goes to stdout, and the exceptions in it."""
    lines = printed.decode(errors="replace").splitlines()
    messages = [line.partition(" - ")[2] for line in lines if " - " in line]
    exceptions = [line for line in lines if line.startswith(("org.apache.kafka.", "Caused by: "))]
    return list(dict.fromkeys([*messages[:1], *exceptions]))


def _records(printed: bytes) -> Consumed:
    """Parse what ConsoleConsumer prints: time, partition, offset, headers, key, value. Other lines are its log's."""
    records: Consumed = []
    for line in printed.split(b"\n"):
        if line.count(SEPARATOR.encode()) < COLUMNS - 1:
            continue
        timestamp, partition, offset, headers, key, value = line.split(SEPARATOR.encode(), COLUMNS - 1)
        records.append(
            Received(
                int(partition.partition(b":")[2]),
                int(offset.partition(b":")[2]),
                _bytes(key),
                _bytes(value),
                _headers(headers),
                int(timestamp.partition(b":")[2]),
            )
        )
    return records


def _bytes(text: bytes) -> bytes | None:
    return None if text == NULL.encode() else text


def _headers(text: bytes) -> Headers:
    if text == NO_HEADERS:
        return ()
    pairs = [pair.partition(b":") for pair in text.split(b",")]
    return tuple((name.decode(), _bytes(value)) for name, _, value in pairs)

"""Clients in other languages: a small program of ours does one operation with the client, driven by JSON.

A request on its stdin, the answer as the last line of its stdout; bytes are base64. The operations and their
arguments are the same for all, so this module is all there is of such a client but how it is built and started.
"""

from __future__ import annotations

import json
from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any

from campaigns.clients.client import (
    SESSION_TIMEOUT_MS,
    WAIT_S,
    Client,
    ClusterView,
    Consumed,
    run_program,
)
from campaigns.clients.live_members import MemberSpec
from campaigns.clients.records import AS_USUAL, Received, Sample, Sending, Turn


class JsonProgram(Client):
    """The operations of all such clients."""

    @classmethod
    def command(cls) -> list[str]:
        """Return the command that starts the program."""
        raise NotImplementedError

    def cluster(self) -> ClusterView:
        """By the admin client."""
        view = self.ask("cluster")
        return ClusterView([(b[0], b[1], b[2]) for b in view["brokers"]], dict(view["topics"]))

    def produce(self, topic: str, samples: Sequence[Sample], how: Sending = AS_USUAL) -> None:
        """All in one operation."""
        self.ask(
            "produce",
            topic=topic,
            codec=how.codec,
            acks=-1 if how.acks == "all" else int(how.acks),
            idempotent=how.idempotent,
            samples=[_row(sample) for sample in samples],
        )

    def transact(self, topic: str, transactional_id: str, turns: Sequence[Turn]) -> None:
        """All turns in one operation."""
        self.ask(
            "transact",
            topic=topic,
            transactionalId=transactional_id,
            turns=[
                {
                    "samples": [_row(sample) for sample in turn.samples],
                    "commits": turn.commits,
                    "group": turn.group,
                    "source": turn.source,
                    "offsets": [[at, offset] for at, offset in turn.offsets.items()],
                }
                for turn in turns
            ],
        )

    def fence(self, topic: str, transactional_id: str, sample: Sample) -> str:
        """Both producers in one operation."""
        answer = self.ask("fence", topic=topic, transactionalId=transactional_id, samples=[_row(sample)])
        return str(answer["error"])

    def consume(self, topic: str, group: str, count: int) -> Consumed:
        """With a commit at the end."""
        answer = self.ask("consume", count=count, waitMs=int(WAIT_S * 1000), **self._member(topic, group))
        return [_record(row) for row in answer["records"]]

    def offsets(self, topic: str, timestamp_ms: int) -> dict[int, tuple[int, int, int]]:
        """By the admin client."""
        answer = self.ask("offsets", topic=topic, timestamp=timestamp_ms)
        timed = {row["partition"]: int(row["offset"]) for row in answer["timed"]}
        return {
            row["partition"]: (int(row["low"]), int(row["high"]), timed[row["partition"]])
            for row in answer["ends"]
        }

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """By the admin client."""
        self.ask("createTopic", topic=topic, partitions=partitions, configs=dict(configs))

    def add_partitions(self, topic: str, total: int) -> None:
        """By the admin client."""
        self.ask("addPartitions", topic=topic, total=total)

    def delete_topic(self, topic: str) -> None:
        """By the admin client."""
        self.ask("deleteTopic", topic=topic)

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """By the admin client."""
        return dict(self.ask("topicConfig", topic=topic))

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """By the admin client."""
        self.ask("setTopicConfig", topic=topic, key=key, value=value)

    def group_ids(self) -> list[str]:
        """By the admin client."""
        return list(self.ask("groupIds"))

    def group_state(self, group: str) -> str:
        """By the admin client."""
        return str(self.ask("groupState", group=group))

    def delete_group(self, group: str) -> None:
        """By the admin client."""
        self.ask("deleteGroup", group=group)

    def member_command(self, spec: MemberSpec) -> tuple[list[str], str]:
        """The operation ``member``."""
        self.offers(spec)
        given = self._member(spec.topic, spec.group)
        more = {"assignor": spec.assignor, "instanceId": spec.instance_id, "regex": spec.regex}
        return self.command(), self.request("member", **{**given, "protocol": spec.protocol, **more})

    def ask(self, operation: str, **arguments: Any) -> Any:
        """Ask the program; return its answer.

        :raises CheckFailed: it ended with another status than 0, or not in time
        """
        printed = run_program(self.command(), self.request(operation, **arguments).encode(), 2 * WAIT_S)
        return json.loads(printed.splitlines()[-1])

    def request(self, operation: str, **arguments: Any) -> str:
        """The line that goes to the program's stdin."""
        dialled = {"bootstrap": self.bootstrap, "access": self.access.to_json()}
        return json.dumps({"operation": operation, **dialled, **arguments})

    def _member(self, topic: str, group: str) -> dict[str, Any]:
        return {
            "topic": topic,
            "group": group,
            "sessionTimeout": SESSION_TIMEOUT_MS,
            "protocol": self.protocol,
            "isolation": self.isolation,
        }


def _row(sample: Sample) -> dict[str, Any]:
    return {
        "key": _text(sample.key),
        "value": _text(sample.value),
        "headers": [[name, _text(value)] for name, value in sample.headers],
        "timestamp": sample.timestamp_ms,
        "partition": sample.partition,
    }


def _text(content: bytes | None) -> str | None:
    return None if content is None else b64encode(content).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)


def _record(row: dict[str, Any]) -> Received:
    return Received(
        row["partition"],
        row["offset"],
        _bytes(row["key"]),
        _bytes(row["value"]),
        tuple((name, _bytes(value)) for name, value in row["headers"]),
        row["timestamp"],
    )

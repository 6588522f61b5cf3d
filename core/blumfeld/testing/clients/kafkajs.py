"""kafkajs: a client in JavaScript, run by node and driven through ``kafkajs_client.js``."""

from __future__ import annotations

import json
import shutil
import tempfile
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

from blumfeld.testing.clients.client import (
    SESSION_TIMEOUT_MS,
    WAIT_S,
    CheckFailed,
    Client,
    ClusterView,
    Consumed,
    run_program,
)
from blumfeld.testing.clients.processes import cache_folder, share_by_processes
from blumfeld.testing.clients.records import Received, Sample, Traits

PACKAGES = ("kafkajs@2", "kafkajs-snappy@1", "zstd-codec@0.1")
"""kafkajs has gzip alone; snappy and zstd are plugged in from these, none of which is compiled at install."""
INSTALL_S = 180.0


class KafkaJs(Client):
    """Installed by npm into the user's cache at the first run."""

    name = "kafkajs"
    # Headers are a JavaScript object: a name given twice shows up as one entry with both values.
    traits = Traits(
        null_headers=False,
        shows_repeated_headers=False,
        codecs=("none", "gzip", "snappy", "zstd"),
        # lz4js, which is not compiled, writes linked blocks: Kafka refuses them, and so do we.
        without_codec="kafkajs has no lz4; kafkajs-lz4 needs a compiler",
    )

    @classmethod
    def absent(cls) -> str | None:
        """It needs node, and once npm and the network."""
        if not shutil.which("node"):
            return "apt install nodejs npm"
        folder = cache_folder("kafkajs")
        if not Path(folder, ".installed").exists():
            if not shutil.which("npm"):
                return "apt install npm"
            try:
                _install(folder)
            except CheckFailed as failure:
                return f"npm install failed: {failure}"
        return None

    @classmethod
    def version(cls) -> str:
        """Of kafkajs and node."""
        described = Path(cache_folder("kafkajs"), "node_modules", "kafkajs", "package.json").read_text()
        node = run_program(["node", "--version"]).decode().strip()
        return f"{json.loads(described)['version']} (node {node.removeprefix('v')})"

    def cluster(self) -> ClusterView:
        """By the admin client."""
        found = self._ask("cluster")
        return ClusterView([(b[0], b[1], b[2]) for b in found["brokers"]], dict(found["topics"]))

    def produce(
        self,
        topic: str,
        samples: Sequence[Sample],
        *,
        codec: str = "none",
        acks: str = "all",
        idempotent: bool = False,
    ) -> None:
        """In calls of 2,000 records."""
        self._ask(
            "produce",
            topic=topic,
            codec=codec,
            acks=-1 if acks == "all" else int(acks),
            idempotent=idempotent,
            samples=[
                {
                    "key": _text(s.key),
                    "value": _text(s.value),
                    "headers": [[name, _text(value)] for name, value in s.headers],
                    "timestamp": s.timestamp_ms,
                    "partition": s.partition,
                }
                for s in samples
            ],
        )

    def consume(self, topic: str, group: str, count: int) -> Consumed:
        """With a commit at the end."""
        found = self._ask("consume", count=count, waitMs=int(WAIT_S * 1000), **_member(topic, group))
        return [_record(row) for row in found["records"]]

    def share(self, topic: str, group: str, count: int, when_started: Callable[[], None]) -> list[Consumed]:
        """Two processes."""
        with tempfile.NamedTemporaryFile("w", suffix=".json") as request:
            request.write(self._request("follow", **_member(topic, group)))
            request.flush()
            command = ["sh", "-c", f'exec "$@" <{request.name}', "sh", *_command()]
            return share_by_processes([command, command], _printed, count, when_started)

    def offsets(self, topic: str, timestamp_ms: int) -> dict[int, tuple[int, int, int]]:
        """By the admin client."""
        found = self._ask("offsets", topic=topic, timestamp=timestamp_ms)
        timed = {row["partition"]: int(row["offset"]) for row in found["timed"]}
        return {
            row["partition"]: (int(row["low"]), int(row["high"]), timed[row["partition"]])
            for row in found["ends"]
        }

    def create_topic(self, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
        """By the admin client."""
        self._ask("createTopic", topic=topic, partitions=partitions, configs=dict(configs))

    def add_partitions(self, topic: str, total: int) -> None:
        """By the admin client."""
        self._ask("addPartitions", topic=topic, total=total)

    def delete_topic(self, topic: str) -> None:
        """By the admin client."""
        self._ask("deleteTopic", topic=topic)

    def topic_config(self, topic: str) -> dict[str, str | None]:
        """By the admin client."""
        return dict(self._ask("topicConfig", topic=topic))

    def set_topic_config(self, topic: str, key: str, value: str) -> None:
        """By alterConfigs, which sets a topic's whole configuration."""
        self._ask("setTopicConfig", topic=topic, key=key, value=value)

    def group_ids(self) -> list[str]:
        """By the admin client."""
        return list(self._ask("groupIds"))

    def group_state(self, group: str) -> str:
        """By the admin client."""
        return str(self._ask("groupState", group=group))

    def delete_group(self, group: str) -> None:
        """By the admin client."""
        self._ask("deleteGroup", group=group)

    def _ask(self, operation: str, **arguments: Any) -> Any:
        printed = run_program(_command(), self._request(operation, **arguments).encode(), 2 * WAIT_S)
        return json.loads(printed.splitlines()[-1])

    def _request(self, operation: str, **arguments: Any) -> str:
        return json.dumps({"operation": operation, "bootstrap": self.bootstrap, **arguments})


def _install(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    options = ["--ignore-scripts", "--no-audit", "--no-fund", "--prefix", str(folder)]
    run_program(["npm", "install", *options, *PACKAGES], timeout_s=INSTALL_S)
    Path(folder, ".installed").touch()


def _command() -> list[str]:
    modules = str(cache_folder("kafkajs") / "node_modules")
    script = str(files("blumfeld.testing.clients") / "kafkajs_client.js")
    return ["env", f"NODE_PATH={modules}", "KAFKAJS_NO_PARTITIONER_WARNING=1", "node", script]


def _member(topic: str, group: str) -> dict[str, Any]:
    return {"topic": topic, "group": group, "sessionTimeout": SESSION_TIMEOUT_MS}


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


def _printed(output: bytes) -> Consumed:
    return [_record(json.loads(line)) for line in output.splitlines()]

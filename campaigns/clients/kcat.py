"""kcat: librdkafka on the command line."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from itertools import groupby
from typing import ClassVar

from campaigns.clients.access import TOKEN
from campaigns.clients.client import (
    SESSION_TIMEOUT_MS,
    Client,
    ClusterView,
    Consumed,
    NotOffered,
    run_program,
)
from campaigns.clients.records import AS_USUAL, Headers, Received, Sample, Sending, Traits

RECORD_END = b"\x1e\x1d\x1e"
KEY_END = b"\x1f\x1d\x1f"
FORMAT = r"%p %o %T %K %S %h\n%k%s\n"
"""The format of a consumed record: lengths first, then the bytes of key and value."""
GROUP_SETTINGS = (
    "auto.offset.reset=earliest",
    f"session.timeout.ms={SESSION_TIMEOUT_MS}",
    "topic.metadata.refresh.interval.ms=1000",
)
GROUP_OPTIONS = [*(part for setting in GROUP_SETTINGS for part in ("-X", setting)), "-u", "-q", "-f", FORMAT]


class Kcat(Client):
    """Headers are the same for a whole call and keys are cut from the text, so records go in runs of one shape."""

    name = "kcat"
    traits = Traits(text_only=True, sets_timestamp=False, null_headers=False, null_key_and_value=False)
    why_not: ClassVar = {
        **dict.fromkeys(("topics", "configs", "groups"), "kcat does not administer"),
        "transactions": "kcat has no transactions",
    }

    @classmethod
    def absent(cls) -> str | None:
        """It is a Debian package."""
        return None if shutil.which("kcat") else "apt install kcat"

    @classmethod
    def version(cls) -> str:
        """The versions of kcat and of its librdkafka."""
        match = re.search(r"Version (\S+) .*librdkafka (\S+)", run_program(["kcat", "-V"]).decode())
        return f"{match[1]} (librdkafka {match[2]})" if match else "unknown"

    def cluster(self) -> ClusterView:
        """By -L, in JSON."""
        import json

        metadata = json.loads(self._kcat("-L", "-J"))
        brokers = [
            (b["id"], b["name"].rpartition(":")[0], int(b["name"].rpartition(":")[2]))
            for b in metadata["brokers"]
        ]
        return ClusterView(brokers, {t["topic"]: len(t["partitions"]) for t in metadata["topics"]})

    def produce(self, topic: str, samples: Sequence[Sample], how: Sending = AS_USUAL) -> None:
        """A call for each run of records that share headers and shape, partition after partition."""
        acks = "-1" if how.acks == "all" else how.acks
        options = ["-P", "-t", topic, "-z", how.codec, "-X", f"topic.acks={acks}"]
        options += ["-X", f"enable.idempotence={str(how.idempotent).lower()}"]
        for (partition, headers, keyed, dead), run in groupby(
            sorted(samples, key=lambda s: s.partition), _shape
        ):
            more = ["-p", str(partition), "-D", _escaped(RECORD_END)]
            for name, value in headers:
                more += ["-H", f"{name}={(value or b'').decode()}"]
            more += ["-K", _escaped(KEY_END)] if keyed else []
            more += ["-Z"] if dead else []
            text = RECORD_END.join(
                (s.key + KEY_END if s.key is not None else b"") + (s.value or b"") for s in run
            )
            self._kcat(*options, *more, stdin=text)

    def consume(self, topic: str, group: str, count: int) -> Consumed:
        """-c makes it stop; it commits as it closes."""
        isolation = ("-X", f"isolation.level={self.isolation}")
        printed = self._kcat("-G", group, "-c", str(count), *isolation, *GROUP_OPTIONS, topic)
        return _records(printed)

    def offsets(self, topic: str, timestamp_ms: int) -> dict[int, tuple[int, int, int]]:
        """By -Q, for the one partition that the check asks about."""
        offsets = [
            int(re.search(rb"offset (-?\d+)", self._kcat("-Q", "-t", f"{topic}:0:{when}"))[1])  # type: ignore[index]
            for when in (-2, -1, timestamp_ms)
        ]
        return {0: (offsets[0], offsets[1], offsets[2])}

    def _login(self) -> list[str]:
        if self.access.mechanism == TOKEN and not self.access.endpoint:
            raise NotOffered("kcat has no way to bring a token but from an issuer's endpoint")
        if self.access.endpoint and b"oidc" not in run_program(["kcat", "-V"]):
            raise NotOffered("this kcat is built without OIDC")
        return [
            part for item in self.access.librdkafka(program=True).items() for part in ("-X", "=".join(item))
        ]

    def _kcat(self, *arguments: str, stdin: bytes | None = None) -> bytes:
        return run_program(["kcat", "-b", self.bootstrap, *self._login(), *arguments], stdin)


def _shape(sample: Sample) -> tuple[int, Headers, bool, bool]:
    return sample.partition, sample.headers, sample.key is not None, sample.value is None


def _escaped(delimiter: bytes) -> str:
    return "".join(f"\\x{byte:02x}" for byte in delimiter)


def _records(printed: bytes) -> Consumed:
    """Parse what FORMAT prints."""
    records: Consumed = []
    at = 0
    while at < len(printed):
        end = printed.index(b"\n", at)
        partition, offset, timestamp, key_bytes, value_bytes, headers = printed[at:end].split(b" ", 5)
        key, at = _cut(printed, end + 1, int(key_bytes))
        value, at = _cut(printed, at, int(value_bytes))
        if printed[at : at + 1] != b"\n":
            raise ValueError("a record without an end")
        at += 1
        pairs = (pair.partition(b"=") for pair in headers.split(b",") if pair)
        named = tuple((name.decode(), content) for name, _, content in pairs)
        records.append(Received(int(partition), int(offset), key, value, named, int(timestamp)))
    return records


def _cut(data: bytes, at: int, length: int) -> tuple[bytes | None, int]:
    return (None, at) if length < 0 else (data[at : at + length], at + length)

"""Live members of a group, each a program that tells what becomes of it.

What they print is what Kafka's own ``VerifiableConsumer`` prints, a JSON object a line: ``startup_complete``,
``partitions_assigned`` and ``partitions_revoked`` (or ``_lost``) with ``partitions``, ``records_consumed``
with a row for each partition (``count``, ``minOffset``, ``maxOffset``), ``offsets_committed`` with
``offsets`` and ``success``, ``shutdown_complete``; each with ``timestamp``, ms of the wall clock. After each
poll a member commits, synchronously, what it got; SIGTERM makes it leave in good order.
"""

from __future__ import annotations

import json
import signal
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from campaigns.clients.programs import Program
from campaigns.clients.verdicts import CheckFailed

Protocol = Literal["classic", "consumer"]
TopicPartition = tuple[str, int]
LEAVE_S = 30.0


@dataclass(frozen=True)
class MemberSpec:
    """The specification of a member. With ``regex`` the topic is a regular expression (RE2, matching whole names).

    ``assignor`` is the client's own for a classic member and the broker's for a KIP-848 one; empty is the default.
    """

    topic: str
    group: str
    protocol: Protocol = "classic"
    assignor: str = ""
    instance_id: str = ""
    regex: bool = False

    def to_json(self, bootstrap: str) -> str:
        """For a member that is a module of this package."""
        return json.dumps({"bootstrap": bootstrap, **asdict(self)})


@dataclass(frozen=True)
class Consumption:
    """A run of records of one partition that one poll gave, first and last offset included."""

    at: TopicPartition
    count: int
    first: int
    last: int
    time_ms: int


@dataclass(frozen=True)
class Ownership:
    """A member got a partition, or lost it, at a time."""

    at: TopicPartition
    owned: bool
    time_ms: int


@dataclass(frozen=True)
class Commitment:
    """A commit of a member that was accepted: the next offset to read."""

    at: TopicPartition
    offset: int
    time_ms: int


@dataclass
class Story:
    """The story that a member has told so far."""

    ownerships: list[Ownership] = field(default_factory=list)
    consumptions: list[Consumption] = field(default_factory=list)
    commitments: list[Commitment] = field(default_factory=list)
    refused_commits: list[str] = field(default_factory=list)
    owned: set[TopicPartition] = field(default_factory=set)

    def tell(self, event: Mapping[str, Any]) -> None:
        """Take in one event; what isn't known is passed over."""
        name, time_ms = event.get("name"), int(event.get("timestamp", 0))
        if name in ("partitions_assigned", "partitions_revoked", "partitions_lost"):
            self._own(_places(event["partitions"]), name == "partitions_assigned", time_ms)
        elif name == "records_consumed":
            self.consumptions += [
                Consumption((p["topic"], p["partition"]), p["count"], p["minOffset"], p["maxOffset"], time_ms)
                for p in event["partitions"]
            ]
        elif name == "offsets_committed" and event.get("success"):
            self.commitments += [
                Commitment((o["topic"], o["partition"]), o["offset"], time_ms) for o in event["offsets"]
            ]
        elif name == "offsets_committed":
            self.refused_commits.append(str(event.get("error")))

    def ended(self, time_ms: int) -> None:
        """The member is gone, and so is what it owned."""
        self._own(sorted(self.owned), False, time_ms)

    def _own(self, places: Sequence[TopicPartition], owned: bool, time_ms: int) -> None:
        self.ownerships += [Ownership(at, owned, time_ms) for at in places]
        if owned:
            self.owned |= set(places)
        else:
            self.owned -= set(places)


class Member(Program):
    """A member's process. What it tells is read by a thread as it comes."""

    def __init__(self, command: Sequence[str], stdin: str = "", name: str = "member") -> None:
        self.story = Story()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - read as long as somebody may ask
        weakref.finalize(self, self._errors.close)
        super().__init__(name, command, stdin, self._hear_event, self._hear_end, self._errors)
        self.finish()

    @property
    def owned(self) -> frozenset[TopicPartition]:
        """The partitions that it has now."""
        return frozenset(self.story.owned)

    def stop(self) -> None:
        """Let it leave in good order, and wait.

        :raises CheckFailed: it does not end, or with another status than 0 or of SIGTERM
        """
        self.signal(signal.SIGTERM)
        if not self.await_end(LEAVE_S):
            self.kill()
        # Java ends with 128 + SIGTERM when a signal has run its shutdown hooks.
        if self.status not in (0, -signal.SIGTERM, 128 + signal.SIGTERM):
            raise CheckFailed(f"{self.name} ended with status {self.status}: {self.errors()}")

    def errors(self) -> str:
        """The last of what it printed on stderr."""
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return " / ".join(lines[-3:])[-400:]

    def _hear_event(self, line: str) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return
        if isinstance(event, dict):
            self.story.tell(event)

    def _hear_end(self) -> None:
        self.story.ended(int(time.time() * 1000))


def say(name: str, **fields: object) -> None:
    """Print an event, for members that are modules of this package."""
    print(json.dumps({"name": name, "timestamp": int(time.time() * 1000), **fields}), flush=True)


def places(partitions: Sequence[Any]) -> list[dict[str, object]]:
    """The form of partitions in an event, of anything that has ``topic`` and ``partition``."""
    return [{"topic": p.topic, "partition": p.partition} for p in partitions]


def consumption(offsets: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """The fields of ``records_consumed``, of the offsets of each partition in their order."""
    rows = [
        {"topic": t, "partition": n, "count": len(seen), "minOffset": seen[0], "maxOffset": seen[-1]}
        for (t, n), seen in offsets.items()
    ]
    return {"count": sum(map(len, offsets.values())), "partitions": rows}


def commitment(offsets: Mapping[TopicPartition, Sequence[int]]) -> dict[str, object]:
    """The fields of ``offsets_committed``, when all that was consumed is committed."""
    rows = [{"topic": t, "partition": n, "offset": seen[-1] + 1} for (t, n), seen in offsets.items()]
    return {"success": True, "offsets": rows}


def tell(seen: Mapping[TopicPartition, Sequence[int]], commit: Callable[[], str]) -> None:
    """Print the records of a poll, commit them, and print how that ended.

    :param commit: returns the error, or an empty string
    """
    if seen:
        say("records_consumed", **consumption(seen))
        if error := commit():
            say("offsets_committed", success=False, error=error)
        else:
            say("offsets_committed", **commitment(seen))


def until_terminated() -> Callable[[], bool]:
    """Catch SIGTERM from now on; true until it comes."""
    gone = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: gone.set())
    return lambda: not gone.is_set()


def member_module(name: str) -> str:
    """The full name of a member's module in ``members/``: what ``python -m`` runs."""
    return f"{__package__}.members.{name}"


def _places(partitions: Sequence[Mapping[str, Any]]) -> list[TopicPartition]:
    return [(p["topic"], p["partition"]) for p in partitions]

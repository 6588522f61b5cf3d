"""Kafka's console tools against a broker: how they are asked, and their tables as rows."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from campaigns.clients.catalogue import client_class
from campaigns.clients.checks.group_checks import Cast, cast
from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import Client
from campaigns.clients.java import CONFIG_COMMAND, TOOLS, ask_tool
from campaigns.clients.live_members import Member, Protocol
from campaigns.clients.records import numbered_samples

PARTITIONS = 2
EARLY, LATE = 6, 4
"""How many records each partition was given before and after :attr:`Stage.between`."""
END = EARLY + LATE
GROUP_COMMAND = TOOLS + "consumer.group.ConsumerGroupCommand"
GROUPS_COMMAND = TOOLS + "GroupsCommand"

Row = dict[str, str]


def rows(printed: str) -> list[Row]:
    """The lines of the tables that a tool printed, by the titles of their columns.

    ``COORDINATOR (ID)`` and its cell count as one word each. Lines with other than a cell for each title are left out.
    """
    found, titles = list[Row](), list[str]()
    for line in printed.splitlines():
        words = re.sub(r"\s+(\((?:ID|\d+)\))", r"\1", line).split()
        if words[:1] == ["GROUP"]:
            titles = words
        elif titles and len(words) == len(titles):
            found.append(dict(zip(titles, words, strict=True)))
    return found


class Console:
    """The tools, asked about the group of one check."""

    def __init__(self, scene: Scene) -> None:
        self.bootstrap, self.group_id = scene.bootstrap, scene.group()

    def groups(self, *options: str) -> str:
        """What ConsumerGroupCommand prints.

        :raises CheckFailed: it ended with another status than 0
        """
        return ask_tool(self.bootstrap, GROUP_COMMAND, *options)

    def listed(self, *options: str) -> Row | None:
        """The row of the check's group in ``--list`` with these options; None if it isn't there."""
        found = rows(self.groups("--list", *options))
        return next((row for row in found if row["GROUP"] == self.group_id), None)

    def listed_by_groups_command(self, *options: str) -> Row | None:
        """The same of ``kafka-groups --list``."""
        found = rows(ask_tool(self.bootstrap, GROUPS_COMMAND, "--list", *options))
        return next((row for row in found if row["GROUP"] == self.group_id), None)

    def described(self, *options: str) -> list[Row]:
        """The rows of ``--describe``."""
        return rows(self.groups("--describe", "--group", self.group_id, *options))

    def offsets(self) -> dict[int, int]:
        """What ``--describe`` says is committed of each partition."""
        found = {int(row["PARTITION"]): row["CURRENT-OFFSET"] for row in self.described()}
        return {partition: int(offset) for partition, offset in found.items() if offset != "-"}

    def reset(self, *options: str, execute: bool = True) -> dict[int, int]:
        """The new offset of each partition, as ``--reset-offsets`` prints it."""
        how = "--execute" if execute else "--dry-run"
        printed = self.groups("--reset-offsets", "--group", self.group_id, how, *options)
        return {int(row["PARTITION"]): int(row["NEW-OFFSET"]) for row in rows(printed)}

    def configs(self, *options: str) -> str:
        """What ConfigCommand prints of the group's resource."""
        entity = ("--entity-type", "groups", "--entity-name", self.group_id)
        return ask_tool(self.bootstrap, CONFIG_COMMAND, *entity, *options)


@dataclass(frozen=True)
class Stage:
    """A stable group of one member that has consumed and committed all of a topic."""

    console: Console
    cast: Cast
    member: Member
    topic: str
    between: datetime
    """When the early records were there, and the late ones were not."""


@contextmanager
def stage(client: Client, scene: Scene, protocol: Protocol) -> Iterator[Stage]:
    """Such a group; its members are dead at the end."""
    topic = scene.new_topic(PARTITIONS)
    places = {(topic, n) for n in range(PARTITIONS)}
    _produce_now(scene, topic, EARLY)
    time.sleep(0.5)
    between = datetime.now(UTC)
    time.sleep(0.5)
    _produce_now(scene, topic, LATE)
    with cast(client, scene, protocol) as members:
        member = members.join(topic)
        members.settle(member, places=places)
        members.consumed(places, PARTITIONS * END, {})
        scene.wait("the last commit", lambda: len(member.story.commitments) >= PARTITIONS)
        yield Stage(Console(scene), members, member, topic, between)


def _produce_now(scene: Scene, topic: str, each: int) -> None:
    """The console producer can't say which partition, so another client does."""
    now_ms = int(time.time() * 1000)
    samples = [replace(s, timestamp_ms=now_ms) for s in numbered_samples(PARTITIONS * each, PARTITIONS)]
    client_class("confluent-kafka")(scene.bootstrap).produce(topic, samples)

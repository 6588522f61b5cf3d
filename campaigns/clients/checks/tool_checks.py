"""The columns of Kafka's console tools, each for both types of group: what they print is held to what is so."""

from __future__ import annotations

import re
import tempfile
import uuid
from datetime import UTC, datetime
from pathlib import Path

from blumfeld.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from campaigns.clients.checks.client_checks import Check
from campaigns.clients.checks.console_tools import EARLY, END, PARTITIONS, Stage, stage
from campaigns.clients.checks.group_checks import by_protocol
from campaigns.clients.checks.scene import Scene
from campaigns.clients.client import Client
from campaigns.clients.live_members import Protocol
from campaigns.clients.verdicts import CheckFailed, require

TYPES = {"classic": "Classic", "consumer": "Consumer"}
ASSIGNORS = {"classic": "range", "consumer": "uniform"}
HEARTBEAT_MS, SESSION_MS = 7_000, 51_000


def listing(client: Client, scene: Scene, protocol: Protocol) -> None:
    """ConsumerGroupCommand and GroupsCommand list the group with its type and state, and filter by both."""
    other = "consumer" if protocol == "classic" else "classic"
    with stage(client, scene, protocol) as its:
        console = its.console
        want = {"GROUP": console.group_id, "TYPE": TYPES[protocol], "STATE": "Stable"}
        equal("--list --state --type", console.listed("--state", "--type"), want)
        equal(f"--type {protocol}", console.listed("--state", "stable,empty", "--type", protocol), want)
        equal(f"--type {other}", console.listed("--state", "--type", other), None)
        equal("--state empty", console.listed("--state", "empty"), None)
        want = {"GROUP": console.group_id, "TYPE": TYPES[protocol], "PROTOCOL": "consumer"}
        equal("GroupsCommand", console.listed_by_groups_command(), want)
        equal("--consumer", console.listed_by_groups_command("--consumer"), want)
        equal(f"--group-type {other}", console.listed_by_groups_command("--group-type", other), None)


def describing(client: Client, scene: Scene, protocol: Protocol) -> None:
    """``--describe``: offsets with lag and owner, members with what they have, the state with its assignor."""
    with stage(client, scene, protocol) as its:
        member_id = _offsets(its)
        console = its.console
        (member,) = console.described("--members", "--verbose")
        want = f"{its.topic}:0,1"
        equal("assignment", (member["CURRENT-ASSIGNMENT"], member["#PARTITIONS"]), (want, "2"))
        equal("id", member["CONSUMER-ID"], member_id)
        targets = (member["TARGET-ASSIGNMENT"], member["TARGET-EPOCH"])
        if protocol == "consumer":
            equal("target", targets, (want, member["CURRENT-EPOCH"]))
        (state,) = console.described("--state")
        equal("state", (state["STATE"], state["#MEMBERS"]), ("Stable", "1"))
        node_id, address = scene.coordinator(console.group_id)
        equal("coordinator", state["COORDINATOR(ID)"], f"{address}({node_id})")
        equal("assignor", state["ASSIGNMENT-STRATEGY"], ASSIGNORS[protocol])
        its.member.stop()
        scene.wait("the group to be empty", lambda: console.listed("--state", "empty") is not None)
        (state,) = console.described("--state")
        equal("state", (state["STATE"], state["#MEMBERS"]), ("Empty", "0"))


def resetting(client: Client, scene: Scene, protocol: Protocol) -> None:
    """``--reset-offsets`` of an empty group by every way, tried dry, executed, and refused while it has members."""
    with stage(client, scene, protocol) as its:
        console, all_of = its.console, ("--topic", its.topic)
        said = console.groups(
            "--reset-offsets", "--group", console.group_id, *all_of, "--to-earliest", "--execute"
        )
        require("is inactive" in said, f"reset of a live group: {said[-200:]}")
        its.member.stop()
        scene.wait("the group to be empty", lambda: console.listed("--state", "empty") is not None)
        equal("dry run", console.reset(*all_of, "--to-earliest", execute=False), both(0))
        equal("after a dry run", console.offsets(), both(END))
        for options, want in _ways(its.between):
            equal(" ".join(options), console.reset(*all_of, *options), both(want))
            equal(f"after {options[0]}", console.offsets(), both(want))
        only = console.reset("--topic", f"{its.topic}:1", "--to-offset", "5")
        equal("one partition", (only, console.offsets()), ({1: 5}, {0: END, 1: 5}))
        with tempfile.TemporaryDirectory() as folder:
            plan = Path(folder, "plan.csv")
            plan.write_text(f'"{its.topic}",0,3\n"{its.topic}",1,4\n')
            equal("--from-file", console.reset("--from-file", str(plan)), {0: 3, 1: 4})
        equal("after --from-file", console.offsets(), {0: 3, 1: 4})
        back = its.cast.join(its.topic)
        its.cast.settle(back, places={(its.topic, n) for n in range(PARTITIONS)})
        scene.wait("the member to go on from there", lambda: len(back.story.consumptions) >= PARTITIONS)
        first = {run.at[1]: run.first for run in reversed(back.story.consumptions)}
        equal("where a member goes on", first, {0: 3, 1: 4})


def _ways(between: datetime) -> list[tuple[tuple[str, ...], int]]:
    """The ways to reset, in an order in which each changes something, and what each must come to."""
    ago_s = (datetime.now(UTC) - between).total_seconds()
    return [
        (("--to-earliest",), 0),
        (("--shift-by", "3"), 3),
        (("--shift-by", "-1"), 2),
        (
            ("--to-datetime", between.strftime("%Y-%m-%dT%H:%M:%S.") + f"{between.microsecond // 1000:03}"),
            EARLY,
        ),
        (("--to-latest",), END),
        (("--by-duration", f"PT{int(ago_s) + 600}S"), 0),
        (("--to-offset", "99"), END),
    ]


def deleting(client: Client, scene: Scene, protocol: Protocol) -> None:
    """``--delete-offsets`` and ``--delete``: refused while the group lives, done when it is empty."""
    with stage(client, scene, protocol) as its:
        console = its.console
        name = ("--group", console.group_id)
        said = console.groups("--delete", *name)
        require("GroupNotEmptyException" in said, f"delete of a live group: {said[-200:]}")
        said = console.groups("--delete-offsets", *name, "--topic", its.topic)
        require("subscribed" in said, f"delete of the offsets of a live group: {said[-300:]}")
        its.member.stop()
        scene.wait("the group to be empty", lambda: console.listed("--state", "empty") is not None)
        said = console.groups("--delete-offsets", *name, "--topic", f"{its.topic}:1")
        require("Successful" in said, f"delete of offsets: {said[-300:]}")
        equal("after --delete-offsets", console.offsets(), {0: END})
        said = console.groups("--delete", *name)
        require("was successful" in said, f"delete: {said[-200:]}")
        equal("after --delete", console.listed("--state"), None)
        said = console.groups("--delete", *name)
        require("GroupIdNotFoundException" in said, f"delete of no group: {said[-200:]}")


def configuring(client: Client, scene: Scene, protocol: Protocol) -> None:
    """ConfigCommand sets, shows and unsets a group's own timing, and its members are told at once."""
    with stage(client, scene, protocol) as its:
        console = its.console
        default_ms = _heartbeat_interval_ms(scene, "before")
        changes = f"consumer.session.timeout.ms={SESSION_MS},consumer.heartbeat.interval.ms={HEARTBEAT_MS}"
        said = console.configs("--alter", "--add-config", changes)
        require("Completed updating config" in said, f"alter: {said[-200:]}")
        scene.wait("the interval", lambda: _heartbeat_interval_ms(scene, "after") == HEARTBEAT_MS, 10)
        found = dict(re.findall(r"^\s+(\S+?)=(\S*) sensitive", console.configs("--describe"), re.MULTILINE))
        want = {
            "consumer.session.timeout.ms": str(SESSION_MS),
            "consumer.heartbeat.interval.ms": str(HEARTBEAT_MS),
        }
        equal("--describe", found, want)
        refused = f"consumer.session.timeout.ms={SESSION_MS * 1000}"
        try:
            said = console.configs("--alter", "--add-config", refused)
        except CheckFailed as failure:
            said = str(failure)
        require("Completed" not in said, "a session of 14 hours was taken")
        console.configs("--alter", "--delete-config", ",".join(want))
        scene.wait("the default", lambda: _heartbeat_interval_ms(scene, "unset") == default_ms, 10)


def _offsets(its: Stage) -> str:
    """Check ``--describe --offsets``; the id of the member."""
    found = its.console.described()
    numbers = [
        tuple(row[title] for title in ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG"))
        for row in sorted(found, key=lambda row: row["PARTITION"])
    ]
    equal("offsets", numbers, [(its.topic, str(n), str(END), str(END), "0") for n in range(PARTITIONS)])
    owners = {(row["CONSUMER-ID"], row["HOST"]) for row in found}
    require(len(owners) == 1, f"owners {owners}")
    ((member_id, host),) = owners
    equal("host", host, "/127.0.0.1")
    return member_id


def _heartbeat_interval_ms(scene: Scene, who: str) -> int:
    """What a member that joins is told, and leaves again."""
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
    told = coordinator.ask(join, 1, ConsumerGroupHeartbeatResponse)
    require(told.error_code == 0, f"heartbeat: error {told.error_code} {told.error_message}")
    leave = ConsumerGroupHeartbeatRequest(group_id=scene.group(), member_id=member_id, member_epoch=-1)
    coordinator.ask(leave, 1, ConsumerGroupHeartbeatResponse)
    return told.heartbeat_interval_ms


def both(offset: int) -> dict[int, int]:
    """The same offset for every partition."""
    return dict.fromkeys(range(PARTITIONS), offset)


def equal(what: str, found: object, want: object) -> None:
    """Fail with both, if they differ.

    :raises CheckFailed: they do
    """
    require(found == want, f"{what}: {found}, not {want}")


TOOL_COLUMNS: dict[str, Check] = {
    "list": by_protocol(listing, "classic"),
    "describe": by_protocol(describing, "classic"),
    "reset-offsets": by_protocol(resetting, "classic"),
    "delete": by_protocol(deleting, "classic"),
    "848-list": by_protocol(listing, "consumer"),
    "848-describe": by_protocol(describing, "consumer"),
    "848-reset-offsets": by_protocol(resetting, "consumer"),
    "848-delete": by_protocol(deleting, "consumer"),
    "848-configs": by_protocol(configuring, "consumer"),
}
"""Of the console tools; titles as those of groups."""

"""Scripts of classic groups: a text file of what clients do, and the whole of what comes of it.

``> join a`` and the like are what a client, named by its client id, sends; what is answered, and what is written,
stands below, in the order in which it comes. ``BLUMFELD_REWRITE_TRACES=1 pytest …`` writes the files anew, and the
diff is what changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from blumfeld.coordinator.groups.records import decode_record
from blumfeld.spi.completion import Completion
from blumfeld.spi.groups import CoordinatorRecord
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.delete_groups import DeleteGroupsRequest
from blumfeld.wire.messages.describe_groups import DescribeGroupsRequest
from blumfeld.wire.messages.group_coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from blumfeld.wire.messages.heartbeat import HeartbeatRequest
from blumfeld.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from blumfeld.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from blumfeld.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from blumfeld.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from blumfeld.wire.schema import Message
from tests.coordinator.fakes import FakeLog
from tests.coordinator.groups.test_offsets import commit_request
from tests.coordinator.groups_fixture import Groups

GROUP = "g"
BATCH_LEAVE_SINCE_VERSION = 3
TYPES: dict[int, tuple[type[Message], type[Message]]] = {
    1: (OffsetCommitKey, OffsetCommitValue),
    2: (GroupMetadataKey, GroupMetadataValue),
}


class Client:
    """What a client remembers between its requests."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.member_id = ""
        self.generation = -1
        self.instance: str | None = None
        self.protocols = "range:t"
        self.protocol: str | None = None


class Script:
    """Runs the commands of one script."""

    def __init__(self) -> None:
        self.clients: dict[str, Client] = {}
        self.config: dict[str, str] = {}
        self._groups: Groups | None = None
        self._said: list[str] = []
        self._written = 0

    @property
    def groups(self) -> Groups:
        """Made with the first request, after all ``config``."""
        if self._groups is None:
            self._groups = Groups(self.config, log=FakeLog())
        return self._groups

    def run(self, line: str) -> list[str]:
        """Do what one line says; what comes of it, line by line."""
        verb, *words = line.split()
        options = dict(word.split("=", 1) for word in words if "=" in word)
        names = [word for word in words if "=" not in word]
        do: Callable[[list[str], dict[str, str]], None] = getattr(self, f"do_{verb}")
        do(names, options)
        self._note_records()
        said, self._said = self._said, []
        return said

    def do_config(self, names: list[str], options: dict[str, str]) -> None:
        """Kafka's keys, before anything else."""
        self.config.update(options)

    def do_wait(self, names: list[str], options: dict[str, str]) -> None:
        """Let so many ms pass."""
        self.groups.runtime.advance(int(names[0]))

    def do_reload(self, names: list[str], options: dict[str, str]) -> None:
        """The coordinator is built anew from its log."""
        self.groups.reload()

    def do_fail(self, names: list[str], options: dict[str, str]) -> None:
        """The next append fails."""
        self.groups.log.refuse = ErrorCode.KAFKA_STORAGE_ERROR

    def do_starve(self, names: list[str], options: dict[str, str]) -> None:
        """Too few replicas are in sync for the next append, which places nothing."""
        self.groups.log.refuse = ErrorCode.NOT_ENOUGH_REPLICAS

    def do_limit(self, names: list[str], options: dict[str, str]) -> None:
        """A record's value may have so many bytes from now on."""
        self.groups.log.record_bytes_max = int(names[0])

    def do_join(self, names: list[str], options: dict[str, str]) -> None:
        """JoinGroup; ``id`` and ``instance`` are remembered, as are the ``protocols`` (name:metadata,…)."""
        client = self._client(names[0])
        client.member_id = options.get("id", client.member_id)
        client.instance = options.get("instance", client.instance)
        client.protocols = options.get("protocols", client.protocols)
        chosen = [item.split(":") for item in client.protocols.split(",") if item]
        self._join(client, options, [(name, data.encode()) for name, data in chosen])

    def _join(self, client: Client, options: dict[str, str], protocols: list[tuple[str, bytes]]) -> None:
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=int(options.get("session", "10000")),
            rebalance_timeout_ms=int(options.get("rebalance", "60000")),
            member_id=client.member_id,
            group_instance_id=client.instance,
            protocol_type=options.get("type", "consumer"),
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in protocols],
        )
        self._send(client, "join", request, int(options.get("v", "9")), self._joined)

    def _joined(self, client: Client, response: Any) -> str:
        if response.member_id and response.error_code in (0, ErrorCode.MEMBER_ID_REQUIRED):
            client.member_id = response.member_id
        if response.error_code:
            return f" id={response.member_id}" if response.member_id else ""
        client.generation, client.protocol = response.generation_id, response.protocol_name
        members = " ".join(f"{m.member_id}={m.metadata.decode()}" for m in response.members)
        skip = " skip-assignment" if response.skip_assignment else ""
        return (
            f" id={response.member_id} generation={response.generation_id} {response.protocol_name}"
            f" leader={response.leader} members=[{members}]{skip}"
        )

    def do_sync(self, names: list[str], options: dict[str, str]) -> None:
        """SyncGroup; ``assign`` is the leader's word: client:bytes,…. Before v5 it doesn't name the protocol."""
        client = self._client(names[0])
        pairs = [item.split(":") for item in options.get("assign", "").split(",") if item]
        self._sync(
            client, options, {name: data.encode() for name, data in pairs}, lambda data: repr(data.decode())
        )

    def _sync(
        self,
        client: Client,
        options: dict[str, str],
        assignments: dict[str, bytes],
        shown: Callable[[bytes], str],
    ) -> None:
        """:param assignments: by the names of clients"""
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=int(options.get("generation", client.generation)),
            member_id=options.get("id", client.member_id),
            group_instance_id=client.instance,
            protocol_type=options.get("type", "consumer") or None,
            protocol_name=options.get("protocol", client.protocol) or None,
            assignments=[
                SyncGroupRequestAssignment(member_id=self._client(name).member_id, assignment=data)
                for name, data in assignments.items()
            ],
        )

        def assigned(_: Client, response: Any) -> str:
            return "" if response.error_code else f" {shown(response.assignment)}"

        self._send(client, "sync", request, int(options.get("v", "5")), assigned)

    def do_beat(self, names: list[str], options: dict[str, str]) -> None:
        """Heartbeat."""
        client = self._client(names[0])
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=int(options.get("generation", client.generation)),
            member_id=options.get("id", client.member_id),
            group_instance_id=client.instance,
        )
        self._send(client, "beat", request, 4)

    def do_leave(self, names: list[str], options: dict[str, str]) -> None:
        """LeaveGroup of one or several clients; ``instance`` alone is an operator's."""
        version = int(options.get("v", "5"))
        leaving = [MemberIdentity(member_id=self._client(n).member_id) for n in names]
        if "instance" in options:
            leaving = [
                MemberIdentity(member_id=m.member_id, group_instance_id=options["instance"]) for m in leaving
            ]
            leaving = leaving or [MemberIdentity(group_instance_id=options["instance"])]
        request = LeaveGroupRequest(group_id=GROUP)
        if version < BATCH_LEAVE_SINCE_VERSION:
            request.member_id = leaving[0].member_id
        else:
            request.members = leaving

        def each(_: Client, response: Any) -> str:
            return "".join(f" {m.member_id or m.group_instance_id}={code(m)}" for m in response.members)

        self._send(self._client(names[0] if names else "operator"), "leave", request, version, each)

    def do_commit(self, names: list[str], options: dict[str, str]) -> None:
        """OffsetCommit of partition 0; ``none`` is a consumer outside of any group."""
        client = self._client(names[0])
        request = commit_request(
            offset=int(options.get("offset", "5")),
            group_id=GROUP,
            member_id=client.member_id,
            group_instance_id=client.instance,
            generation_id_or_member_epoch=int(options.get("generation", client.generation)),
        )
        sent = self.groups.send(request, 9, client_id=client.name)
        part: Completion[Any] = Completion()
        sent.when_done(lambda done: part.complete(done.result().topics[0].partitions[0]))
        self._note(client, "commit", part)

    def do_uncommit(self, names: list[str], options: dict[str, str]) -> None:
        """OffsetDelete."""
        partitions = [OffsetDeleteRequestPartition(partition_index=0)]
        topics = [OffsetDeleteRequestTopic(name=names[0], partitions=partitions)]
        response = self.groups.ask(OffsetDeleteRequest(group_id=GROUP, topics=topics), 0)
        self._note_records()
        codes = [code(p) for topic in response.topics for p in topic.partitions]
        self._said.append(f"uncommit {code(response)} {' '.join(codes)}".rstrip())

    def do_describe(self, names: list[str], options: dict[str, str]) -> None:
        """DescribeGroups."""
        (group,) = self.groups.ask(DescribeGroupsRequest(groups=[GROUP])).groups
        members = " ".join(
            f"{m.member_id}={m.member_metadata.decode()}/{m.member_assignment.decode()}"
            for m in group.members
        )
        self._said.append(f"{group.group_state} {group.protocol_type}/{group.protocol_data} [{members}]")

    def do_delete(self, names: list[str], options: dict[str, str]) -> None:
        """DeleteGroups."""
        (result,) = self.groups.ask(DeleteGroupsRequest(groups_names=[GROUP])).results
        self._note_records()
        self._said.append(f"delete {code(result)}")

    def _client(self, name: str) -> Client:
        return self.clients.setdefault(name, Client(name))

    def _send(
        self,
        client: Client,
        verb: str,
        request: Message,
        version: int,
        more: Callable[[Client, Any], str] = lambda *_: "",
    ) -> None:
        self._note(client, verb, self.groups.send(request, version, client_id=client.name), more)

    def _note(
        self,
        client: Client,
        verb: str,
        sent: Completion[Any],
        more: Callable[[Client, Any], str] = lambda *_: "",
    ) -> None:
        def answered(done: Completion[Any]) -> None:
            response = done.result()
            self._note_records()
            self._said.append(f"{client.name} {verb} {code(response)}{more(client, response)}")

        sent.when_done(answered)

    def _note_records(self) -> None:
        items = self.groups.log.items if self._groups else []
        self._said += [f"log {described(item)}" for item in items[self._written :]]
        self._written = len(items)


def code(response: Any) -> str:
    """The name of its error."""
    return ErrorCode(response.error_code).name


def described(item: CoordinatorRecord) -> str:
    """A record in a few words."""
    decoded = decode_record(TYPES, item)
    assert decoded is not None
    _, key, value = decoded
    if isinstance(key, OffsetCommitKey):
        shown = "gone" if value is None else str(value.offset)  # type: ignore[attr-defined]
        return f"offset {key.topic}-{key.partition} {shown}"
    if value is None:
        return "group gone"
    assert isinstance(value, GroupMetadataValue)
    members = " ".join(f"{m.member_id}={bytes(m.assignment).decode()}" for m in value.members)
    return f"group generation={value.generation} {value.protocol} leader={value.leader} [{members}]"

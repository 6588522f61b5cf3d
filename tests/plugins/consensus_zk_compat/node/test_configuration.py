"""The configurations of a node follow the tree, past a lost connection and into the next session."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.zookeeper import DeniedError, Node, Watch
from blumfeld.wire.messages.metadata_records import AccessControlEntryRecord, DelegationTokenRecord
from blumfeld_consensus_zk_compat.counts import Counts
from blumfeld_consensus_zk_compat.node.cluster_id import make_persistent, top_level
from blumfeld_consensus_zk_compat.node.configuration import CHANGE_LASTS_MS, DENIED_RETRY_MS, Configuration
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms_configs import encode_config, encode_config_change
from blumfeld_consensus_zk_compat.tree.forms_security import (
    AclResource,
    acl_path,
    encode_acl_change,
    encode_acls,
    encode_token,
)
from blumfeld_consensus_zk_compat.tree.merging import NodeChange
from blumfeld_consensus_zk_compat.tree.versions import KnownAcls
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.zookeeper import SimulatedZooKeeper
from tests.broker.harness import Quiet
from tests.kernel.fakes import silent_logs

TOPIC = (2, "t")


class Follower:
    """One node that follows, and another session that writes."""

    def __init__(self) -> None:
        self.runtime = FakeRuntime()
        self.zookeeper = SimulatedZooKeeper(self.runtime)
        self.session = self.zookeeper.session(self.runtime)
        self.other = self.zookeeper.session(self.runtime)
        events = silent_logs().named("node")
        self.image = NodeImage(MetadataImage(), self.runtime, events)
        self.image.load(MetadataImage())
        self.read: list[str] = []
        self.counts = Counts()
        self.log = Quiet()
        self.configuration = Configuration(
            zookeeper=self.session,
            runtime=self.runtime,
            events=self.log,
            image=self.image,
            acls=KnownAcls(),
            counts=self.counts,
            changed=self.read.append,
        )

    async def begin(self, *, again: bool = False) -> None:
        await self.session.connect(5_000)
        await self.other.connect(5_000)
        await make_persistent(self.other, top_level())
        await self.configuration.note_changes()
        self.configuration.begin(again=again)

    async def write(self, entity: str, values: Mapping[str, str], version: int | None = None) -> None:
        await self.other.multi(NodeChange(paths.config(entity)).operations(encode_config(values), version))

    async def pause(self, ms: float = 5_000) -> None:
        over: Completion[None] = Completion()
        self.runtime.call_later(ms, lambda: over.complete(None))
        await over

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        async def told() -> None:
            await story
            self.configuration.stop()
            await self.session.close()
            await self.other.close()

        self.runtime.run(told())


@pytest.fixture
def follower() -> Follower:
    return Follower()


def test_a_change_is_read_and_an_earlier_one_is_not(follower: Follower) -> None:
    """What was changed before the tree is loaded is in the image."""

    async def story() -> None:
        await follower.other.connect(5_000)
        await make_persistent(follower.other, top_level())
        await follower.write("topics/early", {"a": "1"})
        await follower.session.connect(5_000)
        await follower.configuration.note_changes()
        follower.configuration.begin()
        await follower.pause()
        await follower.write("topics/t", {"a": "1"})
        await follower.pause()
        assert follower.image.image.config(*TOPIC) == {"a": "1"}
        await follower.write("topics/t", {"b": "2"}, 0)
        await follower.pause()
        assert follower.image.image.config(*TOPIC) == {"b": "2"}
        assert follower.read == ["/config/topics/t", "/config/topics/t"]

    follower.run(story())


def test_what_changed_while_the_connection_was_lost_is_read(follower: Follower) -> None:
    async def story() -> None:
        await follower.begin()
        await follower.pause()
        follower.session.cut()
        await follower.write("topics/t", {"a": "1"})
        await follower.pause(9_000)
        assert follower.image.image.config(*TOPIC) == {}
        follower.session.heal()
        await follower.pause(9_000)
        assert follower.image.image.config(*TOPIC) == {"a": "1"}

    follower.run(story())


def test_another_session_reads_everything(follower: Follower) -> None:
    async def story() -> None:
        await follower.other.connect(5_000)
        await make_persistent(follower.other, top_level())
        await follower.write("topics/t", {"a": "1"})
        await follower.write("users/u", {"producer_byte_rate": "5"})
        await follower.other.create("/config/users/u/clients")
        await follower.write("users/u/clients/c", {"producer_byte_rate": "6"})
        await follower.session.connect(5_000)
        await follower.configuration.note_changes()
        follower.configuration.begin(again=True)
        await follower.pause()
        assert follower.image.image.config(*TOPIC) == {"a": "1"}
        assert len(follower.image.image.kept) == 2

    follower.run(story())


def test_a_configuration_that_could_not_be_read_is_read_later(follower: Follower) -> None:
    """No notification tells of a new topic's configuration."""

    async def story() -> None:
        await follower.begin()
        await follower.pause()
        await follower.other.create(paths.config("topics/t"), b'{"version":1,"config":{"a":"1"}}')
        follower.session.disconnect()
        records = await follower.configuration.topics(["t"])
        assert records == []
        await follower.pause()
        assert follower.image.image.config(*TOPIC) == {"a": "1"}

    follower.run(story())


def test_a_notification_goes_after_a_quarter_of_an_hour(follower: Follower) -> None:
    async def story() -> None:
        await follower.begin()
        await follower.write("topics/t", {"a": "1"})
        await follower.pause(CHANGE_LASTS_MS + 1_000)
        await follower.write("topics/u", {"a": "1"})
        await follower.pause()
        names = await follower.other.children(paths.CONFIG_CHANGES)
        assert len(names) == 1

    follower.run(story())


def test_a_clock_that_jumps_takes_no_notification_from_others(follower: Follower) -> None:
    """A node that hasn't read it yet would keep what it has: a right that was taken away, for instance."""

    async def story() -> None:
        await follower.begin()
        await follower.write("topics/t", {"a": "1"})
        await follower.pause()
        follower.runtime.jump_clock(2 * CHANGE_LASTS_MS)
        await follower.write("topics/u", {"a": "1"})
        await follower.pause()
        names = await follower.other.children(paths.CONFIG_CHANGES)
        assert len(names) == 2

    follower.run(story())


def test_what_can_not_be_read_holds_up_nothing_else(follower: Follower) -> None:
    async def story() -> None:
        await follower.begin()
        for path, data in ((f"{paths.CONFIG_CHANGES}/config_change_9", b"?"), (paths.FEATURE, b"?")):
            await follower.other.create(path, data)
        await follower.write("topics/u", {"a": "1"})
        await follower.other.set(paths.config("topics/u"), b"?")
        await follower.write("users/u", {"producer_byte_rate": "?"})
        await follower.write("topics/t", {"a": "1"})
        await follower.pause()
        assert follower.image.image.config(*TOPIC) == {"a": "1"}
        assert follower.counts.unreadable.keys() == {
            paths.FEATURE,
            paths.config("topics/u"),
            paths.config("users/u"),
        }

    follower.run(story())


def test_a_node_that_can_not_be_read_is_said_once_and_taken_when_it_is_mended(follower: Follower) -> None:
    """Whoever mends it by hand tells nobody."""

    async def story() -> None:
        await follower.begin()
        await follower.write("topics/t", {"a": "1"})
        await follower.pause()
        path = paths.config("topics/t")
        await follower.other.set(path, b"?")
        await follower.other.create(
            f"{paths.CONFIG_CHANGES}/config_change_", encode_config_change("topics/t")
        )
        await follower.write("topics/u", {"a": "1"})
        await follower.pause()
        assert follower.image.image.config(*TOPIC) == {"a": "1"}, "what it had"
        assert follower.counts.unreadable.keys() == {path}
        await follower.other.set(path, encode_config({"a": "2"}))
        await follower.pause()
        assert follower.image.image.config(*TOPIC) == {"a": "2"}
        assert follower.counts.unreadable == {}
        assert len([path in str(values) for level, _, values in follower.log.events if level == "error"]) == 1

    follower.run(story())


def test_what_the_session_may_not_read_ends_nothing_and_is_read_when_it_may(follower: Follower) -> None:
    async def story() -> None:
        get, denied = follower.session.get, {paths.config("users/u")}

        def guarded(path: str, watch: Watch | None = None) -> Completion[Node]:
            if path not in denied:
                return get(path, watch)
            refused: Completion[Node] = Completion()
            refused.fail(DeniedError(path))
            return refused

        follower.session.get = guarded  # type: ignore[method-assign]
        await follower.begin()
        await follower.write("users/u", {"producer_byte_rate": "5"})
        await follower.pause()
        await follower.write("topics/t", {"a": "1"})
        await follower.pause()
        assert follower.image.image.config(*TOPIC) == {"a": "1"}
        assert not follower.image.image.kept
        assert follower.counts.unreadable.keys() == denied
        denied.clear()
        await follower.pause(DENIED_RETRY_MS)
        assert len(follower.image.image.kept) == 1
        assert follower.counts.unreadable == {}

    follower.run(story())


def acl_of(principal: str) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal=principal,
        host="*",
        operation=3,
        permission_type=3,
    )


def test_acls_follow_their_node_and_need_no_authorizer_before(follower: Follower) -> None:
    """No Kafka has made the nodes of ACLs before the first one is written."""
    resource, kept = AclResource(2, "t", 3), follower.image.image.kept

    async def told() -> None:
        path, data = encode_acl_change(resource)
        await follower.other.create(path, data, sequential=True)
        await follower.pause()

    def principals() -> list[str]:
        return sorted(r.principal for r in kept.values() if isinstance(r, AccessControlEntryRecord))

    async def story() -> None:
        await follower.begin()
        await follower.pause()
        path = acl_path(resource)
        for above in (*paths.above(path), paths.ACL_CHANGES):
            await follower.other.create(above)
        await follower.other.create(path, encode_acls([acl_of("User:a"), acl_of("User:b")]))
        await told()
        assert principals() == ["User:a", "User:b"]
        await follower.other.set(path, encode_acls([acl_of("User:b"), acl_of("User:c")]))
        await told()
        assert principals() == ["User:b", "User:c"]
        await follower.other.set(path, b"?")
        await told()
        assert principals() == ["User:b", "User:c"], "what it had"
        await follower.other.delete(path)
        await told()
        assert principals() == []
        assert follower.counts.unreadable == {}

    follower.run(story())


def test_prefixed_acls_and_tokens_follow_their_nodes_also_past_the_end_of_a_session(
    follower: Follower,
) -> None:
    resource, kept = AclResource(2, "t", 4), follower.image.image.kept
    token = DelegationTokenRecord(owner="User:a", requester="User:a", token_id="x", max_timestamp=5)

    async def story() -> None:
        await follower.other.connect(5_000)
        for path in (acl_path(resource), paths.token("x")):
            for above in paths.above(path):
                await follower.other.create(above)
        await follower.other.create(acl_path(resource), encode_acls([acl_of("User:a")]))
        await follower.begin(again=True)
        await follower.pause()
        assert len(kept) == 1
        await follower.other.create(paths.token("x"), encode_token(token))
        await follower.other.create(paths.TOKEN_CHANGES)
        await follower.other.create(f"{paths.TOKEN_CHANGES}/token_change_", b"x", sequential=True)
        await follower.pause()
        assert len(kept) == 2
        await follower.other.delete(acl_path(resource))
        await follower.other.create(paths.EXTENDED_ACL_CHANGES)
        await follower.other.create(*encode_acl_change(resource), sequential=True)
        await follower.other.delete(paths.token("x"))
        await follower.other.create(f"{paths.TOKEN_CHANGES}/token_change_", b"x", sequential=True)
        await follower.pause()
        assert not kept

    follower.run(story())


def test_feature_levels_follow_their_node(follower: Follower) -> None:
    async def story() -> None:
        await follower.begin()
        await follower.pause()
        assert follower.image.image.features_epoch == -1
        form = b'{"features":{"f":{"max_version_level":2}},"version":2,"status":1}'
        await follower.other.create(paths.FEATURE, form)
        await follower.pause()
        assert (follower.image.image.features, follower.image.image.features_epoch) == ({"f": 2}, 0)
        await follower.other.set(paths.FEATURE, form.replace(b"2}}", b"3}}"))
        await follower.pause()
        assert (follower.image.image.features, follower.image.image.features_epoch) == ({"f": 3}, 1)

    follower.run(story())

"""The configurations of a node follow the tree, past a lost connection and into the next session."""

from __future__ import annotations

from collections.abc import Coroutine, Mapping
from typing import Any

import pytest

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.completion import Completion
from blumfeld_consensus_zk_compat.node.cluster_id import make_persistent, top_level
from blumfeld_consensus_zk_compat.node.configuration import CHANGE_LASTS_MS, Configuration
from blumfeld_consensus_zk_compat.node.image import NodeImage
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.writing import config_operations
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_kit.fakes.zookeeper import SimulatedZooKeeper
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
        self.configuration = Configuration(
            zookeeper=self.session,
            runtime=self.runtime,
            events=events,
            image=self.image,
            read=lambda entity, *_: self.read.append(entity),
        )

    async def begin(self, *, again: bool = False) -> None:
        await self.session.connect(5_000)
        await self.other.connect(5_000)
        await make_persistent(self.other, top_level())
        await self.configuration.note_changes()
        self.configuration.begin(again=again)

    async def write(self, entity: str, values: Mapping[str, str], version: int | None = None) -> None:
        await self.other.multi(config_operations(entity, values, version))

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
        assert follower.read == ["topics/t", "topics/t"]

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
        await follower.pause(CHANGE_LASTS_MS)
        await follower.write("topics/u", {"a": "1"})
        await follower.pause()
        names = await follower.other.children(paths.CONFIG_CHANGES)
        assert len(names) == 1

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

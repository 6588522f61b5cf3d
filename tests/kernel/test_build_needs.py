"""A build that lacks what its directories need does not start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from blumfeld.kernel.build_needs import BuildLacks, check_needs
from blumfeld.kernel.node import Node, StartError
from blumfeld.kernel.watching.event_log import EventLogs
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.cluster import ImageDelta
from blumfeld.spi.consensus import ImageListener, MetadataNeeds
from blumfeld.spi.hooks import Feature
from blumfeld.wire.schema import Message
from tests.kernel.fakes import JOURNAL, FakeConsensus, Rendered, plan_of, plugin
from tests.kernel.test_node import with_node
from tests.metadata.acl_section import AclSection
from tests.metadata.test_needs import ACL, KEEPING, NOTHING

ACME = Feature("acme.version", 1, 2, 1)


def told(
    needs: MetadataNeeds, *overrides: str, features: tuple[Feature, ...] = (), sections: Any = ()
) -> str:
    """The complaint; "" if there is none."""
    try:
        check_needs(needs, {feature.name: feature for feature in features}, sections, plan_of(*overrides))
    except BuildLacks as error:
        return str(error)
    return ""


def needing(**what: Any) -> MetadataNeeds:
    return msgspec.structs.replace(NOTHING, **what)


@pytest.mark.parametrize(
    ("name", "level", "complaint"),
    [
        ("acme.version", 3, "the feature acme.version at level 3, where this build knows 1 to 2"),
        ("other.version", 1, "the feature other.version at level 1, which no plug-in here brings"),
        ("group.version", 1, "the feature group.version at level 1, which the plug-in groups_kip848 brings"),
        ("transaction.version", 2, "transaction.version at level 2, which the plug-in transactions brings"),
    ],
)
def test_a_level_that_the_build_does_not_know_is_refused(name: str, level: int, complaint: str) -> None:
    assert complaint in told(needing(features={name: level}), features=(ACME,))


@pytest.mark.parametrize(
    ("name", "level"),
    [("acme.version", 2), ("share.version", 1), ("streams.version", 1), ("metadata.version", 30)],
)
def test_a_level_that_it_knows_or_that_promises_nothing_is_taken(name: str, level: int) -> None:
    assert told(needing(features={name: level}), features=(ACME,)) == ""


@pytest.mark.parametrize(
    ("part", "complaint"),
    [
        ("acl", "ACLs (one for User:bob on orders), which the plug-in security reads"),
        ("scram", "SCRAM credentials (one of the user bob), which the plug-in security reads"),
        ("token", "delegation tokens (one of User:bob), which the plug-in security reads"),
        ("quota", "client quotas (k of user bob), which the plug-in quotas reads"),
    ],
)
def test_records_that_no_plug_in_reads_are_refused(part: str, complaint: str) -> None:
    record: Message = KEEPING[part][0]
    assert complaint in told(needing(records={part: record}))


def test_records_that_a_section_reads_are_taken() -> None:
    assert told(needing(records={"acl": ACL}), sections=(AclSection(),)) == ""


def test_the_coordinators_topics_need_their_plug_ins() -> None:
    topics = needing(internal_topics=frozenset({"__transaction_state", "__consumer_offsets"}))
    complaint = told(topics, "groups.plugins=[]")
    assert "the topic __transaction_state, which the plug-in transactions reads" in complaint
    assert "the topic __consumer_offsets, which the plug-in groups_classic reads" in complaint
    assert told(topics, "transactions.plugin=transactions") == ""
    assert told(topics, 'node.roles=["controller"]', "groups.plugins=[]") == ""


def test_tiered_topics_need_a_storage_that_tiers() -> None:
    complaint = told(needing(tiered_topics=("ticks", "orders")))
    assert (
        "the topic orders and 1 more with remote.storage.enable, which the plug-in storage_tiered serves"
        in (complaint)
    )
    assert told(needing(tiered_topics=("ticks",)), "storage.plugin=tiering_fake") == ""


def test_everything_that_is_lacking_is_told_at_once_with_a_remedy() -> None:
    complaint = told(needing(features={"other.version": 1}, records={"acl": ACL}))
    assert "other.version" in complaint
    assert "ACLs" in complaint
    assert complaint.endswith("(docs/builds.md)")


class StoredConsensus(FakeConsensus):
    """Has needs: ``stored`` when it is opened, ``later`` when it has caught up."""

    stored = NOTHING
    later = NOTHING

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._found = self.stored

    async def open(self) -> None:
        JOURNAL("consensus opened")

    def needs(self) -> MetadataNeeds:
        return self._found

    async def caught_up(self) -> None:
        await super().caught_up()
        self._found = self.later


class NeedsFromTheDirectory(StoredConsensus):
    stored = needing(records={"acl": ACL})


class NeedsFromOtherNodes(StoredConsensus):
    later = needing(features={"other.version": 1})


FROM_DIRECTORY = plugin("consensus", "blumfeld_make_consensus", lambda _: NeedsFromTheDirectory("consensus"))
FROM_OTHERS = plugin("consensus", "blumfeld_make_consensus", lambda _: NeedsFromOtherNodes("consensus"))


class TellingConsensus(StoredConsensus):
    """Tells each listener of the image that it hears of."""

    def subscribe(self, listener: ImageListener) -> None:
        TOLD.append(listener)


TOLD: list[ImageListener] = []
TELLING = plugin("consensus", "blumfeld_make_consensus", lambda _: TellingConsensus("consensus"))
LISTENERS = (
    'network.listeners=[{name="PLAINTEXT", bind="127.0.0.1:9092"}, '
    '{name="CONTROLLER", kind="controller", bind="127.0.0.1:9093"}]'
)


def refused(kind: str, tmp_path: Path) -> tuple[str, list[str]]:
    """The complaint of a start, and what happened."""
    plan = plan_of("consensus.plugin=mine", LISTENERS, data_dir=tmp_path, mine=f"{__name__}:{kind}")
    JOURNAL.lines.clear()
    complaints = []

    async def body(node: Node) -> None:
        with pytest.raises(StartError) as caught:
            await node.start()
        assert caught.value.is_final
        complaints.append(str(caught.value))

    with_node(plan, body)
    return complaints[0], list(JOURNAL.lines)


def test_no_listener_opens_on_directories_that_need_more(tmp_path: Path) -> None:
    complaint, happened = refused("FROM_DIRECTORY", tmp_path)
    assert complaint.startswith("consensus: the cluster's metadata needs what this build lacks: ACLs")
    assert [line for line in happened if line.endswith("listening")] == []
    assert happened[:2] == ["storage started", "consensus opened"]
    assert happened[-2:] == ["consensus stopped", "storage stopped"]


def test_no_broker_listener_opens_when_other_nodes_have_written_what_needs_more(tmp_path: Path) -> None:
    complaint, happened = refused("FROM_OTHERS", tmp_path)
    assert "other.version" in complaint
    assert "CONTROLLER listening" in happened
    assert "PLAINTEXT listening" not in happened


def test_a_running_node_says_once_that_other_nodes_use_what_it_lacks(tmp_path: Path) -> None:
    rendered = Rendered()
    logs = EventLogs(rendered.prepare)
    logs.port_is_open(lambda prepare, use: use(prepare()))
    TOLD.clear()

    async def body(node: Node) -> None:
        await node.start()
        [listener] = TOLD
        image = MetadataImage()
        listener(image, ImageDelta())
        assert rendered.events == []
        listener(image, ImageDelta(kept_records=(ACL,)))
        image.features["other.version"] = 1
        listener(image, ImageDelta(features_changed=True))
        await node.stop()

    plan = plan_of("consensus.plugin=mine", data_dir=tmp_path, mine=f"{__name__}:TELLING")
    with_node(plan, body, logs)
    [(_, event, values)] = [found for found in rendered.events if found[0] == "error"]
    assert event == "this build lacks what other nodes use: its next start is refused"
    assert "ACLs (one for User:bob on orders)" in values["error"]

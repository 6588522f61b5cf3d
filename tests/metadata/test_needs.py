"""What an image needs of the build, and the records behind it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.kept import KEPT
from blumfeld.metadata.image.needs import NEEDING, needs_of
from blumfeld.metadata.image.step import ImageStep
from blumfeld.spi.consensus import MetadataNeeds
from blumfeld.wire.messages import metadata_records as records
from blumfeld.wire.schema import Message

ACL = records.AccessControlEntryRecord(id=b"a" * 16, principal="User:bob", resource_name="orders")
SCRAM = records.UserScramCredentialRecord(name="bob", mechanism=1)
TOKEN = records.DelegationTokenRecord(owner="User:bob", token_id="t")
QUOTA = records.ClientQuotaRecord(entity=[records.EntityData(entity_type="user", entity_name="bob")], key="k")
KEEPING: dict[str, tuple[Message, Message]] = {
    "acl": (ACL, records.RemoveAccessControlEntryRecord(id=ACL.id)),
    "scram": (SCRAM, records.RemoveUserScramCredentialRecord(name="bob", mechanism=1)),
    "token": (TOKEN, records.RemoveDelegationTokenRecord(token_id="t")),
    "quota": (QUOTA, records.ClientQuotaRecord(entity=QUOTA.entity, key="k", remove=True)),
}
NOTHING = MetadataNeeds(features={}, records={}, internal_topics=frozenset(), tiered_topics=())
TIERED = records.ConfigRecord(
    resource_type=2, resource_name="ticks", name="remote.storage.enable", value="true"
)
NOT_TIERED = records.ConfigRecord(
    resource_type=2, resource_name="ticks", name="remote.storage.enable", value=None
)
OFFSETS = records.TopicRecord(name="__consumer_offsets", topic_id=b"o" * 16)
MARKERS = records.TopicRecord(name="__transaction_state", topic_id=b"t" * 16)


def needs(*logged: Message, behind: Sequence[Message] = ()) -> MetadataNeeds:
    image = MetadataImage("c")
    step = ImageStep(image)
    for record in logged:
        step.replay(record)
    step.finish(len(logged), 1)
    return needs_of(image, behind)


def test_an_image_of_topics_and_brokers_needs_nothing() -> None:
    topic = records.TopicRecord(name="ticks", topic_id=b"x" * 16)
    assert needs() == needs(topic) == needs(behind=[topic]) == NOTHING


@pytest.mark.parametrize("part", KEEPING)
def test_a_record_that_only_a_plug_in_reads_is_needed_until_it_is_removed(part: str) -> None:
    sets, removes = KEEPING[part]
    assert needs(sets).records == needs(behind=[sets]).records == {part: sets}
    assert needs(sets, removes) == needs(sets, behind=[removes]) == needs(behind=[sets, removes]) == NOTHING


def test_another_record_of_the_part_is_needed_when_the_first_is_removed() -> None:
    other = records.AccessControlEntryRecord(id=b"b" * 16, principal="User:eve", resource_name="orders")
    removed = KEEPING["acl"][1]
    assert needs(ACL, other, behind=[removed]).records == {"acl": other}
    assert needs(ACL, behind=[removed, other]).records == {"acl": other}


def test_each_part_of_the_metadata_has_such_a_record() -> None:
    assert {kept.part for kept in KEPT.values()} - {"zk migration"} == KEEPING.keys()
    assert KEPT.keys() <= NEEDING


def test_levels_above_zero_are_needed() -> None:
    raised = records.FeatureLevelRecord(name="acme.version", feature_level=2)
    lowered = records.FeatureLevelRecord(name="acme.version", feature_level=0)
    assert needs(raised).features == needs(behind=[raised]).features == {"acme.version": 2}
    assert needs(raised, lowered) == needs(raised, behind=[lowered]) == NOTHING


def test_topics_of_coordinators_are_told() -> None:
    assert needs(OFFSETS).internal_topics == {"__consumer_offsets"}
    assert needs(OFFSETS, behind=[MARKERS]).internal_topics == {"__consumer_offsets", "__transaction_state"}


def test_tiered_topics_are_told() -> None:
    assert needs(TIERED).tiered_topics == needs(behind=[TIERED]).tiered_topics == ("ticks",)
    assert needs(TIERED, NOT_TIERED) == needs(TIERED, behind=[NOT_TIERED]) == NOTHING


def test_a_topic_that_is_deleted_needs_nothing_more() -> None:
    ticks = records.TopicRecord(name="ticks", topic_id=b"x" * 16)
    for topic, more in ((MARKERS, ()), (ticks, (TIERED,))):
        logged, gone = (topic, *more), records.RemoveTopicRecord(topic_id=topic.topic_id)
        assert needs(*logged) != NOTHING
        assert (
            needs(*logged, gone) == needs(*logged, behind=[gone]) == needs(behind=[*logged, gone]) == NOTHING
        )

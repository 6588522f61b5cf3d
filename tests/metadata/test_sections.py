"""Sections of the image that plug-ins bring: typed views of records that every image keeps (ADR 0004)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.controller import Controller
from blumfeld.metadata.decision import Moment
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.kept import KEPT
from blumfeld.metadata.image.records import image_of, image_records
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.metadata.image.step import BrokenMetadata, ImageStep
from blumfeld.wire.errors import BrokerError, ErrorCode, PluginContractError
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    TopicRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from tests.metadata.acl_section import AclSection, CreateAcls, creation, entry, removal

KINDS = SectionKinds([AclSection()])
MOMENT = Moment(now_ms=0.0, wall_ms=0, next_offset=0, new_uuid=lambda: b"u" * 16, new_secret=bytes)


def changes() -> st.SearchStrategy[list[Message]]:
    numbers = st.integers(0, 5)
    names = st.sampled_from(["User:k", "User:l"])
    return st.lists(st.one_of(st.builds(entry, numbers, names), st.builds(removal, numbers)))


@given(steps=st.lists(changes()), snapshot_after=st.integers(0, 10))
def test_a_section_is_the_same_by_steps_and_from_a_snapshot(
    steps: list[list[Message]], snapshot_after: int
) -> None:
    image, entries = MetadataImage("c", KINDS), {}
    for number, records in enumerate(steps):
        if number == snapshot_after:
            image = image_of("c", image_records(image), section_kinds=KINDS)
        step = ImageStep(image)
        for record in records:
            step.replay(record)
            if isinstance(record, AccessControlEntryRecord):
                entries[record.id] = record
            else:
                entries.pop(record.id, None)  # type: ignore[attr-defined]
        delta = step.finish(number, 1)
        assert delta.section_records == ({"acls": tuple(records)} if records else {})
    assert image.section("acls") == entries
    first = image.first_delta().section_records.get("acls", ())
    assert {record.id: record for record in first} == entries  # type: ignore[attr-defined]


def test_a_copy_keeps_its_section_when_the_image_goes_on() -> None:
    image = image_of("c", [entry(1)], section_kinds=KINDS)
    copy = image.copy()
    assert copy == image
    step = ImageStep(image)
    step.replay(entry(2))
    step.finish(1, 1)
    assert len(copy.section("acls")) == 1
    assert len(image.section("acls")) == 2
    assert copy != image


def test_a_build_without_the_plug_in_loses_no_record_of_its_section() -> None:
    without = image_of("c", [entry(1), entry(2), removal(1)])
    with pytest.raises(KeyError):
        without.section("acls")
    again = image_of("c", image_records(without), section_kinds=KINDS)
    assert list(again.section("acls").values()) == [entry(2)]


def test_records_that_a_section_cannot_replay_contradict_the_image() -> None:
    with pytest.raises(
        BrokenMetadata, match="section acls of the image can't replay its records: ValueError"
    ):
        image_of("c", [entry(1, "User:broken")], section_kinds=KINDS)


class Named(AclSection):
    def __init__(self, name: str, records: Sequence[type[Message]]) -> None:
        self.name = name
        self.records = tuple(records)


BOTH = AclSection.records


@pytest.mark.parametrize(
    ("sections", "said"),
    [
        ([Named("a", BOTH), Named("a", [])], "two sections of the image are called a"),
        ([Named("a", BOTH), Named("b", BOTH)], "sections a and b of the image both have AccessControlEntry"),
        (
            [Named("a", [TopicRecord])],
            "section a of the image: TopicRecord can't be part of a section; allowed: Acc",
        ),
        ([Named("a", BOTH[:1])], "section a of the image lacks RemoveAccessControlEntryRecord"),
        ([Named("a", [*BOTH, UserScramCredentialRecord])], "section a of the image lacks RemoveUserScram"),
    ],
)
def test_sections_that_do_not_fit(sections: list[Named], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        SectionKinds(sections)


def test_every_kept_record_can_be_part_of_a_section() -> None:
    SectionKinds([Named("all", list(KEPT))])


def controller() -> Controller:
    return Controller(MetadataImage("c", KINDS), BrokerConfig(), (), [CreateAcls()])


def test_a_command_of_a_plug_in_sees_the_effects_of_the_one_before() -> None:
    acl_controller = controller()
    for number in range(2):
        decision = acl_controller.command(creation("User:k"), MOMENT)
        assert decision.records == [entry(number)]
        assert decision.atomic
        acl_controller.replay(decision.records, number, 1)
    assert len(acl_controller.image.section("acls")) == 2


def test_a_command_of_a_plug_in_may_refuse() -> None:
    with pytest.raises(BrokerError) as refused:
        controller().command(creation("User:nobody"), MOMENT)
    assert refused.value.code is ErrorCode.INVALID_REQUEST


def test_a_command_may_not_write_records_of_no_section() -> None:
    with pytest.raises(
        PluginContractError, match="CreateAclsRequest gave a TopicRecord, which belongs to no section"
    ):
        controller().command(creation("User:foreign"), MOMENT)

"""What a node of ``/config`` changes in an image: its values are set, all others of its entity go."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.step import ImageStep
from blumfeld.wire.messages.metadata_records import ClientQuotaRecord, EntityData
from blumfeld_consensus_zk_compat.tree.image_entities import changed_entity, changed_features

SCRAM = "salt=c2FsdA==,stored_key=c3RvcmVk,server_key=c2VydmVy,iterations=4096"


def changed(image: MetadataImage, entity: str, values: Mapping[str, str]) -> int:
    """The number of records that bring the image to these values; a second time there are none."""
    records = changed_entity(image, entity, values)
    step = ImageStep(image)
    for record in records:
        step.replay(record)
    step.finish(0, 0)
    assert changed_entity(image, entity, values) == []
    return len(records)


@pytest.mark.parametrize(("entity", "resource"), [("topics/t", (2, "t")), ("brokers/<default>", (4, ""))])
def test_a_configuration_is_replaced(entity: str, resource: tuple[int, str]) -> None:
    image = MetadataImage()
    assert changed(image, entity, {"a": "1", "b": "2"}) == 2
    assert changed(image, entity, {"b": "2", "c": "3"}) == 2
    assert image.config(*resource) == {"b": "2", "c": "3"}
    assert changed(image, entity, {}) == 2
    assert image.configs == {}


@pytest.mark.parametrize("entity", ["users/u", "users/u/clients/c", "clients/<default>", "ips/127.0.0.1"])
def test_quotas_are_replaced_and_those_of_other_entities_stay(entity: str) -> None:
    image = MetadataImage()
    changed(image, "users/other", {"producer_byte_rate": "1"})
    assert changed(image, entity, {"producer_byte_rate": "5", "request_percentage": "2.5"}) == 2
    assert changed(image, entity, {"producer_byte_rate": "6"}) == 2
    assert changed(image, entity, {}) == 1
    assert len(image.kept) == 1


def test_a_users_credentials_stand_beside_its_quotas() -> None:
    image = MetadataImage()
    assert changed(image, "users/u", {"SCRAM-SHA-256": SCRAM, "producer_byte_rate": "5"}) == 2
    assert changed(image, "users/u", {"producer_byte_rate": "5"}) == 1
    assert changed(image, "users/u/clients/c", {"producer_byte_rate": "7"}) == 1
    assert changed(image, "users/u", {"SCRAM-SHA-512": SCRAM, "producer_byte_rate": "5"}) == 1
    assert changed(image, "users/u", {}) == 2
    assert len(image.kept) == 1


def test_a_quota_goes_in_either_order_of_its_entitys_parts() -> None:
    """A record may name client and user in either order, and the image keeps it so."""
    image = MetadataImage()
    parts = [EntityData(entity_type=kind, entity_name=kind) for kind in ("client-id", "user")]
    step = ImageStep(image)
    step.replay(ClientQuotaRecord(entity=parts, key="producer_byte_rate", value=5.0))
    step.finish(0, 0)
    assert changed(image, "users/user/clients/client-id", {}) == 1
    assert len(image.kept) == 0


def test_feature_levels_are_those_of_the_tree() -> None:
    image = MetadataImage()
    for levels, count in (({"f": 1, "g": 2}, 2), ({"g": 3}, 2), ({"g": 3}, 0)):
        step = ImageStep(image)
        records = changed_features(image, levels)
        for record in records:
            step.replay(record)
        step.finish(0, 0)
        assert (len(records), image.features) == (count, levels)

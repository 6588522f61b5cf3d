"""Configurations, quotas and credentials of an image: what a node of ``/config`` changes in it. Pure."""

from __future__ import annotations

from collections.abc import Hashable, Mapping

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.kept import KEPT
from blumfeld.wire.messages.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.tree.forms_configs import (
    QUOTAS,
    SCRAM_MECHANISMS,
    config_resource,
    entity_data,
)
from blumfeld_consensus_zk_compat.tree.loading import entity_records

Key = tuple[str, Hashable]
"""A key of ``MetadataImage.kept``."""


def changed_entity(image: MetadataImage, entity: str, values: Mapping[str, str]) -> list[Message]:
    """Returns the records that give an entity these values and no others.

    :param entity: as a change notification names it, such as ``topics/orders``
    """
    records = entity_records(entity, values)
    resource = config_resource(entity)
    if resource is not None:
        resource_type, name = resource
        known = image.config(resource_type, name)
        gone: list[Message] = [
            ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=None)
            for key in known
            if key not in values
        ]
        changed = [r for r in records if isinstance(r, ConfigRecord) and known.get(r.name) != r.value]
        return [*gone, *changed]
    before = kept_records(image, entity)
    after = {_key(record): record for record in records}
    removed = [_removal(record) for key, record in before.items() if key not in after]
    return [*removed, *(record for key, record in after.items() if before.get(key) != record)]


def kept_records(image: MetadataImage, entity: str) -> dict[Key, Message]:
    """Returns the credentials and quotas that a user, client or address has in an image, by their keys there."""
    parts = entity_data(entity)
    named: list[Message] = [ClientQuotaRecord(entity=parts, key=key) for key in QUOTAS]
    if len(parts) == 1 and parts[0].entity_type == "user" and (user := parts[0].entity_name) is not None:
        mechanisms = SCRAM_MECHANISMS.values()
        named[:0] = [UserScramCredentialRecord(name=user, mechanism=number) for number in mechanisms]
    keys = map(_key, named)
    return {key: image.kept[key] for key in keys if key in image.kept}


def _removal(record: Message) -> Message:
    if isinstance(record, ClientQuotaRecord):
        return ClientQuotaRecord(entity=record.entity, key=record.key, value=0.0, remove=True)
    assert isinstance(record, UserScramCredentialRecord)
    return RemoveUserScramCredentialRecord(name=record.name, mechanism=record.mechanism)


def _key(record: Message) -> Key:
    """The key of a record: the same for each order of an entity's parts."""
    kept = KEPT[type(record)]
    return kept.part, kept.entity(record)


def changed_features(image: MetadataImage, levels: Mapping[str, int]) -> list[Message]:
    """Returns the records that finalize these levels and no others."""
    gone = [FeatureLevelRecord(name=name, feature_level=0) for name in image.features if name not in levels]
    fresh = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in levels.items()
        if image.features.get(name, 0) != level
    ]
    return [*gone, *fresh]

"""Configurations, quotas and credentials of an image: what a node of ``/config`` changes in it. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.wire.messages.metadata_records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.tree.forms_configs import config_resource, entity_data
from blumfeld_consensus_zk_compat.tree.loading import entity_records
from blumfeld_consensus_zk_compat.tree.paths import desanitized


def changed_entity(image: MetadataImage, entity: str, values: Mapping[str, str]) -> list[Message]:
    """Returns the records that give an entity these values and no others.

    :param entity: as a change notification names it, such as ``topics/orders``
    """
    fresh = [record for record in entity_records(entity, values) if record not in image.kept.values()]
    resource = config_resource(entity)
    if resource is not None:
        resource_type, name = resource
        known = image.config(resource_type, name)
        gone: list[Message] = [
            ConfigRecord(resource_type=resource_type, resource_name=name, name=key, value=None)
            for key in known
            if key not in values
        ]
        changed = [r for r in fresh if isinstance(r, ConfigRecord) and known.get(r.name) != r.value]
        return [*gone, *changed]
    return [*_gone(image, entity, values), *fresh]


def _gone(image: MetadataImage, entity: str, values: Mapping[str, str]) -> list[Message]:
    """Quotas and credentials that the entity has in the image, and not any more in the tree."""
    of_entity = entity_data(entity)
    left = {_key(record) for record in entity_records(entity, values)}
    kind, _, name = entity.partition("/")
    user = desanitized(name) if kind == "users" and "/" not in name else None
    gone: list[Message] = []
    for record in image.kept.values():
        if _key(record) in left:
            continue
        if isinstance(record, ClientQuotaRecord) and record.entity == of_entity:
            gone.append(ClientQuotaRecord(entity=record.entity, key=record.key, value=0.0, remove=True))
        elif isinstance(record, UserScramCredentialRecord) and user is not None and record.name == user:
            gone.append(RemoveUserScramCredentialRecord(name=record.name, mechanism=record.mechanism))
    return gone


def _key(record: Message) -> object:
    if isinstance(record, ClientQuotaRecord):
        return tuple((part.entity_type, part.entity_name) for part in record.entity), record.key
    if isinstance(record, UserScramCredentialRecord):
        return record.name, record.mechanism
    return None


def changed_features(image: MetadataImage, levels: Mapping[str, int]) -> list[Message]:
    """Returns the records that finalize these levels and no others."""
    gone = [FeatureLevelRecord(name=name, feature_level=0) for name in image.features if name not in levels]
    fresh = [
        FeatureLevelRecord(name=name, feature_level=level)
        for name, level in levels.items()
        if image.features.get(name, 0) != level
    ]
    return [*gone, *fresh]

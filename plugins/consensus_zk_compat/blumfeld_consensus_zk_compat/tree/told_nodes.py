"""The nodes whose changes are told by notifications: which one a notification names, and what it changes in an image.
Pure.
"""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.kept import KEPT
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.tree import paths
from blumfeld_consensus_zk_compat.tree.forms import NoFormError, TreeError
from blumfeld_consensus_zk_compat.tree.forms_configs import decode_config, decode_config_change
from blumfeld_consensus_zk_compat.tree.forms_security import (
    acl_path,
    acl_resource_at,
    decode_acl_change,
    decode_acls,
    decode_token,
)
from blumfeld_consensus_zk_compat.tree.image_entities import changed_entity
from blumfeld_consensus_zk_compat.tree.versions import KnownAcls

NOTIFICATIONS = (
    paths.CONFIG_CHANGES,
    paths.ACL_CHANGES,
    paths.EXTENDED_ACL_CHANGES,
    paths.TOKEN_CHANGES,
)
"""Nodes below which a notification is created."""
_ACL, _TOKEN = KEPT[AccessControlEntryRecord].part, KEPT[DelegationTokenRecord].part


def told_node(path: str, data: bytes) -> str:
    """The path of the node that a notification says has changed.

    :raises TreeError: it can't be read
    """
    if path.startswith(f"{paths.CONFIG_CHANGES}/"):
        return paths.config(decode_config_change(path, data))
    if path.startswith(f"{paths.TOKEN_CHANGES}/"):
        return paths.token(data.decode(errors="replace"))
    return acl_path(decode_acl_change(path, data))


def changed_node(image: MetadataImage, acls: KnownAcls, path: str, data: bytes | None) -> Sequence[Message]:
    """Returns the records that bring an image to what a node says, and to nothing else of it.

    :param acls: of the image
    :param data: ``None``: the node isn't there
    :raises TreeError: it can't be read
    """
    if path.startswith(f"{paths.CONFIG}/"):
        values = {} if data is None else decode_config(path, data)
        try:
            return changed_entity(image, path.removeprefix(f"{paths.CONFIG}/"), values)
        except NoFormError as error:
            raise TreeError(
                path, "an entity that no Kafka has", f"{', '.join(paths.CONFIG_KINDS)} ({error})"
            ) from None
    if path.startswith(f"{paths.TOKENS}/"):
        return _changed_token(image, path, data)
    resource = acl_resource_at(path)
    now = {} if data is None else {record.id: record for record in decode_acls(path, data, resource)}
    known = [acl_id for acl_id in acls.of_resource.get(resource, ()) if (_ACL, acl_id) in image.kept]
    gone: list[Message] = [RemoveAccessControlEntryRecord(id=acl_id) for acl_id in known if acl_id not in now]
    return [*gone, *(record for acl_id, record in now.items() if acl_id not in known)]


def _changed_token(image: MetadataImage, path: str, data: bytes | None) -> Sequence[Message]:
    token_id = path.removeprefix(f"{paths.TOKENS}/")
    known = image.kept.get((_TOKEN, token_id))
    if data is None:
        return () if known is None else (RemoveDelegationTokenRecord(token_id=token_id),)
    token = decode_token(path, data)
    return () if token == known else (token,)

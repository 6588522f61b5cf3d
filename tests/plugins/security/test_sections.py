"""Two images with the same entities are equal, whichever records they came by."""

from __future__ import annotations

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.sections import SectionKinds
from blumfeld.metadata.image.step import ImageStep
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_security.acls.section import AclSection
from blumfeld_security.scram.credentials import ScramSection
from blumfeld_security.tokens.delegation_tokens import TokenSection


def acl(number: int, user: str = "ada") -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=number.to_bytes(16),
        resource_type=2,
        resource_name="work",
        pattern_type=3,
        principal=f"User:{user}",
        host="*",
        operation=3,
        permission_type=3,
    )


def credential(user: str, salt: bytes = b"salt") -> UserScramCredentialRecord:
    return UserScramCredentialRecord(
        name=user, mechanism=1, salt=salt, stored_key=b"stored", server_key=b"server", iterations=4_096
    )


def image_of(*records: Message) -> MetadataImage:
    image = MetadataImage(section_kinds=SectionKinds([AclSection(), ScramSection(), TokenSection()]))
    step = ImageStep(image)
    for record in records:
        step.replay(record)
    step.finish(len(records), 1)
    return image


def test_images_with_the_same_acls_and_credentials_are_equal() -> None:
    by_changes = image_of(
        acl(1),
        acl(2),
        credential("bob"),
        credential("ada"),
        RemoveAccessControlEntryRecord(id=acl(1).id),
        RemoveUserScramCredentialRecord(name="bob", mechanism=1),
    )
    assert by_changes == image_of(credential("ada"), acl(2))
    assert image_of() == image_of()


def test_images_with_other_acls_or_credentials_differ() -> None:
    image = image_of(acl(1), credential("ada"))
    for other in (
        image_of(credential("ada")),
        image_of(acl(1, "bob"), credential("ada")),
        image_of(acl(2), credential("ada")),
        image_of(acl(1)),
        image_of(acl(1), credential("ada", b"another salt")),
    ):
        assert image != other
        assert image.sections != other.sections

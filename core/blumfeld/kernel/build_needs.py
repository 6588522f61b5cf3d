"""What a node's directories need of the build, and the refusal of a build that lacks it. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from blumfeld.spi.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from blumfeld.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    UserScramCredentialRecord,
)

if TYPE_CHECKING:
    from blumfeld.kernel.composing.plan import Plan
    from blumfeld.spi.consensus import MetadataNeeds
    from blumfeld.spi.hooks import Feature
    from blumfeld.spi.image_sections import ImageSection
    from blumfeld.wire.schema import Message

KEPT_UNREAD = ("share.version", "streams.version")
"""Features of Kafka that no plug-in brings. They say that clients may use an API, and this build's ApiVersions says
that they may not. Every directory that Kafka 4.2 or a later one formatted has them."""
_CHECKED_BY_CONSENSUS = ("metadata.version", "kraft.version")
BROUGHT_BY = {"group.version": "groups_kip848", "transaction.version": "transactions"}
"""Feature → the bundled plug-in that brings it."""
READ_BY = {
    "acl": ("ACLs", "security"),
    "scram": ("SCRAM credentials", "security"),
    "token": ("delegation tokens", "security"),
    "quota": ("client quotas", "quotas"),
}
"""Part of the metadata → its name for people, and the bundled plug-in that reads it."""
TOPIC_ROLES = {
    TRANSACTIONS_TOPIC: ("transactions", "transactions"),
    OFFSETS_TOPIC: ("groups", "groups_classic"),
}
"""Internal topic → the role whose plug-ins read it, and the bundled one."""
REMEDY = "start a build that has it, or remove it with such a build first (docs/builds.md)"


class BuildLacks(ValueError):  # noqa: N818 - the noun says what it is
    """The node's directories need what this build doesn't have. Another start would end the same way."""


def check_needs(
    needs: MetadataNeeds, features: Mapping[str, Feature], sections: Sequence[ImageSection], plan: Plan
) -> None:
    """Refuse metadata that the build can't serve as a whole.

    :param features: those that the build supports
    :param sections: those that its plug-ins bring
    :raises BuildLacks: all that it lacks, by name and with the plug-in
    """
    lacking = [
        *_features(needs, features),
        *_parts(needs, sections),
        *_topics(needs, plan),
    ]
    if lacking:
        raise BuildLacks(
            f"the cluster's metadata needs what this build lacks: {'; '.join(lacking)}: {REMEDY}"
        )


def _features(needs: MetadataNeeds, features: Mapping[str, Feature]) -> Iterator[str]:
    for name, level in sorted(needs.features.items()):
        known = features.get(name)
        if name in KEPT_UNREAD or name in _CHECKED_BY_CONSENSUS:
            continue
        if known is None:
            brought = (
                f"the plug-in {BROUGHT_BY[name]} brings" if name in BROUGHT_BY else "no plug-in here brings"
            )
            yield f"the feature {name} at level {level}, which {brought}"
        elif not known.min_level <= level <= known.max_level:
            levels = f"{known.min_level} to {known.max_level}"
            yield f"the feature {name} at level {level}, where this build knows {levels}"


def _parts(needs: MetadataNeeds, sections: Sequence[ImageSection]) -> Iterator[str]:
    read = {record for section in sections for record in section.records}
    for part, record in needs.records.items():
        if part in READ_BY and type(record) not in read:
            name, plugin = READ_BY[part]
            yield f"{name} ({_shown(record)}), which the plug-in {plugin} reads"


def _shown(record: Message) -> str:
    """Returns one record for people, without what is secret in it."""
    match record:
        case AccessControlEntryRecord():
            return f"one for {record.principal} on {record.resource_name}"
        case UserScramCredentialRecord():
            return f"one of the user {record.name}"
        case DelegationTokenRecord():
            return f"one of {record.owner}"
        case ClientQuotaRecord():
            entity = ", ".join(
                f"{part.entity_type} {part.entity_name or '<default>'}" for part in record.entity
            )
            return f"{record.key} of {entity}"
        case _:
            return type(record).__name__


def _topics(needs: MetadataNeeds, plan: Plan) -> Iterator[str]:
    if "broker" not in plan.manifest.node.roles:
        return  # a controller alone reads no topic
    for topic, (role, plugin) in TOPIC_ROLES.items():
        if topic in needs.internal_topics and not plan.of_role(role):
            yield f"the topic {topic}, which the plug-in {plugin} reads"
    if needs.tiered_topics and not plan.config.tiers:
        count, first = len(needs.tiered_topics), min(needs.tiered_topics)
        more = f" and {count - 1} more" if count > 1 else ""
        yield f"the topic {first}{more} with remote.storage.enable, which the plug-in storage_tiered serves"

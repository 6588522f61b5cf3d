"""The plug-in: its feature level, its assignors, and the hook that makes the group type."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from blumfeld.config.values import ConfigError
from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.hooks import Composition, Feature, NoOptions, hookimpl

if TYPE_CHECKING:
    from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol

GROUP_VERSION = Feature("group.version", 0, 1, 1)
"""The feature whose level 1 tells clients that ``group.protocol=consumer`` works here."""

ASSIGNORS = "group.consumer.assignors"


class Plugin:
    """The plug-in ``groups_kip848``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("groups",)

    @hookimpl
    def blumfeld_features(self) -> Sequence[Feature]:
        """The feature ``group.version``, levels 0–1."""
        return (GROUP_VERSION,)

    @hookimpl
    def blumfeld_assignors(self) -> Sequence[ConsumerAssignor]:
        """The assignors ``uniform`` and ``range``."""
        from blumfeld_groups_kip848.assignors import bundled_assignors

        return bundled_assignors()

    @hookimpl
    def blumfeld_make_group_protocol(self, composition: Composition) -> ConsumerGroupProtocol:
        """Make the group type ``consumer`` with the build's assignors.

        :raises ConfigError: ``group.consumer.assignors`` names an assignor that no plug-in of the build
            brings
        """
        from blumfeld_groups_kip848.protocol import ConsumerGroupProtocol

        brought = [assignor.name for assignor in composition.assignors]
        for name in composition.config.list(ASSIGNORS):
            if name not in brought:
                allowed = (
                    f"some of {', '.join(brought)}; for another one, name its plug-in in groups.assignors"
                )
                raise ConfigError(ASSIGNORS, name, allowed)
        return ConsumerGroupProtocol(composition.assignors)

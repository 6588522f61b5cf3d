"""What the entry point names."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from acme_assignor_standby.standby import StandbyAssignor
from blumfeld.spi.assignors import ConsumerAssignor
from blumfeld.spi.hooks import NoOptions, hookimpl


class Plugin:
    """``assignor_standby``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("assignors",)
    requires_spi = "1.0"

    @hookimpl
    def blumfeld_assignors(self) -> Sequence[ConsumerAssignor]:
        """``standby``."""
        return (StandbyAssignor(),)

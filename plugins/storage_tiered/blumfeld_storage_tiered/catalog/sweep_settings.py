"""When what a node left behind in the store goes: ``[storage.options.sweep]``."""

from __future__ import annotations

from typing import Annotated

import msgspec

HOUR_MS = 3_600_000


class SweepSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Times of the search for objects that no record speaks of, and of copies that were never finished."""

    interval_ms: Annotated[int, msgspec.Meta(ge=1000)] = HOUR_MS
    """Pause between two searches for orphans: each lists all objects of the partition."""
    orphan_grace_ms: Annotated[int, msgspec.Meta(ge=1000)] = HOUR_MS
    """Objects that were written later than so long ago are no orphans yet: the store's clock may differ from ours."""
    copy_grace_ms: Annotated[int, msgspec.Meta(ge=1000)] = HOUR_MS
    """A copy that was begun so long ago and isn't finished never will be: its node is gone, or leads no more."""


DEFAULT_SWEEP = SweepSettings()
"""The times without a table in the manifest."""

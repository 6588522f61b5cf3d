"""``blumfeld bench rebalance``: what was typed becomes a run, and a run a file, a table and plots."""

from __future__ import annotations

from collections.abc import Sequence

from blumfeld.bench.command import with_common
from blumfeld.bench.rebalance.settings import Settings
from blumfeld.bench.variants import VariantSpec, parse_variant


def specs_with(texts: Sequence[str], settings: Settings) -> tuple[VariantSpec, ...]:
    """Variants as everywhere in the bench, with the settings beneath what each one sets itself.

    :raises VariantError: one can't be run
    """
    return tuple(
        parse_variant(with_common(text, settings.overrides()), label=parse_variant(text).label)
        for text in texts
    )

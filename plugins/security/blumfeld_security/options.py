"""The options of the plug-in, as ``[security.options]`` has them."""

from __future__ import annotations

import msgspec


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What Kafka has no key for."""

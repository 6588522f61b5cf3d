"""The plug-in: its options, and the hook that makes the transport."""

from __future__ import annotations

import msgspec

from blumfeld.spi.hooks import NoOptions


class Plugin:
    """``net_uring``. Making it opens nothing."""

    options_class: type[msgspec.Struct] = NoOptions
    roles: tuple[str, ...] = ("network",)

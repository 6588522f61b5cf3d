"""The options of the plug-in, as ``[security.options]`` has them."""

from __future__ import annotations

import msgspec

from blumfeld_security.tls.options import TlsOptions


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What Kafka has no key for."""

    tls: TlsOptions = TlsOptions()

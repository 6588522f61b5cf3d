"""``[security.options.tls]``: what Kafka has no key for."""

from __future__ import annotations

from typing import Annotated

import msgspec

from blumfeld_security.tls.handshakes import OPEN_MAX, TIME_MS_MAX


class TlsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Options of TLS for all listeners."""

    revocation_lists: tuple[str, ...] = ()
    """Files in PEM with lists of revoked certificates (CRL). With one, each signer of clients' certificates needs a
    list that is in force: without it no certificate of that signer is accepted."""
    server_names: dict[str, str] = {}
    """Name that a client asks for (SNI) → a file in PEM with the key and certificates to show then. Other names get the
    listener's keystore."""
    handshake_ms_max: Annotated[int, msgspec.Meta(ge=100)] = TIME_MS_MAX
    """Time that a handshake may take, from the connection's first moment."""
    handshakes_max: Annotated[int, msgspec.Meta(ge=1)] = OPEN_MAX
    """Handshakes that may be under way at once. A connection beyond them is closed."""

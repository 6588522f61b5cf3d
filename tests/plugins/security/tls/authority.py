"""The signer of the tests, with certificates that are made once, and a client's end of TLS."""

from __future__ import annotations

import ssl
from pathlib import Path

from campaigns.certificates import Authority, Leaf, private

AUTHORITY = Authority()
"""The signer of the tests; its certificates are made once."""
SERVER = AUTHORITY.leaf()
CLIENT = AUTHORITY.leaf(("C", "DE"), ("O", "Firm"), ("OU", "Trade"), ("CN", "Alice"))


def client_context(
    folder: Path, leaf: Leaf | None = None, authority: Authority = AUTHORITY
) -> ssl.SSLContext:
    """A client's context that trusts the authority and shows the leaf."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=authority.pem.decode())
    if leaf is not None:
        context.load_cert_chain(private(folder / "shown.pem", leaf.pem()))
    return context

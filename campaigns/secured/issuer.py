"""An identity provider for one run: it signs bearer tokens for clients that it knows, and shows its public keys.

It speaks HTTPS with the nodes' certificate. Paths: ``/keys`` has the keys (JWKS). ``/token`` gives a token for the id
and secret of a client (RFC 6749, 4.4), for an assertion that a client signed (RFC 7523), or to a machine as Azure's
metadata service does. ``/forged``, ``/expired`` and ``/malformed`` give tokens that no node may take.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from campaigns.certificates import private
from campaigns.secured.identities import AUDIENCE, ISSUER, NODE, PASSWORD, USER

SCOPE = "kafka"
TOKEN_S = 86_400
CLIENT_CREDENTIALS = "client_credentials"
JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
IMDS = ("api-version", "resource", "client_id")
"""Parameters that a machine must give."""
TOKEN_PATH, FORGED, EXPIRED, MALFORMED, KEYS = "/token", "/forged", "/expired", "/malformed", "/keys"


class Refused(Exception):  # noqa: N818 - the noun says what it is
    """A request gets no token; the text is the error of RFC 6749, 5.2."""


class Issuer:
    """Listens when it is made, on a free port of this machine. Its clients are the campaign's users.

    ``token`` and ``forged`` in the folder are tokens of the user, and ``assertion.key`` signs its assertions;
    ``assertion.encrypted.key`` is the same key behind the password.
    """

    def __init__(self, folder: Path) -> None:
        self._key, self._other, assertions = (RSAKey.generate_key(2048, {"kid": "one"}) for _ in range(3))
        self._assertions = assertions
        (folder / "token").write_text(self._signed(self._key, USER, TOKEN_S))
        (folder / "forged").write_text(self._signed(self._other, USER, TOKEN_S))
        private(folder / "assertion.key", assertions.as_pem(private=True))
        private(folder / "assertion.encrypted.key", assertions.as_pem(private=True, password=PASSWORD))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(folder / f"{NODE}.pem", folder / f"{NODE}.key")
        self._server = _Server(("127.0.0.1", 0), partial(_Handler, self))
        self._server.socket = context.wrap_socket(
            self._server.socket, server_side=True, do_handshake_on_connect=False
        )
        self.url = f"https://localhost:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, name="issuer", daemon=True).start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()

    def keys(self) -> Mapping[str, object]:
        """Return the document with the public key."""
        return {"keys": [self._key.as_dict(private=False, kid="one", alg="RS256")]}

    def answer(self, path: str, subject: str) -> Mapping[str, object]:
        """Return what a subject gets at a path.

        :raises KeyError: there is no such path
        """
        makers: dict[str, Callable[[], str]] = {
            TOKEN_PATH: partial(self._signed, self._key, subject, TOKEN_S),
            FORGED: partial(self._signed, self._other, subject, TOKEN_S),
            EXPIRED: partial(self._signed, self._key, subject, -TOKEN_S),
            MALFORMED: lambda: "no.token",
        }
        token = makers[path]()
        return {"access_token": token, "token_type": "Bearer", "expires_in": TOKEN_S, "scope": SCOPE}

    def _signed(self, key: RSAKey, subject: str, lives_s: int) -> str:
        now_s = int(time.time())
        claims = {
            "sub": subject,
            "client_id": subject,
            "iss": ISSUER,
            "aud": AUDIENCE,
            "iat": now_s - 2 * TOKEN_S if lives_s < 0 else now_s,
            "exp": now_s + lives_s,
            "scope": SCOPE,
        }
        token: str = jwt.encode({"alg": "RS256", "kid": "one"}, claims, key)
        return token

    def subject(self, form: Mapping[str, str], login: str) -> str:
        """Return whose token a request may have.

        :param login: the header ``Authorization``
        :raises Refused: nobody's
        """
        if form.get("scope", SCOPE) != SCOPE:
            raise Refused("invalid_scope")
        if form.get("grant_type") == CLIENT_CREDENTIALS:
            return _client(form, login)
        if form.get("grant_type") == JWT_BEARER:
            try:
                jwt.decode(form.get("assertion", ""), self._assertions, algorithms=["RS256"])
            except (JoseError, ValueError):
                raise Refused("invalid_grant") from None
            return USER
        raise Refused("unsupported_grant_type")


def _client(form: Mapping[str, str], login: str) -> str:
    """Return the id of a client whose secret is right, in the header or the form (RFC 6749, 2.3.1)."""
    client, secret = form.get("client_id", ""), form.get("client_secret", "")
    if login.startswith("Basic "):
        pair = base64.b64decode(login.removeprefix("Basic ")).decode()
        client, secret = map(unquote, pair.split(":", 1))
    if client not in (USER, NODE) or secret != PASSWORD:
        raise Refused("invalid_client")
    return client


class _Server(ThreadingHTTPServer):
    """Says nothing of clients that don't trust it: some try that."""

    def handle_error(self, *_: object) -> None: ...


class _Handler(BaseHTTPRequestHandler):
    """One request."""

    timeout = 30

    def __init__(self, issuer: Issuer, *rest: object) -> None:
        self._issuer = issuer
        super().__init__(*rest)  # type: ignore[arg-type]

    def do_GET(self) -> None:
        """The keys, or a machine's token."""
        parts = urlsplit(self.path)
        asked = dict(parse_qsl(parts.query))
        if parts.path == KEYS:
            self._reply(200, self._issuer.keys())
        elif parts.path == TOKEN_PATH and self.headers["Metadata"] == "true" and set(IMDS) <= asked.keys():
            self._reply(200, self._issuer.answer(TOKEN_PATH, USER))
        else:
            self._reply(400, {"error": "invalid_request"})

    def do_POST(self) -> None:
        """A token for a client."""
        body = self.rfile.read(int(self.headers["Content-Length"] or 0)).decode()
        try:
            subject = self._issuer.subject(dict(parse_qsl(body)), self.headers["Authorization"] or "")
            self._reply(200, self._issuer.answer(self.path, subject))
        except Refused as refusal:
            self._reply(401 if str(refusal) == "invalid_client" else 400, {"error": str(refusal)})
        except (KeyError, ValueError):
            self._reply(400, {"error": "invalid_request"})

    def _reply(self, status: int, document: Mapping[str, object]) -> None:
        content = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

"""The issuer of the secured nodes: a node takes its tokens, and a client that it doesn't know gets none."""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

pytest.importorskip("joserfc")

from joserfc import jwt
from joserfc.jwk import RSAKey

from blumfeld_security.sasl.authenticators import InvalidToken
from blumfeld_security.sasl.bearer_tokens import TokenRules, read_keys, verified
from campaigns.secured.identities import AUDIENCE, ISSUER, NODE, PASSWORD, USER, make_certificates
from campaigns.secured.issuer import EXPIRED, FORGED, JWT_BEARER, KEYS, MALFORMED, TOKEN_PATH, Issuer

RULES = TokenRules(issuer=ISSUER, audiences=(AUDIENCE,))
CREDENTIALS = {"grant_type": "client_credentials"}


class Client:
    """A client that trusts the issuer."""

    def __init__(self, folder: Path, issuer: Issuer) -> None:
        self.url, self.folder = issuer.url, folder
        self._tls = ssl.create_default_context(cafile=str(folder / "signer.pem"))

    def ask(self, path: str, form: dict[str, str] | None = None, **headers: str) -> Any:
        data = None if form is None else urlencode(form).encode()
        request = urllib.request.Request(self.url + path, data, headers)
        with urllib.request.urlopen(request, context=self._tls, timeout=10) as answer:
            return json.load(answer)

    def token(self, path: str = TOKEN_PATH, user: str = NODE) -> str:
        pair = base64.b64encode(f"{user}:{PASSWORD}".encode()).decode()
        token: str = self.ask(path, CREDENTIALS, Authorization=f"Basic {pair}")["access_token"]
        return token

    def refused(self, path: str, form: dict[str, str] | None) -> tuple[int, str]:
        with pytest.raises(urllib.error.HTTPError) as refusal:
            self.ask(path, form)
        with refusal.value as answer:
            return answer.code, json.load(answer)["error"]

    def principal(self, token: str) -> str:
        """The name that a node reads in the token.

        :raises InvalidToken: it takes none of it
        """
        keys = read_keys(json.dumps(self.ask(KEYS)).encode())
        return verified(token, keys, RULES, int(time.time() * 1000)).principal.name


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Client]:
    folder = tmp_path_factory.mktemp("issuer")
    make_certificates(folder)
    issuer = Issuer(folder)
    yield Client(folder, issuer)
    issuer.close()


def test_a_node_takes_the_token_of_a_client_that_the_issuer_knows(client: Client) -> None:
    assert client.principal(client.token()) == NODE
    assert client.principal(client.token(user=USER)) == USER
    assert client.principal((client.folder / "token").read_text()) == USER


def test_an_assertion_or_a_machine_gets_the_users_token(client: Client) -> None:
    key = RSAKey.import_key((client.folder / "assertion.key").read_bytes())
    form = {"grant_type": JWT_BEARER, "assertion": jwt.encode({"alg": "RS256"}, {"sub": "x"}, key)}
    assert client.principal(client.ask(TOKEN_PATH, form)["access_token"]) == USER
    query = "?api-version=1&resource=r&client_id=c"
    assert client.principal(client.ask(TOKEN_PATH + query, Metadata="true")["access_token"]) == USER


def test_a_client_with_a_wrong_secret_assertion_or_scope_gets_none(client: Client) -> None:
    named = {**CREDENTIALS, "client_id": USER}
    assert client.refused(TOKEN_PATH, {**named, "client_secret": "wrong"}) == (401, "invalid_client")
    scope = {**named, "client_secret": PASSWORD, "scope": "other"}
    assert client.refused(TOKEN_PATH, scope) == (400, "invalid_scope")
    foreign = jwt.encode({"alg": "RS256"}, {"sub": USER}, RSAKey.generate_key(2048))
    assert client.refused(TOKEN_PATH, {"grant_type": JWT_BEARER, "assertion": foreign}) == (
        400,
        "invalid_grant",
    )
    assert client.refused(f"{TOKEN_PATH}?resource=r&client_id=c", None) == (400, "invalid_request")


@pytest.mark.parametrize(
    ("path", "why"), [(FORGED, "signature"), (EXPIRED, "expired"), (MALFORMED, "no signed JWT")]
)
def test_a_node_takes_no_token_of_the_other_paths(client: Client, path: str, why: str) -> None:
    with pytest.raises(InvalidToken, match=why):
        client.principal(client.token(path))

"""SCRAM credentials of the cluster: the section ``scram`` of the image. Pure."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from functools import cached_property

from blumfeld.client.security.scram import BY_NUMBER, ITERATIONS_MIN, ScramMechanism
from blumfeld.wire.messages.metadata_records import (
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from blumfeld.wire.schema import Message
from blumfeld_security.exchanges.scram import Credential

SECTION = "scram"
_SALT_BYTES = 26
"""Bytes of a made-up salt: as many as the salts of ``kafka-configs`` have, so that their length tells nothing."""


class Credentials:
    """All credentials: (user, number of the mechanism) → credential. Never changed once made."""

    def __init__(self, by_user: Mapping[tuple[str, int], Credential]) -> None:
        self.by_user = by_user

    def __eq__(self, other: object) -> bool:
        """Whether both have the same credentials."""
        return self.by_user == other.by_user if isinstance(other, Credentials) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def find(self, mechanism: ScramMechanism, user: str) -> Credential | None:
        """Returns the credential of a user."""
        return self.by_user.get((user, mechanism.number))

    def users(self) -> list[str]:
        """Returns the names of all users, each once."""
        return list(dict.fromkeys(user for user, _ in self.by_user))

    def made_up(self, mechanism: ScramMechanism, user: str, secret: bytes = b"") -> Credential:
        """Returns a credential for an unknown user, which no password fits.

        The same name gets the same salt on every node and after a restart, as a real user does. So an answer doesn't
        tell whether there is such a user. The salts come from a secret that all nodes share: ``secret``, or, where
        that is empty, the key of the first user in the order of the names.
        """
        numbered = self._first.get(mechanism.number)
        secret = secret or (numbered.server_key if numbered else b"")
        material = hmac.digest(hashlib.sha256(b"made-up salts" + secret).digest(), user.encode(), "sha512")
        salt = hashlib.sha512(b"salt" + material).digest()[: len(numbered.salt) if numbered else _SALT_BYTES]
        iterations = numbered.iterations if numbered else ITERATIONS_MIN
        # The stored key is a hash of nothing that a client could know, so every proof is wrong.
        return Credential(salt, mechanism.hash(b"none" + material), mechanism.hash(material), iterations)

    @cached_property
    def _first(self) -> dict[int, Credential]:
        """The credential of each mechanism's first user."""
        first: dict[int, tuple[str, Credential]] = {}
        for (user, number), credential in self.by_user.items():
            if number not in first or user < first[number][0]:
                first[number] = (user, credential)
        return {number: credential for number, (_, credential) in first.items()}


class ScramSection:
    """Implements ``spi.image_sections.ImageSection``."""

    name = SECTION
    records: tuple[type[Message], ...] = (UserScramCredentialRecord, RemoveUserScramCredentialRecord)

    def empty(self) -> Credentials:
        """Returns no credentials."""
        return Credentials({})

    def replay(self, value: Credentials, records: Sequence[Message]) -> Credentials:
        """Returns the credentials after the records. A mechanism that this build doesn't know is left out."""
        by_user = dict(value.by_user)
        for record in records:
            if isinstance(record, UserScramCredentialRecord):
                if record.mechanism in BY_NUMBER:
                    by_user[record.name, record.mechanism] = Credential(
                        bytes(record.salt),
                        bytes(record.stored_key),
                        bytes(record.server_key),
                        record.iterations,
                    )
            elif isinstance(record, RemoveUserScramCredentialRecord):
                by_user.pop((record.name, record.mechanism), None)
        return Credentials(by_user)

"""``blumfeld format --add-scram``: credentials that a new cluster begins with, in Kafka's form (KIP-900).

``SCRAM-SHA-256=[name=alice,password=…]``, with ``iterations=`` and ``salt=`` (base64) as further settings, or
``saltedpassword=`` in place of the password. Ours alone is ``password-file=PATH``: every user of the machine can read
a command's arguments.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable

from blumfeld.client.security.scram import ITERATIONS_MIN, MECHANISMS, ScramMechanism
from blumfeld.metadata.image.checkpoint import BOOTSTRAP_NAME, decode_checkpoint
from blumfeld.spi.runtime import Files
from blumfeld.spi.secret_files import BadSecretFile, read_secret_file
from blumfeld.wire.messages.alter_user_scram_credentials import ScramCredentialUpsertion
from blumfeld.wire.messages.metadata_records import UserScramCredentialRecord
from blumfeld_security.exchanges.scram import ITERATIONS_MAX
from blumfeld_security.scram.alteration import upserted
from blumfeld_security.scram.credentials import Credentials, ScramSection

SALT_BYTES = 26
FORM = "SCRAM-SHA-256=[name=NAME,password-file=PATH], or Kafka's form with password="
_ENTRY = re.compile(r"(SCRAM-SHA-256|SCRAM-SHA-512)=\[(.*)\]", re.DOTALL)
_SETTINGS = ("name", "password", "password-file", "saltedpassword", "salt", "iterations")


def first_credential(text: str, files: Files, secret: Callable[[int], bytes]) -> UserScramCredentialRecord:
    """Returns the record of one ``--add-scram``.

    :param secret: returns bytes for a salt
    :raises ValueError: it has another form. The text never repeats a password
    """
    match = _ENTRY.fullmatch(text.strip())
    if match is None:
        raise ValueError(
            f"--add-scram: found neither SCRAM-SHA-256=[…] nor SCRAM-SHA-512=[…]; allowed: {FORM}"
        )
    mechanism, settings = MECHANISMS[match[1]], _settings(match[2])
    name = settings.get("name", "")
    if not name:
        raise ValueError(f"--add-scram: found no name; allowed: {FORM}")
    given = [key for key in ("password", "password-file", "saltedpassword") if key in settings]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        raise ValueError(
            f"--add-scram of {name!r}: found {found}; allowed: one of password-file, password and saltedpassword"
        )
    iterations = _iterations(name, settings.get("iterations", str(ITERATIONS_MIN)))
    salt = _bytes(name, "salt", settings["salt"]) if "salt" in settings else b""
    if given == ["saltedpassword"] and not salt:
        raise ValueError(
            f"--add-scram of {name!r}: found saltedpassword without the salt that it was made with"
        )
    salt = salt or secret(SALT_BYTES)
    salted = _salted(name, given[0], settings[given[0]], mechanism, salt, iterations, files)
    return upserted(
        ScramCredentialUpsertion(
            name=name, mechanism=mechanism.number, iterations=iterations, salt=salt, salted_password=salted
        )
    )


def _salted(
    name: str, key: str, value: str, mechanism: ScramMechanism, salt: bytes, iterations: int, files: Files
) -> bytes:
    if key == "saltedpassword":
        salted = _bytes(name, key, value)
        if len(salted) != mechanism.size:
            raise ValueError(
                f"--add-scram of {name!r}: found a saltedpassword of {len(salted)} bytes; allowed for "
                f"{mechanism.name}: {mechanism.size}"
            )
        return salted
    password = _password_in(value, files) if key == "password-file" else value
    if not password:
        raise ValueError(f"--add-scram of {name!r}: the password is empty")
    return mechanism.salted_password(password, salt, iterations)


def _password_in(path: str, files: Files) -> str:
    try:
        return read_secret_file(files, path).removesuffix("\n").removesuffix("\r")
    except BadSecretFile as error:
        raise ValueError(f"--add-scram: {error}") from None


def _settings(text: str) -> dict[str, str]:
    """Returns the settings between the brackets. A value may stand in double quotes, and have commas then."""
    settings: dict[str, str] = {}
    rest = text.strip()
    while rest:
        match = re.match(r'([a-z-]+)=(?:"([^"]*)"|([^,]*))(?:,|$)', rest)
        if match is None or match[1] not in _SETTINGS or match[1] in settings:
            raise ValueError(
                f"--add-scram: found a setting that is unknown, comes twice or has no value; allowed: "
                f"{', '.join(_SETTINGS)}"
            )
        settings[match[1]] = match[2] if match[2] is not None else match[3]
        rest = rest[match.end() :].strip()
    return settings


def _iterations(name: str, text: str) -> int:
    count = int(text) if re.fullmatch("[0-9]{1,9}", text) else -1
    if not ITERATIONS_MIN <= count <= ITERATIONS_MAX:
        raise ValueError(
            f"--add-scram of {name!r}: found iterations={text}; allowed: {ITERATIONS_MIN} to {ITERATIONS_MAX}"
        )
    return count


def _bytes(name: str, key: str, text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        raise ValueError(f"--add-scram of {name!r}: {key} is not base64") from None


def written_credentials(files: Files, data_dir: str) -> Credentials:
    """Returns the credentials that formatting left in the bootstrap checkpoint of a directory.

    Voters of a new cluster log in at each other by these: the cluster's metadata begins with the first leader, and no
    leader is elected before the voters have talked.
    """
    path = f"{data_dir}/{BOOTSTRAP_NAME}"
    section = ScramSection()
    if not files.exists(path):
        return section.empty()
    records = decode_checkpoint(files.read_bytes(path), path).records
    return section.replay(section.empty(), [each for each in records if isinstance(each, section.records)])

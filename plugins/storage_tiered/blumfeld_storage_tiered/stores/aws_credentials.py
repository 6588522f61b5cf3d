"""Credentials of S3 in a file."""

from __future__ import annotations

import configparser
from datetime import UTC, datetime, timedelta
from typing import Any

from blumfeld.spi.runtime import Runtime
from blumfeld_storage_tiered.stores.urls import StoreRefusedError

AT = "storage.options.s3.credentials_file"
KEPT = timedelta(minutes=1)
"""After this time the file is read again, so that keys can be renewed while a node runs."""


class AwsCredentialsFile:
    """Gives obstore the keys of a profile in a file as the AWS tools have it. obstore asks again when they are old."""

    def __init__(self, runtime: Runtime, path: str, profile: str) -> None:
        self._runtime = runtime
        self._path = path
        self._profile = profile

    def __call__(self) -> dict[str, Any]:
        """Returns the keys.

        :raises StoreRefusedError: the file can't be read, or has no such profile, or that has no keys
        """
        section = self._section()
        missing = [key for key in ("aws_access_key_id", "aws_secret_access_key") if key not in section]
        if missing:
            allowed = f"a profile [{self._profile}] with aws_access_key_id and aws_secret_access_key"
            raise StoreRefusedError(AT, f'"{self._path}" without {" and ".join(missing)}', allowed)
        now = datetime.fromtimestamp(self._runtime.now_ms() / 1000, UTC)
        return {
            "access_key_id": section["aws_access_key_id"],
            "secret_access_key": section["aws_secret_access_key"],
            "token": section.get("aws_session_token"),
            "expires_at": now + KEPT,
        }

    def _section(self) -> dict[str, str]:
        parser = configparser.ConfigParser(interpolation=None)
        try:
            parser.read_string(self._runtime.files.read_bytes(self._path).decode())
        except OSError as error:
            mistake = f'"{self._path}" ({error.strerror})'
            raise StoreRefusedError(AT, mistake, "a file that this node can read") from None
        except (configparser.Error, UnicodeDecodeError):
            # The parser's error has the line in it, which may be a secret.
            mistake = f'"{self._path}", which is no INI file'
            raise StoreRefusedError(AT, mistake, "[PROFILE] and lines KEY = VALUE") from None
        if not parser.has_section(self._profile):
            mistake = f'"{self._path}" without [{self._profile}]'
            raise StoreRefusedError(
                AT, mistake, f"one of its profiles: {', '.join(parser.sections()) or 'none'}"
            )
        return dict(parser[self._profile])

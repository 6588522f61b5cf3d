"""TLS and the login of an archive's clients, from the keys of ``[archive.kafka]`` and of ``--command-config``.

An archive has three: librdkafka, Spark's connector in Java, and our own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from typing import Any, cast

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.errors import NotSecuredError, NotServedError
from blumfeld.client.metadata import ClusterView
from blumfeld.client.security.command_config import (
    ALIASES,
    KEYS,
    CommandConfig,
    CommandConfigError,
    command_config,
    open_secrets,
    read_command_config,
)
from blumfeld.spi.runtime import Files
from blumfeld.wire.messages.metadata import MetadataResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld_sink_spark.errors import SettingsError

SECTION = "archive.kafka"
PROBE_S = 5.0
METADATA_VERSION = 8


class LocalFiles:
    """As much of the runtime's files as the reading of keys needs."""

    def open(self, path: str, *, write: bool) -> LocalFile:
        """Open a file for reading."""
        assert not write
        return LocalFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC))

    def read_bytes(self, path: str) -> bytes:
        """Return a file's bytes."""
        with open(path, "rb") as file:
            return file.read()

    def mode(self, path: str) -> int:
        """Return the permissions of a file."""
        return os.stat(path).st_mode & 0o777


class LocalFile:
    """An open file."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def pread(self, size: int, offset: int) -> bytes:
        """Return at most ``size`` bytes at ``offset``."""
        return os.pread(self._descriptor, size, offset)

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)


FILES = cast("Files", LocalFiles())


def read_login(path: str, kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the client's keys with those of a file of ``--command-config``. A file with a secret that every user may
    read is warned of.

    :param kafka: the keys of ``[archive.kafka]``
    :raises SettingsError: the file can't be used, or has a key that stands in the section, too
    """
    try:
        config = read_command_config(path, FILES)
        if (warning := open_secrets(config, FILES)) is not None:
            print(f"blumfeld archive: {warning}", file=sys.stderr)
        config.client_security(FILES)
    except CommandConfigError as error:
        raise SettingsError(str(error)) from error
    if both := sorted(set(config.values) & {ALIASES.get(key, key) for key in kafka}):
        raise SettingsError(f"{path}: {both[0]}: found it, and {SECTION} has it, too; allowed: one of both")
    # A cluster's executors have another working directory.
    places = {
        key: os.path.abspath(value)
        for key, value in config.values.items()
        if key.endswith(".location") and value
    }
    return {**kafka, **config.values, **places}


def for_librdkafka(kafka: Mapping[str, str]) -> dict[str, Any]:
    """Return the client's keys as librdkafka takes them. Keys of other things than TLS and SASL pass.

    :raises SettingsError: one can't be used, or has no effect
    """
    config, others = _parted(kafka)
    return {**others, **({} if config is None else _checked(config).librdkafka(FILES))}


def for_java(kafka: Mapping[str, str]) -> dict[str, str]:
    """Return the client's keys as a client in Java takes them.

    :raises SettingsError: as :func:`for_librdkafka`
    """
    config, others = _parted(kafka)
    try:
        return {**others, **({} if config is None else config.kafka(FILES))}
    except CommandConfigError as error:
        raise SettingsError(str(error)) from error


def not_let_in(bootstrap: str, kafka: Mapping[str, str]) -> str | None:
    """Return why a broker lets this client not in, in a line for a person; ``None`` if there is another reason.

    librdkafka tells of a wrong password or certificate in its log alone, and tries on.
    """
    config, _ = _parted(kafka)
    security = None if config is None else _checked(config).client_security(FILES)
    for address in bootstrap.split(","):
        host, _, port = address.strip().rpartition(":")
        try:
            with BlockingConnection(
                host.strip("[]"), int(port), "blumfeld-archive", PROBE_S, security=security
            ) as connection:
                connection.ask(ClusterView.request([]), MetadataResponse, METADATA_VERSION)
        except NotSecuredError as error:
            return str(error)
        except NotServedError as error:
            return f"{error} (--command-config FILE)"
        except (OSError, DecodeError, ValueError):
            continue
        return None
    return None


def _parted(kafka: Mapping[str, str]) -> tuple[CommandConfig | None, dict[str, str]]:
    """Return the keys of TLS and SASL, and all others."""
    named = {ALIASES.get(key, key): value for key, value in kafka.items()}
    secured = {key: value for key, value in named.items() if key in KEYS}
    others = {key: value for key, value in named.items() if key not in KEYS}
    if not secured:
        return None, others
    try:
        return command_config(SECTION, secured), others
    except CommandConfigError as error:
        raise SettingsError(str(error)) from error


def _checked(config: CommandConfig) -> CommandConfig:
    """Return the keys, whose files can be read.

    :raises SettingsError: one can't
    """
    try:
        config.client_security(FILES)
    except CommandConfigError as error:
        raise SettingsError(str(error)) from error
    return config

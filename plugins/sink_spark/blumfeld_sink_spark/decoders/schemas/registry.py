"""Sources of schemas: a schema registry (Confluent's REST API) or a folder.

A registry's answer for an id never changes, so each process asks once. An unknown id is asked for again: its schema may
come later.
"""

from __future__ import annotations

import base64
import binascii
import time
import urllib.error
import urllib.request
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, unquote, urlsplit, urlunsplit

import attrs
import msgspec

from blumfeld_sink_spark.errors import ArchiveError, AwayError

TIMEOUT_S = 10.0
TRIES = 3
ANSWER_BYTES_MAX = 8 * 1024 * 1024
REFERENCES_MAX = 256
AVRO, PROTOBUF, JSON = "AVRO", "PROTOBUF", "JSON"
_UNKNOWN = (40401, 40402, 40403)
"""No such subject, version or schema, as Confluent's API numbers them."""
_PROTOC = "protoc --include_imports --descriptor_set_out={name}.desc {name}.proto"


class UnknownSchemaError(Exception):
    """There is no such schema, or it isn't one: the message that names it goes to quarantine. One line."""


@attrs.frozen
class Schema:
    """The schema that an id stands for, with the schemas to which it refers."""

    kind: str
    """``AVRO``, ``PROTOBUF`` or ``JSON``."""
    text: str = ""
    references: tuple[str, ...] = ()
    """Avro: the texts of the schemas, each after those that it needs."""
    files: tuple[bytes, ...] = ()
    """Protobuf: serialized ``FileDescriptorProto``, each after those that it needs; the last is the schema."""


class Registry(Protocol):
    """Knows schemas by their ids."""

    def schema(self, schema_id: int) -> Schema:
        """
        :raises UnknownSchemaError: it has none of this id
        :raises ArchiveError: it can't be asked now, or can't answer so that it is understood
        """
        ...


def open_registry(location: str) -> Registry:
    """A registry behind a URL, or a folder; opens nothing yet.

    :raises ArchiveError: no location, or a URL of another scheme
    """
    if not location:
        raise ArchiveError("archive.schema_registry is not set; allowed: a URL, or a folder of schemas")
    scheme = urlsplit(location).scheme if "://" in location else ""
    if scheme in ("http", "https"):
        return HttpRegistry(location)
    if scheme:
        raise ArchiveError(f"archive.schema_registry: {scheme}:// is unknown; allowed: http, https, a folder")
    return FolderRegistry(Path(location))


@attrs.frozen
class FolderRegistry:
    """``<id>.avsc`` (Avro), ``<id>.desc`` (a ``FileDescriptorSet`` of protoc, imports included) or ``<id>.json``."""

    folder: Path

    def schema(self, schema_id: int) -> Schema:
        """See :class:`Registry`."""
        if not self.folder.is_dir():
            raise ArchiveError(f"archive.schema_registry: {self.folder} is no folder")
        base = self.folder / str(schema_id)
        try:
            if (path := base.with_suffix(".avsc")).exists():
                return Schema(AVRO, path.read_text("utf-8"))
            if (path := base.with_suffix(".json")).exists():
                return Schema(JSON, path.read_text("utf-8"))
            if (path := base.with_suffix(".desc")).exists():
                return Schema(PROTOBUF, files=_files_of(path.read_bytes()))
        except UnicodeDecodeError as error:
            raise UnknownSchemaError(f"{path.name} is not UTF-8") from error
        if base.with_suffix(".proto").exists():
            raise ArchiveError(f"{base}.proto must be compiled: {_PROTOC.format(name=schema_id)}")
        raise UnknownSchemaError(f"schema {schema_id} is not in {self.folder}")


def _files_of(descriptor_set: bytes) -> tuple[bytes, ...]:
    from google.protobuf.descriptor_pb2 import FileDescriptorSet
    from google.protobuf.message import DecodeError

    try:
        file_set = FileDescriptorSet.FromString(descriptor_set)
    except DecodeError as error:
        raise UnknownSchemaError("the .desc file is no FileDescriptorSet") from error
    return tuple(file.SerializeToString() for file in file_set.file)


@attrs.frozen
class HttpRegistry:
    """A registry over HTTP, with basic authentication where the URL has a user."""

    url: str

    def schema(self, schema_id: int) -> Schema:
        """See :class:`Registry`."""
        path = f"/schemas/ids/{schema_id}"
        answer = self._get(path, f"schema {schema_id}")
        kind = answer.get("schemaType", AVRO)
        references = answer.get("references") or []
        if kind == PROTOBUF:
            files = self._protobuf_files(references, {})
            main = self._serialized(f"{path}?format=serialized", f"{schema_id}.proto")
            return Schema(PROTOBUF, files=(*files, main))
        return Schema(kind, self._text(answer), tuple(self._texts(references, {})))

    def _texts(self, references: list[dict[str, Any]], seen: dict[str, str]) -> list[str]:
        for reference in references:
            path = _version_path(reference)
            if path in seen:
                continue
            _check_depth(seen)
            seen[path] = ""
            answer = self._get(path, f"the reference {reference.get('name')}")
            self._texts(answer.get("references") or [], seen)
            del seen[path]  # behind those that it needs
            seen[path] = self._text(answer)
        return list(seen.values())

    def _protobuf_files(self, references: list[dict[str, Any]], seen: dict[str, bytes]) -> list[bytes]:
        for reference in references:
            name, path = str(reference.get("name")), _version_path(reference)
            if name in seen:
                continue
            _check_depth(seen)
            seen[name] = b""
            self._protobuf_files(self._get(path, f"the reference {name}").get("references") or [], seen)
            del seen[name]
            seen[name] = self._serialized(f"{path}?format=serialized", name)
        return list(seen.values())

    def _serialized(self, path: str, name: str) -> bytes:
        """A file, by the name by which others import it."""
        from google.protobuf.descriptor_pb2 import FileDescriptorProto
        from google.protobuf.message import DecodeError

        text = self._text(self._get(path, name))
        try:
            file = FileDescriptorProto.FromString(base64.b64decode(text, validate=True))
        except (binascii.Error, ValueError, DecodeError) as error:
            raise ArchiveError(
                f"the schema registry gives {name} as text and not serialized (format=serialized): "
                f"put compiled schemas in a folder instead ({_PROTOC.format(name='ID')})"
            ) from error
        file.name = name
        serialized: bytes = file.SerializeToString()
        return serialized

    def _text(self, answer: dict[str, Any]) -> str:
        text = answer.get("schema")
        if not isinstance(text, str):
            raise ArchiveError(f"the schema registry {self._where()} answers without a schema")
        return text

    def _get(self, path: str, what: str) -> dict[str, Any]:
        for attempt in range(TRIES):
            try:
                return self._ask(path)
            except urllib.error.HTTPError as error:
                with error:
                    self._judge(error, what)
                trouble: Exception = error
            except (OSError, HTTPException) as error:
                trouble = error
            if attempt + 1 < TRIES:
                time.sleep(0.2 * (attempt + 1))
        raise AwayError(
            f"the schema registry {self._where()} can't be asked for {what}: {trouble}"
        ) from trouble

    def _ask(self, path: str) -> dict[str, Any]:
        parts = urlsplit(self.url)
        host = parts.netloc.rpartition("@")[2]
        url = urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", "")) + path
        request = urllib.request.Request(url, headers={"Accept": "application/vnd.schemaregistry.v1+json"})
        if parts.username is not None:
            user = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
            request.add_header("Authorization", f"Basic {base64.b64encode(user.encode()).decode()}")
        with urllib.request.urlopen(request, timeout=TIMEOUT_S) as response:
            body = response.read(ANSWER_BYTES_MAX + 1)
        if len(body) > ANSWER_BYTES_MAX:
            raise ArchiveError(
                f"the schema registry {self._where()} answers with more than {ANSWER_BYTES_MAX} bytes"
            )
        try:
            return msgspec.json.decode(body, type=dict[str, Any])
        except msgspec.DecodeError as error:
            raise ArchiveError(f"{self._where()} answers, but not as a schema registry does") from error

    def _judge(self, error: urllib.error.HTTPError, what: str) -> None:
        """Returns where trying again may help."""
        body = error.read(ANSWER_BYTES_MAX)
        if error.code == 404:
            try:
                code = msgspec.json.decode(body, type=dict[str, Any]).get("error_code")
            except msgspec.DecodeError:
                code = None
            if code in _UNKNOWN:
                raise UnknownSchemaError(f"the schema registry does not know {what}")
            raise ArchiveError(f"{self._where()} answers 404 for {what}, but not as a schema registry does")
        if error.code in (401, 403):
            raise ArchiveError(
                f"the schema registry {self._where()} refuses us ({error.code}): http://USER:PASSWORD@…"
            )
        if error.code < 500 and error.code != 429:
            raise ArchiveError(f"the schema registry {self._where()} answers {error.code} for {what}")

    def _where(self) -> str:
        """The URL without user and password."""
        parts = urlsplit(self.url)
        return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))


def _version_path(reference: dict[str, Any]) -> str:
    subject, version = quote(str(reference.get("subject")), safe=""), reference.get("version")
    return f"/subjects/{subject}/versions/{version}"


def _check_depth(seen: dict[str, Any]) -> None:
    if len(seen) >= REFERENCES_MAX:
        raise UnknownSchemaError(f"the schema refers to more than {REFERENCES_MAX} others")

"""``blumfeld wire``: converts captured bytes to readable JSON and back. JSON Lines in, JSON Lines out."""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from blumfeld.wire.api import message_class, request_class
from blumfeld.wire.batches.as_json import batches_from_json, batches_to_json
from blumfeld.wire.codec import decode as decode_message
from blumfeld.wire.codec import encode as encode_message
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.headers import request_header
from blumfeld.wire.json_form import from_json, to_json

Json = dict[str, Any]
Source = Annotated[Path | None, typer.Argument(help="JSON Lines; standard input where none is given or '-'.")]

app = typer.Typer(
    name="wire",
    help="Read and write messages and record batches of the protocol, as JSON Lines.",
    no_args_is_help=True,
)


@app.command()
def decode(file: Source = None) -> None:
    """{"message","version","hex"} to {"message","version","json"}; {"hex"} alone is a request with its header."""
    _each_line(file, decode_line)


@app.command()
def encode(file: Source = None) -> None:
    """{"message","version","json"} to {"message","version","hex"}."""
    _each_line(file, encode_line)


@app.command()
def batch(file: Source = None) -> None:
    """{"hex"} to {"json"}, a list of record batches with their records; {"json"} to {"hex"}."""
    _each_line(file, batch_line)


def decode_line(line: Json) -> Json:
    """The line with ``json`` in place of ``hex``; other keys stay."""
    data = memoryview(_hex(line))
    rest = {name: value for name, value in line.items() if name != "hex"}
    if "message" not in line and "version" not in line:
        header = request_header(data)
        cls, version = request_class(header.api_key), header.api_version
        seen = {"correlationId": header.correlation_id, "clientId": header.client_id}
        rest = {"message": cls.__name__, "version": version, "header": seen} | rest
        data = data[header.body_offset :]
    else:
        cls, version = _class_and_version(line)
    return rest | {"json": to_json(decode_message(cls, data, version), version)}


def encode_line(line: Json) -> Json:
    """The line with ``hex`` in place of ``json``; other keys stay."""
    cls, version = _class_and_version(line)
    message = from_json(cls, version, _value(line, "json"))
    rest = {name: value for name, value in line.items() if name != "json"}
    return rest | {"hex": encode_message(message, version).hex()}


def batch_line(line: Json) -> Json:
    """The line with ``hex`` replaced by ``json`` or the reverse; other keys stay."""
    rest = {name: value for name, value in line.items() if name not in ("hex", "json")}
    if "hex" in line:
        return rest | {"json": batches_to_json(memoryview(_hex(line)))}
    return rest | {"hex": batches_from_json(_value(line, "json")).hex()}


def _class_and_version(line: Json) -> tuple[Any, int]:
    name, version = _value(line, "message"), _value(line, "version")
    if not isinstance(version, int):
        raise ValueError(f"version must be a number, not {version!r}")
    try:
        return message_class(name), version
    except KeyError:
        raise ValueError(f"no message is called {name!r}") from None


def _hex(line: Json) -> bytes:
    text = _value(line, "hex")
    if not isinstance(text, str):
        raise ValueError(f"hex must be text, not {text!r}")
    return bytes.fromhex(text)


def _value(line: Json, name: str) -> Any:
    if name not in line:
        raise ValueError(f"the line has no {name!r}")
    return line[name]


def converted(lines: Iterable[str], convert: Callable[[Json], Json]) -> Iterator[tuple[Json, bool]]:
    """Yields (result, ``True``) for each non-empty line, or (error, ``False``) for a bad one."""
    for number, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            line = json.loads(text)
            if not isinstance(line, dict):
                raise ValueError(f"a line must be an object, not {line!r}")
            yield convert(line), True
        except (ValueError, BrokerError, struct.error) as error:
            yield {"error": str(error), "line": number}, False


def _each_line(file: Path | None, convert: Callable[[Json], Json]) -> None:
    """Convert the file; exit status 1 if any line was bad, 2 if the file cannot be read."""
    well = True
    try:
        opened = sys.stdin if file is None or str(file) == "-" else file.open(encoding="utf-8")
    except OSError as error:
        typer.echo(f"blumfeld: {file}: {error.strerror}", err=True)
        raise typer.Exit(2) from None
    with opened as lines:
        for answer, good in converted(lines, convert):
            typer.echo(json.dumps(answer, ensure_ascii=False))
            well = well and good
    if not well:
        raise typer.Exit(1)

"""A small schema registry over HTTP, and messages in Confluent's wire format."""

from __future__ import annotations

import base64
import io
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import attrs
import fastavro
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Answer = dict[str, Any]


@attrs.define
class Registry:
    """The registry's answers by path. Each (status, body) in ``fails`` answers one request instead."""

    answers: dict[str, Answer] = attrs.field(factory=dict)
    paths: list[str] = attrs.field(factory=list)
    fails: list[tuple[int, bytes]] = attrs.field(factory=list)
    authorization: str | None = None
    url: str = ""

    def add(self, schema_id: int, schema: str, **more: Any) -> None:
        """Adds a schema, with further fields of its answer."""
        self.answers[f"/schemas/ids/{schema_id}"] = {"schema": schema, **more}

    def add_protobuf(self, schema_id: int, file: descriptor_pb2.FileDescriptorProto, **more: Any) -> None:
        """Adds a schema of Protobuf: a text that no test reads, and the serialized form."""
        self.add(schema_id, "syntax…", schemaType="PROTOBUF", **more)
        self.add_serialized(f"/schemas/ids/{schema_id}", file)

    def add_serialized(self, path: str, file: descriptor_pb2.FileDescriptorProto) -> None:
        """Adds the answer to ``format=serialized``."""
        encoded = base64.b64encode(file.SerializeToString()).decode()
        self.answers[f"{path}?format=serialized"] = {"schema": encoded, "schemaType": "PROTOBUF"}

    def answer(self, path: str) -> tuple[int, bytes]:
        self.paths.append(path)
        if self.fails:
            return self.fails.pop()
        if path in self.answers:
            return 200, json.dumps(self.answers[path]).encode()
        return 404, b'{"error_code":40403,"message":"Schema not found"}'


@contextmanager
def serving() -> Iterator[Registry]:
    """A registry that listens on loopback."""
    registry = Registry()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            registry.authorization = self.headers["Authorization"]
            status, body = registry.answer(self.path)
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None:
            """Logs nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield registry
        finally:
            server.shutdown()
            thread.join()


def framed(schema_id: int, payload: bytes) -> bytes:
    return b"\0" + schema_id.to_bytes(4, "big") + payload


def avro(schema_id: int, schema: Any, *records: Answer) -> list[bytes]:
    messages = []
    for record in records:
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, schema, record)
        messages.append(framed(schema_id, stream.getvalue()))
    return messages


TRADE: Answer = {
    "type": "record",
    "namespace": "acme.md",
    "name": "TradeEvent",
    "fields": [
        {"name": "eventTime", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "recv_ms", "type": ["null", "long"], "default": None},
        {"name": "exchange", "type": "string"},
        {"name": "symbol", "type": "string"},
        {"name": "tid", "type": ["null", "long"]},
        {"name": "side", "type": {"type": "enum", "name": "Side", "symbols": ["NONE", "BUY", "SELL"]}},
        {"name": "px", "type": {"type": "bytes", "logicalType": "decimal", "precision": 30, "scale": 12}},
        {"name": "qty", "type": "double"},
    ],
}
QUOTE: Answer = {
    "type": "record",
    "name": "Quote",
    "fields": [
        {"name": "ts_ns", "type": "long"},
        {"name": "seq", "type": "long"},
        {"name": "bid_px", "type": ["null", "string"]},
        {"name": "bid_sz", "type": ["null", "string"]},
        {"name": "ask_px", "type": ["null", "string"]},
        {"name": "ask_sz", "type": ["null", "string"]},
    ],
}


def trade_file() -> descriptor_pb2.FileDescriptorProto:
    """Returns a file of message types: ``Envelope`` with ``Trade`` in it, ``Level``, and ``Depth`` with levels."""
    kinds = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="acme/trade.proto", package="acme", syntax="proto3")
    file.dependency.extend(["google/protobuf/timestamp.proto", "confluent/type/decimal.proto"])
    side = file.enum_type.add(name="Side")
    for number, name in enumerate(["SIDE_UNSPECIFIED", "SIDE_BUY", "SIDE_SELL"]):
        side.value.add(name=name, number=number)
    trade = file.message_type.add(name="Envelope").nested_type.add(name="Trade")
    trade.field.add(
        name="event_time", number=1, type=kinds.TYPE_MESSAGE, label=1, type_name=".google.protobuf.Timestamp"
    )
    trade.field.add(name="symbol", number=2, type=kinds.TYPE_STRING, label=1)
    trade.field.add(name="trade_id", number=3, type=kinds.TYPE_INT64, label=1)
    trade.field.add(name="side", number=4, type=kinds.TYPE_ENUM, label=1, type_name=".acme.Side")
    trade.field.add(
        name="price", number=5, type=kinds.TYPE_MESSAGE, label=1, type_name=".confluent.type.Decimal"
    )
    trade.field.add(name="size", number=6, type=kinds.TYPE_DOUBLE, label=1)
    level = file.message_type.add(name="Level")
    level.field.add(name="price", number=1, type=kinds.TYPE_STRING, label=1)
    level.field.add(name="qty", number=2, type=kinds.TYPE_STRING, label=1)
    depth = file.message_type.add(name="Depth")
    depth.field.add(name="ts_us", number=1, type=kinds.TYPE_INT64, label=1)
    depth.field.add(name="first_id", number=2, type=kinds.TYPE_INT64, label=1)
    depth.field.add(name="last_id", number=3, type=kinds.TYPE_INT64, label=1)
    depth.field.add(name="bids", number=4, type=kinds.TYPE_MESSAGE, label=3, type_name=".acme.Level")
    depth.field.add(name="asks", number=5, type=kinds.TYPE_MESSAGE, label=3, type_name=".acme.Level")
    return file


def protobuf_class(name: str) -> Any:
    from blumfeld_sink_spark.decoders.schemas.protobuf import _decimal_file

    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import timestamp_pb2

    pool.AddSerializedFile(timestamp_pb2.DESCRIPTOR.serialized_pb)
    pool.AddSerializedFile(_decimal_file())
    pool.AddSerializedFile(trade_file().SerializeToString())
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"acme.{name}"))

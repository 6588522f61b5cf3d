"""Requests of every API that is served, filled at random and then damaged: whatever comes back, nothing may break."""

from __future__ import annotations

import random
import types
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import msgspec

from blumfeld.wire.api import request_class
from blumfeld.wire.codec import encode
from blumfeld.wire.headers import put_request_header
from blumfeld.wire.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from blumfeld.wire.primitives import EncodeError
from campaigns.bad_input.case import Case
from campaigns.bad_input.target import Target, good_batch
from campaigns.raw_connection import ConnectionEnded, RawConnection

REQUESTS = 300
WAIT_S = 0.1
"""Some requests are answered late, or never: a fetch that waits, a member that waits for others."""
UNREGISTER_BROKER = 64
"""Left out. A well-formed request forgets a broker, also a live one, as in Kafka: nothing could be read then."""
NUMBERS = (0, 0, 1, 1, -1, 2, 3, 5, 100, 127)


class Mutator:
    """Draws requests from a seed; ``names`` are what its strings may be."""

    def __init__(self, seed: int, names: Sequence[str]) -> None:
        self._random = random.Random(seed)
        self._names = names

    def request(self, apis: Sequence[ApiVersion]) -> bytes:
        """A frame's payload for one of these APIs."""
        while True:
            api = self._random.choice(apis)
            version = self._random.randint(api.min_version, api.max_version)
            try:
                body = encode(self._filled(request_class(api.api_key)), version)
            except EncodeError:
                continue  # a field that this version lacks: draw again
            return put_request_header(api.api_key, version, 1, "bad") + self._damaged(bytearray(body))

    def _damaged(self, body: bytearray) -> bytes:
        """Four in ten as they are, four with bytes changed, the others cut or with something behind."""
        how = self._random.random()
        if how < 0.4 and body:
            for _ in range(self._random.choice((1, 1, 2, 4))):
                body[self._random.randrange(len(body))] = self._random.choice((0, 1, 127, 128, 255))
        elif how < 0.5:
            del body[self._random.randrange(len(body) + 1) :]
        elif how < 0.6:
            body += self._random.randbytes(5)
        return bytes(body)

    def _filled(self, kind: type[Any]) -> Any:
        hints = get_type_hints(kind)
        fields = msgspec.structs.fields(kind)
        return kind(**{field.name: self._value(hints[field.name], field.name) for field in fields})

    def _value(self, hint: Any, name: str) -> Any:
        draw = self._random
        if get_origin(hint) is Annotated:
            hint = get_args(hint)[0]
        if name == "records":
            return bytes(good_batch(b"x")) if draw.random() < 0.8 else draw.randbytes(80)
        if get_origin(hint) in (Union, types.UnionType):
            return None if draw.random() < 0.3 else self._value(get_args(hint)[0], name)
        if get_origin(hint) is list:
            return [self._value(get_args(hint)[0], name) for _ in range(draw.choice((0, 1, 1, 2)))]
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            return self._filled(hint)
        drawn: dict[Any, Callable[[], Any]] = {
            int: lambda: draw.choice(NUMBERS),
            bool: lambda: draw.random() < 0.5,
            str: lambda: draw.choice(self._names),
            bytes: lambda: draw.choice((bytes(16), draw.randbytes(16))),
        }
        return drawn[hint]()


def damaged_requests(target: Target, seed: int = 1, requests: int = REQUESTS) -> str:
    """Send them, on one connection as long as it is left open."""
    topic = f"{target.tag}-damaged"
    if target.metadata(topic) != "NONE":
        target.make_topic(topic)
    versions_request = ApiVersionsRequest(client_software_name="bad", client_software_version="1")
    listed = target.ask(versions_request, 3, ApiVersionsResponse).api_keys
    apis = [api for api in listed if api.api_key != UNREGISTER_BROKER]
    mutator = Mutator(seed, (topic, "no-such-topic", "", "range", "consumer", f"{target.tag}-group"))
    connection: RawConnection | None = None
    for _ in range(requests):
        connection = connection or target.connect(WAIT_S)
        try:
            connection.send_frame(mutator.request(apis))
            connection.receive_frame()
        except (ConnectionEnded, TimeoutError):
            connection.close()
            connection = None
    if connection is not None:
        connection.close()
    return f"{requests} answered or closed"


def cases() -> Sequence[Case]:
    """All of them."""
    return (Case("requests of all APIs, bytes changed", f"{REQUESTS} answered or closed", damaged_requests),)

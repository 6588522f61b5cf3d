"""The state of one client connection: requests in, bytes out; bytes in, answers out. It moves no byte itself.

A server answers the requests of a connection in their order. So the oldest request that waits says how to read the next
frame: no answer carries an API key or a version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from blumfeld.client.errors import (
    ConnectionEndedError,
    CutFrameError,
    UnexpectedAnswerError,
    WrongCorrelationIdError,
)
from blumfeld.client.frames import FRAME_BYTES_MAX, FrameCutter, api_key_of, request_frame
from blumfeld.wire.api import response_class
from blumfeld.wire.api_table import ApiKey
from blumfeld.wire.codec import decode, encode_parts
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.headers import put_request_header, response_body_offset
from blumfeld.wire.primitives import DecodeError, Part
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    # It brings a message module, and a starting broker has a connection before it has asked for versions.
    from blumfeld.client.versions import Versions

CORRELATION_ID_MAX = 0x7FFFFFFF
"""The id after it is 0."""
BEFORE_SERVICE = frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
"""The APIs that a listener answers before a login. Any other answer shows that it serves this client."""


class Waiting(NamedTuple):
    """A request that was sent and has no answer yet."""

    correlation_id: int
    api_key: int
    version: int
    token: Any
    """The caller's own value for this request."""


class Answer(NamedTuple):
    """An answer, and the request that it belongs to."""

    message: Message
    version: int
    """The version that the answer was read in. Only for ApiVersions it can be lower than the request's (KIP-511)."""
    request: Waiting


class RawTaken(NamedTuple):
    """The body of an answer, and the request that it belongs to."""

    body: memoryview
    request: Waiting


class ClientConnection:
    """One connection. A driver makes it when its socket is open, and drops it with the socket.

    The driver either hands over bytes as they come (:meth:`receive`, then :meth:`answers`), or cuts the frames itself
    (:meth:`take`). It must not mix the two.

    :param versions: the versions to send where a request names none; see :class:`~blumfeld.client.versions.Handshake`
    """

    __slots__ = ("_broken", "_client_id", "_cutter", "_last_id", "_waiting", "versions")

    def __init__(
        self,
        client_id: str | None,
        *,
        versions: Versions | None = None,
        frame_bytes_max: int = FRAME_BYTES_MAX,
    ) -> None:
        self.versions = versions
        self._client_id = client_id
        self._cutter = FrameCutter(frame_bytes_max)
        self._waiting: deque[Waiting] = deque()
        self._last_id = 0
        self._broken: Exception | None = None

    # Out

    def frame(self, request: Message, version: int | None = None, token: Any = None) -> bytes:
        """Return the bytes of a request, its size included, and wait for its answer from now on.

        A Produce request with ``acks=0`` has no answer, so nothing waits for one.

        :param version: as negotiated if it is None
        :raises EncodeError: the request has no form in this version. Nothing waits then
        :raises NoCommonVersionError: the server does not speak this API
        """
        version = self._version(request, version)
        correlation_id = self._next_id()
        data = request_frame(request, version, correlation_id, self._client_id)
        self._sent(request, version, correlation_id, token)
        return data

    def parts(self, request: Message, version: int | None = None, token: Any = None) -> list[Part]:
        """Do as :meth:`frame`, for a transport that writes the size itself: large records are not copied."""
        version = self._version(request, version)
        correlation_id = self._next_id()
        header = put_request_header(api_key_of(request), version, correlation_id, self._client_id)
        parts = encode_parts(request, version, header)
        self._sent(request, version, correlation_id, token)
        return parts

    def _version(self, request: Message, version: int | None) -> int:
        if version is not None:
            return version
        assert self.versions is not None, "name a version, or set `versions` after a handshake"
        return self.versions.of(api_key_of(request))

    def _next_id(self) -> int:
        return (self._last_id + 1) & CORRELATION_ID_MAX

    def _sent(self, request: Message, version: int, correlation_id: int, token: Any) -> None:
        # Only now: a request that could not be encoded must not take an id that the server never sees.
        self._last_id = correlation_id
        key = api_key_of(request)
        if key == ApiKey.PRODUCE and getattr(request, "acks", None) == 0:
            return
        self._waiting.append(Waiting(correlation_id, key, version, token))

    # In

    def receive(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes of the stream; b"" is its end. Ask :meth:`answers` next.

        :raises CutFrameError: the stream ends inside a frame
        :raises ConnectionEndedError: it ends between frames while requests wait
        """
        if data:
            self._cutter.add(data)
        elif begun := self._cutter.begun_bytes:
            raise self._break(CutFrameError(f"the server closed the connection {begun} bytes into a frame"))
        elif self._waiting:
            raise self._break(
                ConnectionEndedError(
                    f"the server closed the connection while {len(self._waiting)} requests wait"
                )
            )

    def answers(self) -> Iterator[Answer]:
        """Yield the answers that have come whole, in order.

        Where the bytes are cut makes no difference: the same stream gives the same answers, then the same error.

        :raises FrameSizeError: the server announces a frame that is not allowed
        :raises WrongCorrelationIdError: the answer is to another request than the oldest that waits
        :raises UnexpectedAnswerError: no request waits
        :raises DecodeError: the bytes are not the answer that was asked for
        """
        while True:
            self._check_broken()
            try:
                frame = self._cutter.next()
            except DecodeError as error:
                raise self._break(error) from None
            if frame is None:
                return
            yield self.take(frame)

    def take(self, frame: bytes | bytearray | memoryview) -> Answer:
        """Read an answer that the driver has cut. Records in it are views into ``frame``.

        :raises DecodeError: as :meth:`answers`
        """
        self._check_broken()
        if not self._waiting:
            raise self._break(UnexpectedAnswerError("an answer came, and no request waits for one"))
        oldest = self._waiting[0]
        try:
            message, version = read_answer(frame, oldest.api_key, oldest.version, oldest.correlation_id)
        except DecodeError as error:
            raise self._break(error) from error.__cause__
        self._waiting.popleft()
        return Answer(message, version, oldest)

    def take_raw(self, frame: memoryview) -> RawTaken:
        """Take an answer that the driver has cut, and don't decode it: the body is a view into ``frame``.

        :raises DecodeError: as :meth:`answers`, but for a body that can't be read
        """
        self._check_broken()
        if not self._waiting:
            raise self._break(UnexpectedAnswerError("an answer came, and no request waits for one"))
        oldest = self._waiting[0]
        try:
            got_id, at = response_body_offset(frame, oldest.api_key, oldest.version)
            check_correlation_id(got_id, oldest.correlation_id)
        except DecodeError as error:
            raise self._break(error) from error.__cause__
        self._waiting.popleft()
        return RawTaken(frame[at:], oldest)

    @property
    def oldest(self) -> Waiting | None:
        """The request that the next answer belongs to."""
        return self._waiting[0] if self._waiting else None

    @property
    def waiting(self) -> int:
        """Number of requests that wait for an answer."""
        return len(self._waiting)

    def end(self) -> list[Waiting]:
        """Give up the connection: return the requests that will have no answer, oldest first. Harmless twice."""
        given_up = list(self._waiting)
        self._waiting.clear()
        return given_up

    def _break(self, error: Exception) -> Exception:
        self._broken = error
        return error

    def _check_broken(self) -> None:
        # After one bad frame it is unknown which request the next frame answers.
        if self._broken is not None:
            raise self._broken


def read_answer(
    frame: bytes | bytearray | memoryview, api_key: int, version: int, correlation_id: int
) -> tuple[Message, int]:
    """Return the answer that fills ``frame``, and the version that it was read in.

    A server that does not know the version of an ApiVersions request answers in version 0, with the error
    UNSUPPORTED_VERSION (KIP-511). Of every other API it closes the connection.

    :raises WrongCorrelationIdError: the frame carries another correlation id
    :raises DecodeError: the frame is not this answer
    """
    view = frame if type(frame) is memoryview else memoryview(frame)
    got_id, at = response_body_offset(view, api_key, version)
    check_correlation_id(got_id, correlation_id)
    if api_key == ApiKey.API_VERSIONS and view[at : at + 2] == _UNSUPPORTED_VERSION:
        version = 0
    return decode(response_class(api_key), view, version, at), version


def check_correlation_id(correlation_id: int, due: int) -> None:
    """
    :raises WrongCorrelationIdError: the answer is to another request than the one that is due
    """
    if correlation_id != due:
        raise WrongCorrelationIdError(f"the answer is to request {correlation_id}, where {due} was due")


_UNSUPPORTED_VERSION = int(ErrorCode.UNSUPPORTED_VERSION).to_bytes(2, "big")

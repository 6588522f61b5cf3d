"""The errors of a client. Each names one thing that can go wrong between a request and its answer.

A :class:`~blumfeld.wire.primitives.DecodeError` means that the server broke the protocol, an ``OSError`` that the
connection ended. After either, the connection is of no more use.
"""

from __future__ import annotations

from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.primitives import DecodeError

COORDINATOR_MOVES = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)
"""After these a client looks for the coordinator again, and repeats its request."""

NO_HOST_NAME = "{!r} is no name of a host: its parts have 1 to 63 characters"


class FrameSizeError(DecodeError):
    """A frame announces a size that is negative, too small for a header, or above the limit."""


class WrongCorrelationIdError(DecodeError):
    """An answer carries another correlation id than the oldest request that waits."""


class UnexpectedAnswerError(DecodeError):
    """An answer came while no request waits for one."""


class ConnectionEndedError(ConnectionError):
    """The server closed the connection between two frames."""


class CutFrameError(ConnectionEndedError):
    """The server closed the connection inside a frame."""


class NotLetInError(ConnectionError):
    """A server serves nothing to this client.

    :ivar where: the server's address
    :ivar reason: the rest of the text
    """

    def __init__(self, where: str, reason: str) -> None:
        super().__init__(f"{where}: {reason}")
        self.where, self.reason = where, reason


class NotSecuredError(NotLetInError):
    """TLS or the login failed: another attempt with the same settings fails, too."""


class NotServedError(NotLetInError, ConnectionEndedError):
    """The server closed a new connection before it served anything: it may want TLS or a login."""


def not_served(where: str, protocol: str, *, answered: bool) -> NotServedError:
    """Returns the error of a server that closed a new connection.

    :param where: the server's address
    :param protocol: the client's ``security.protocol``
    :param answered: whether the server has answered anything, such as ApiVersions
    """
    wants = {
        "PLAINTEXT": "a login" if answered else "TLS or a login",
        "SSL": "a login, or a certificate of the client",
        "SASL_PLAINTEXT": "another login" if answered else "TLS, or no login",
    }.get(protocol, "another login" if answered else "no login, or a certificate of the client")
    return NotServedError(
        where,
        f"the server closed the connection before it served anything. Its listener may want {wants}; "
        f"the client's security.protocol is {protocol}",
    )


class NoCommonVersionError(Exception):
    """Client and server have no version of an API in common.

    :ivar api_key: the API
    """

    def __init__(self, api_key: int, message: str) -> None:
        super().__init__(message)
        self.api_key = api_key


class RefusedError(Exception):
    """The server answered with an error code.

    :ivar code: Kafka's number; it need not be one that this build knows
    :ivar about: the thing that was refused
    """

    def __init__(self, code: int, about: str, message: str | None = None) -> None:
        super().__init__(f"{about}: {error_name(code)}" + (f" ({message})" if message else ""))
        self.code = code
        self.about = about

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later."""
        return is_retriable(self.code)


def check(code: int, about: str, message: str | None = None) -> None:
    """Pass the code 0.

    :param about: the thing that the answer speaks of, such as ``topic letters``
    :param message: the server's own words
    :raises RefusedError: the code is another one
    """
    if code:
        raise RefusedError(code, about, message)


def error_name(code: int) -> str:
    """Kafka's name of an error code, or ``error N`` where this build knows none."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return f"error {code}"

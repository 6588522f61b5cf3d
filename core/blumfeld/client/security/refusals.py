"""The one error of a login that failed, with a text for the client and another one for the log."""

from __future__ import annotations

from blumfeld.wire.errors import BrokerError, ErrorCode


class LoginRefused(BrokerError):  # noqa: N818 - the noun says what it is
    """A login failed: SASL_AUTHENTICATION_FAILED on the wire.

    Neither text ever holds a password, a token or a proof.

    :param reason: the text for this node's log. It may say that a user is unknown
    :param told: the text for the client; ``None``: Kafka's general one, which is the same for an unknown user and a
        wrong password
    """

    def __init__(self, reason: str, told: str | None = None) -> None:
        super().__init__(ErrorCode.SASL_AUTHENTICATION_FAILED, told)
        self.reason = reason


class Malformed(LoginRefused):
    """A token that is none of its mechanism."""

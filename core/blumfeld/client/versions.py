"""The version of each API to send: the highest that both sides speak (KIP-35), found out by a handshake."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

from blumfeld import __version__
from blumfeld.client.errors import NoCommonVersionError, check
from blumfeld.wire.api_table import APIS, ApiKey
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

Range = tuple[int, int]
"""The lowest and the highest version."""

SPOKEN: Mapping[int, Range] = {key: (info.min_version, info.max_version) for key, info in APIS.items()}
"""Every stable version of every API: what the codec can write and read."""
SOFTWARE_NAME = "blumfeld"
"""Name of this client in ApiVersions requests (KIP-511)."""


class Versions:
    """The versions of one connection.

    :param spoken: API key → versions that this client writes and reads
    :param offered: API key → versions that the server takes
    """

    def __init__(self, spoken: Mapping[int, Range], offered: Mapping[int, Range]) -> None:
        self.offered = dict(offered)
        self._spoken = spoken
        self._agreed = {
            key: min(most, offered[key][1])
            for key, (least, most) in spoken.items()
            if key in offered and max(least, offered[key][0]) <= min(most, offered[key][1])
        }

    @classmethod
    def fixed(cls, versions: Mapping[int, int]) -> Self:
        """Fixed versions, for a client without negotiation."""
        ranges = {key: (version, version) for key, version in versions.items()}
        return cls(ranges, ranges)

    def of(self, api_key: int) -> int:
        """Return the version to send.

        :raises NoCommonVersionError: there is none
        """
        try:
            return self._agreed[api_key]
        except KeyError:
            raise NoCommonVersionError(api_key, self._difference(api_key)) from None

    def require(self, api_keys: Iterable[int]) -> Self:
        """Return these versions, if there is one for each of the APIs.

        :raises NoCommonVersionError: there is none for the API that the error names
        """
        for key in api_keys:
            self.of(key)
        return self

    def _difference(self, api_key: int) -> str:
        name = APIS[api_key].name if api_key in APIS else "unknown"
        return (
            f"API {api_key} ({name}): the broker speaks {_told(self.offered.get(api_key))}, this client "
            + _told(self._spoken.get(api_key))
        )


def _told(versions: Range | None) -> str:
    return "no version" if versions is None else f"versions {versions[0]} to {versions[1]}"


class Handshake:
    """The first exchange on a connection: ApiVersions in the newest version, and in an older one if the server says so.

    A driver sends ``request`` in ``version``, hands the answer to :meth:`answered`, and repeats that until ``versions``
    is there: once, or twice.
    """

    def __init__(
        self, spoken: Mapping[int, Range] = SPOKEN, *, name: str = SOFTWARE_NAME, release: str = __version__
    ) -> None:
        self.request = ApiVersionsRequest(client_software_name=name, client_software_version=release)
        self.version = SPOKEN[ApiKey.API_VERSIONS][1]
        self.versions: Versions | None = None
        self._spoken = spoken
        self._fell_back = False

    def answered(self, answer: ApiVersionsResponse) -> None:
        """Take an answer.

        A server that names no version of ApiVersions beside its UNSUPPORTED_VERSION is asked in version 0, as brokers
        before 2.4 must be.

        :raises NoCommonVersionError: the server refuses the version that it named itself, or every one of ours
        :raises RefusedError: it answers with another error
        """
        offered = {api.api_key: (api.min_version, api.max_version) for api in answer.api_keys}
        if answer.error_code == ErrorCode.UNSUPPORTED_VERSION:
            least, most = offered.get(ApiKey.API_VERSIONS, (0, 0))
            fallback = min(most, self.version - 1)
            if self._fell_back or fallback < max(least, 0):
                raise NoCommonVersionError(
                    ApiKey.API_VERSIONS,
                    f"API 18 (ApiVersions): the broker refuses version {self.version} and names {least} to {most}",
                )
            self._fell_back = True
            self.version = fallback
            return
        check(answer.error_code, "ApiVersions")
        self.versions = Versions(self._spoken, offered)

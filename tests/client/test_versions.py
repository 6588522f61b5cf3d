"""Version negotiation: the highest version of both, and the way back for a server that is older."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.client.errors import NoCommonVersionError, RefusedError
from blumfeld.client.versions import Handshake, Versions
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

Ranges = dict[int, tuple[int, int]]
ranges = st.dictionaries(
    st.integers(0, 4),
    st.tuples(st.integers(0, 9), st.integers(0, 9)).map(lambda pair: (min(pair), max(pair))),
)


def answer(offered: Ranges, code: int = 0) -> ApiVersionsResponse:
    keys = [
        ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in offered.items()
    ]
    return ApiVersionsResponse(error_code=code, api_keys=keys)


@given(ranges, ranges)
def test_the_highest_version_that_both_speak(spoken: Ranges, offered: Ranges) -> None:
    versions = Versions(spoken, offered)
    for key in range(5):
        both = [
            version
            for version in range(10)
            if all(key in side and side[key][0] <= version <= side[key][1] for side in (spoken, offered))
        ]
        if both:
            assert versions.of(key) == max(both)
        else:
            with pytest.raises(NoCommonVersionError, match=rf"API {key} "):
                versions.of(key)


def test_the_error_names_both_sides() -> None:
    versions = Versions({1: (12, 12)}, {1: (0, 11)})
    with pytest.raises(NoCommonVersionError) as caught:
        versions.require([1])
    assert caught.value.api_key == 1
    assert (
        str(caught.value)
        == "API 1 (Fetch): the broker speaks versions 0 to 11, this client versions 12 to 12"
    )
    with pytest.raises(NoCommonVersionError, match="the broker speaks no version, this client no version"):
        versions.of(99)
    assert Versions({1: (3, 5)}, {1: (4, 9)}).require([1]).of(1) == 5


def test_one_exchange_is_enough_with_a_server_of_today() -> None:
    handshake = Handshake({3: (0, 12)})
    assert handshake.version == 4
    assert handshake.request.client_software_name == "blumfeld"
    handshake.answered(answer({3: (0, 9), 18: (0, 4)}))
    assert handshake.versions is not None
    assert handshake.versions.of(3) == 9
    assert handshake.versions.offered == {3: (0, 9), 18: (0, 4)}


@pytest.mark.parametrize(("named", "then"), [({18: (0, 3)}, 3), ({18: (0, 2)}, 2), ({}, 0)])
def test_an_older_server_is_asked_in_the_version_that_it_names(named: Ranges, then: int) -> None:
    """Brokers before 2.4 name none (KIP-511): they are asked in version 0."""
    handshake = Handshake({3: (0, 12)})
    handshake.answered(answer(named, ErrorCode.UNSUPPORTED_VERSION))
    assert (handshake.versions, handshake.version) == (None, then)
    handshake.answered(answer({3: (0, 1)}))
    assert handshake.versions is not None
    assert handshake.versions.of(3) == 1


def test_a_server_that_refuses_twice_is_not_asked_for_ever() -> None:
    handshake = Handshake()
    handshake.answered(answer({18: (0, 3)}, ErrorCode.UNSUPPORTED_VERSION))
    with pytest.raises(NoCommonVersionError, match="refuses version 3 and names 0 to 3"):
        handshake.answered(answer({18: (0, 3)}, ErrorCode.UNSUPPORTED_VERSION))


@pytest.mark.parametrize("named", [(-5, -1), (4, 2), (0, -1), (-32768, -32768)])
def test_a_range_without_a_version_is_refused(named: tuple[int, int]) -> None:
    with pytest.raises(NoCommonVersionError):
        Handshake().answered(answer({18: named}, ErrorCode.UNSUPPORTED_VERSION))


def test_a_server_that_is_too_new_is_named() -> None:
    with pytest.raises(NoCommonVersionError, match="names 9 to 12"):
        Handshake().answered(answer({18: (9, 12)}, ErrorCode.UNSUPPORTED_VERSION))


def test_another_error_is_told() -> None:
    with pytest.raises(RefusedError, match="ApiVersions: INVALID_REQUEST") as caught:
        Handshake().answered(answer({}, ErrorCode.INVALID_REQUEST))
    assert (caught.value.code, caught.value.retriable) == (ErrorCode.INVALID_REQUEST, False)

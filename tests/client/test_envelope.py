"""Envelopes: a client's request on its way through another node (KIP-590)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blumfeld.client.envelope import FORWARDABLE, enveloped, inner_answer, read_envelope
from blumfeld.spi.consensus import OnBehalf
from blumfeld.spi.context import Principal
from blumfeld.wire.api import ApiKey
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.headers import put_request_header, request_header, response_header
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from blumfeld.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from blumfeld.wire.messages.metadata import MetadataRequest

ALICE = OnBehalf(Principal("alice"), "192.0.2.7", "app")
REQUEST = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1, replication_factor=1)])


def code_of(envelope: EnvelopeRequest) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        read_envelope(envelope)
    return caught.value.code


@given(
    st.text(max_size=40),
    st.text(max_size=40),
    st.ip_addresses(),
    st.text(max_size=40),
    st.integers(2, 7),
    st.booleans(),
)
def test_what_went_in_comes_out(
    type_: str, name: str, host: object, client_id: str, version: int, by_token: bool
) -> None:
    on_behalf = OnBehalf(Principal(name, type_, by_token), str(host), client_id)
    sent = decode(EnvelopeRequest, encode(enveloped(REQUEST, version, 5, on_behalf), 0), 0)
    forwarded = read_envelope(sent)
    assert forwarded.on_behalf == on_behalf
    assert (forwarded.api_key, forwarded.api_version) == (19, version)
    header = request_header(memoryview(forwarded.frame))
    assert header.correlation_id == 5
    assert decode(CreateTopicsRequest, forwarded.frame, version, header.body_offset) == REQUEST


def test_the_principal_has_kafkas_bytes() -> None:
    """A version of two bytes, then DefaultPrincipalData v0: type, name, no token, no tags."""
    assert enveloped(REQUEST, 7, 5, ALICE).request_principal == b"\0\0\5User\6alice\0\0"
    assert enveloped(REQUEST, 7, 5, ALICE).client_host_address == bytes([192, 0, 2, 7])


def test_only_forwardable_requests_borrow_a_principal() -> None:
    """A Produce in an Envelope would write in the name of anyone."""
    assert ApiKey.PRODUCE not in FORWARDABLE
    assert ApiKey.ENVELOPE not in FORWARDABLE
    assert code_of(enveloped(MetadataRequest(), 12, 1, ALICE)) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("cut", range(12))
def test_a_cut_header_is_refused(cut: int) -> None:
    envelope = enveloped(REQUEST, 7, 5, ALICE)
    envelope.request_data = envelope.request_data[:cut]
    assert code_of(envelope) == ErrorCode.INVALID_REQUEST


def test_an_address_has_four_or_sixteen_bytes() -> None:
    envelope = enveloped(REQUEST, 7, 5, ALICE)
    envelope.client_host_address = b"\1\2\3"
    assert code_of(envelope) == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("data", [None, b"", b"\0", b"\xff\xff", b"\0\0", b"\0\0\5User"])
def test_a_principal_that_cant_be_read_is_refused(data: bytes | None) -> None:
    envelope = enveloped(REQUEST, 7, 5, ALICE)
    envelope.request_principal = data
    assert code_of(envelope) == ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE


def test_the_answer_is_unwrapped() -> None:
    inner = response_header(5, True) + encode(CreateTopicsResponse(throttle_time_ms=3), 7)
    answer = inner_answer(EnvelopeResponse(response_data=inner), 19, 7)
    assert answer == CreateTopicsResponse(throttle_time_ms=3)
    with pytest.raises(BrokerError) as caught:
        inner_answer(EnvelopeResponse(error_code=int(ErrorCode.NOT_CONTROLLER)), 19, 7)
    assert caught.value.code == ErrorCode.NOT_CONTROLLER


def test_an_error_that_only_a_newer_controller_knows_is_unknown() -> None:
    with pytest.raises(BrokerError) as caught:
        inner_answer(EnvelopeResponse(error_code=9_999), 19, 7)
    assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR


def test_a_header_of_a_key_that_nobody_knows_is_refused() -> None:
    envelope = enveloped(REQUEST, 7, 5, ALICE)
    envelope.request_data = b"\x7f\xff" + put_request_header(19, 7, 5, "app")[2:]
    assert code_of(envelope) == ErrorCode.INVALID_REQUEST

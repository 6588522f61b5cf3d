"""A client's request that one node passes on to the controller, with the client's principal and address (KIP-590).

The inner request and the inner answer are whole frames, headers included, as they would lie on a connection.
"""

from __future__ import annotations

import ipaddress
import struct
from typing import NamedTuple

from blumfeld.client.frames import api_key_of
from blumfeld.spi.consensus import OnBehalf
from blumfeld.spi.context import Principal
from blumfeld.wire.api import ApiKey, response_class
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import BrokerError, ErrorCode, known_code
from blumfeld.wire.headers import put_request_header, request_header, response_body_offset
from blumfeld.wire.messages.default_principal import DefaultPrincipalData
from blumfeld.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

FORWARDABLE = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.ALTER_CLIENT_QUOTAS,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
    }
)
"""APIs that may travel in an Envelope, as in Kafka 4.3. Another one must not borrow a principal."""
_VERSION = struct.Struct(">h")


class Forwarded(NamedTuple):
    """A request that came in an Envelope."""

    on_behalf: OnBehalf
    api_key: int
    api_version: int
    frame: bytes
    """The request's frame, without its size."""


def enveloped(request: Message, version: int, correlation_id: int, on_behalf: OnBehalf) -> EnvelopeRequest:
    """Returns the Envelope with a request in this version."""
    client = on_behalf.principal
    principal = DefaultPrincipalData(
        type=client.type, name=client.name, token_authenticated=client.token_authenticated
    )
    header = put_request_header(api_key_of(request), version, correlation_id, on_behalf.client_id)
    return EnvelopeRequest(
        request_data=header + encode(request, version),
        request_principal=_VERSION.pack(0) + encode(principal, 0),
        client_host_address=ipaddress.ip_address(on_behalf.client_host).packed,
    )


def read_envelope(envelope: EnvelopeRequest) -> Forwarded:
    """Returns the request in an Envelope.

    :raises BrokerError: INVALID_REQUEST: no readable header, an API that is not forwardable, or no address;
        PRINCIPAL_DESERIALIZATION_FAILURE
    """
    principal = _principal(bytes(envelope.request_principal or b""))
    frame = bytes(envelope.request_data)
    try:
        header = request_header(memoryview(frame))
    except DecodeError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"the request in the Envelope: {error}") from error
    if header.api_key not in FORWARDABLE:
        message = f"{ApiKey(header.api_key).name} can't be forwarded in an Envelope"
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)
    try:
        host = str(ipaddress.ip_address(bytes(envelope.client_host_address)))
    except ValueError as error:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"the client's address: {error}") from error
    on_behalf = OnBehalf(principal=principal, client_host=host, client_id=header.client_id or "")
    return Forwarded(on_behalf, header.api_key, header.api_version, frame)


def _principal(data: bytes) -> Principal:
    try:
        (version,) = _VERSION.unpack_from(data)
        if version < 0:
            raise DecodeError(f"version {version}")
        # A later version is read as version 0: its fields come first, and later ones are tagged.
        principal = decode(DefaultPrincipalData, memoryview(data)[_VERSION.size :], 0)
    except (struct.error, DecodeError) as error:
        message = f"the principal in the Envelope can't be read: {error}"
        raise BrokerError(ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE, message) from error
    return Principal(principal.name, principal.type, principal.token_authenticated)


def inner_answer(envelope: EnvelopeResponse, key: int, version: int) -> Message:
    """Returns the answer to the request that was forwarded in this version.

    :raises BrokerError: the Envelope's error: NOT_CONTROLLER, CLUSTER_AUTHORIZATION_FAILED…
    :raises DecodeError: the answer can't be read
    """
    if envelope.error_code:
        raise BrokerError(known_code(envelope.error_code), "the controller refused the Envelope")
    data = memoryview(bytes(envelope.response_data or b""))
    _, offset = response_body_offset(data, key, version)
    return decode(response_class(key), data, version, offset)

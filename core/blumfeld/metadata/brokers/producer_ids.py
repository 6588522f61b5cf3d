"""AllocateProducerIds: disjoint blocks of producer ids for the brokers. Pure."""

from __future__ import annotations

from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment, broker_of_epoch
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)
from blumfeld.wire.messages.metadata_records import ProducerIdsRecord

BLOCK_IDS = 1000
PRODUCER_ID_MAX = 2**63 - 1


def allocate_producer_ids(
    state: ControllerState, request: AllocateProducerIdsRequest, _moment: Moment
) -> ControllerDecision:
    """Allocate the next block of 1000 producer ids. Ids of the broker's last block that it did not use are
    lost.

    Errors: BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH; UNKNOWN_SERVER_ERROR when all ids are allocated.
    """
    last = state.image.producer_ids
    start = 0 if last is None else last.next_producer_id
    try:
        broker_of_epoch(state, request.broker_id, request.broker_epoch)
        if start > PRODUCER_ID_MAX - BLOCK_IDS:
            raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are allocated")
    except BrokerError as error:
        return ControllerDecision([], AllocateProducerIdsResponse(error_code=error.code))
    record = ProducerIdsRecord(
        broker_id=request.broker_id,
        broker_epoch=request.broker_epoch,
        next_producer_id=start + BLOCK_IDS,
    )
    response = AllocateProducerIdsResponse(producer_id_start=start, producer_id_len=BLOCK_IDS)
    return ControllerDecision([record], response)

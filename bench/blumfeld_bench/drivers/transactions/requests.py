"""Requests of a driver process before and after the load: coordinators, producer ids, and a count of what was
committed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from blumfeld.client.blocking_connection import BlockingConnection
from blumfeld.client.errors import RefusedError, check
from blumfeld.client.security.command_config import PLAINTEXT, ClientSecurity
from blumfeld.wire.batches.record_batch import split_batches
from blumfeld.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.frames import CLIENT_ID

Address = tuple[str, int]

TRANSACTIONAL_ID = 1
"""Key type of FindCoordinator."""
FIND_VERSION = 3
INIT_VERSION = 4
FETCH_VERSION = 11
READ_COMMITTED = 1
TRANSACTION_TIMEOUT_MS = 60_000
TIMEOUT_S = 30.0
POLL_S = 0.05
STABLE_S = 15.0
"""Time that the markers of the last transactions have."""
FETCH_BYTES = 8 << 20
PARTITION_FETCH_BYTES = 1 << 20


def begin_producer(
    bootstrap: Address, transactional_id: str, security: ClientSecurity = PLAINTEXT
) -> tuple[Address, tuple[int, int]]:
    """Find the coordinator of a transactional id and get its producer id and epoch.

    :return: the coordinator's address, and (producer id, epoch)
    :raises DriverError: the server refused for 30 s, or with an error that doesn't pass
    """
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            return _begin(bootstrap, transactional_id, security)
        except RefusedError as error:
            if not error.retriable or time.monotonic() > deadline:
                raise DriverError(str(error)) from None
            time.sleep(POLL_S)
        except (OSError, DecodeError) as error:
            raise DriverError(f"transactional id {transactional_id}: {error}") from error


def _begin(
    bootstrap: Address, transactional_id: str, security: ClientSecurity
) -> tuple[Address, tuple[int, int]]:
    with BlockingConnection(*bootstrap, CLIENT_ID, TIMEOUT_S, security=security) as client:
        find = FindCoordinatorRequest(key=transactional_id, key_type=TRANSACTIONAL_ID)
        location = client.ask(find, FindCoordinatorResponse, FIND_VERSION)
        check(location.error_code, f"the coordinator of {transactional_id}", location.error_message)
    coordinator = (location.host, location.port)
    with BlockingConnection(*coordinator, CLIENT_ID, TIMEOUT_S, security=security) as client:
        init = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=TRANSACTION_TIMEOUT_MS
        )
        given = client.ask(init, InitProducerIdResponse, INIT_VERSION)
        check(given.error_code, f"the producer id of {transactional_id}")
    return coordinator, (given.producer_id, given.producer_epoch)


def committed_records(
    topic: str,
    leaders: Sequence[Address],
    from_offsets: Sequence[int],
    security: ClientSecurity = PLAINTEXT,
) -> int:
    """Read the topic with read_committed, from these offsets to its end, and count the records.

    Waits until no partition has an open transaction.

    :raises DriverError: a request was refused, or a transaction stays open for 15 s
    """
    total = 0
    for leader in sorted(set(leaders)):
        mine = {index: from_offsets[index] for index, at in enumerate(leaders) if at == leader}
        try:
            with BlockingConnection(*leader, CLIENT_ID, TIMEOUT_S, reuse=True, security=security) as client:
                total += _count(client, topic, mine)
        except (OSError, DecodeError, RefusedError) as error:
            raise DriverError(f"reading what was committed: {error}") from error
    return total


def _count(client: BlockingConnection, topic: str, positions: dict[int, int]) -> int:
    total = 0
    deadline = time.monotonic() + STABLE_S
    while positions:
        answer = client.ask(_fetch(topic, positions), FetchResponse, FETCH_VERSION)
        check(answer.error_code, "Fetch")
        moved = False
        for partition in answer.responses[0].partitions:
            check(partition.error_code, f"Fetch of partition {partition.partition_index}")
            if partition.aborted_transactions:
                raise DriverError(f"partition {partition.partition_index} has aborted transactions")
            assert isinstance(partition.records, memoryview | None)
            records, following = _data_records(partition.records or memoryview(b""))
            total += records
            if following >= 0:
                positions[partition.partition_index] = following
                moved = True
            if (
                positions[partition.partition_index]
                >= partition.last_stable_offset
                == partition.high_watermark
            ):
                del positions[partition.partition_index]
        if not moved and positions:
            if time.monotonic() > deadline:
                raise DriverError(f"a transaction is still open in partitions {sorted(positions)}")
            time.sleep(POLL_S)
    return total


def _fetch(topic: str, positions: Mapping[int, int]) -> FetchRequest:
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=PARTITION_FETCH_BYTES)
        for index, offset in positions.items()
    ]
    return FetchRequest(
        min_bytes=0,
        max_bytes=FETCH_BYTES,
        isolation_level=READ_COMMITTED,
        topics=[FetchTopic(topic=topic, partitions=wanted)],
    )


def _data_records(data: memoryview) -> tuple[int, int]:
    """Returns the number of records in whole batches without markers, and the offset after the last batch or -1."""
    count, following = 0, -1
    for batch in split_batches(data, allow_partial=True):
        count += 0 if batch.is_control else batch.record_count
        following = batch.next_offset
    return count, following

"""The state table over the wire, of any broker: each request in each state, after a coordinator has read that state
from ``__transaction_state``.

The states are written into the log as records of the admin client, and the broker is started again. So a transactional
id is in any state and epoch at once, and every row has an id of its own. Markers of a transaction that is to stay
prepared are kept away by a marker with a later producer epoch.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from blumfeld.wire.api import API_BY_KEY, response_class
from blumfeld.wire.batches.builder import build_batch
from blumfeld.wire.batches.records import Record
from blumfeld.wire.codec import decode, encode
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.headers import put_request_header, response_body_offset
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from blumfeld.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from blumfeld.wire.messages.describe_transactions import DescribeTransactionsRequest
from blumfeld.wire.messages.end_txn import EndTxnRequest
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest
from blumfeld.wire.messages.init_producer_id import InitProducerIdRequest
from blumfeld.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from blumfeld.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from blumfeld.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from blumfeld_transactions.transaction import ENDING, State, Transaction, record

STATE_TOPIC = "__transaction_state"
ADMIN = "__admin_client"
"""The client id that may produce to internal topics."""
EPOCH, LAST = 5, 32_766
LATER_EPOCH = 32_767
TIMEOUT_MS = 900_000
DAY_MS = 86_400_000
READY_S_MAX = 60
SETTLED_S_MAX = 20
SETTINGS = {
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "transaction.remove.expired.transaction.cleanup.interval.ms": 500,
}
STATES = (
    State.EMPTY,
    State.ONGOING,
    State.PREPARE_COMMIT,
    State.PREPARE_ABORT,
    State.COMPLETE_COMMIT,
    State.COMPLETE_ABORT,
)


class Row(NamedTuple):
    """A request in a state."""

    number: int
    state: State | None
    """``None``: the transactional id is unknown."""
    epoch: int
    request: str

    @property
    def transactional_id(self) -> str:
        return f"row-{self.number}"

    @property
    def producer_id(self) -> int:
        return 5_000_000 + self.number

    @property
    def place(self) -> str:
        if self.state is None:
            return "unknown"
        return f"{self.state.text}, epoch {self.epoch}"


REQUESTS = (
    "init",
    "init, has the epoch",
    "init, has the epoch before",
    "init, has an older epoch",
    "init, has another producer id",
    "add t-0",
    "add t-0 t-1",
    "add t-0 t-9",
    "add t-0, epoch before",
    "add t-0, other producer id",
    "verify t-0 t-1",
    "commit",
    "commit, epoch before",
    "commit, epoch after",
    "commit, other producer id",
    "abort",
    "abort, epoch before",
    "abort, epoch after",
    "abort, other producer id",
    "timeout passed",
    "expiration passed",
)


def all_rows() -> Iterator[Row]:
    """Every request in every state, the states with an epoch in the middle and with the last one."""
    places = [
        (None, EPOCH),
        *((row_state, EPOCH) for row_state in STATES),
        *((row_state, LAST) for row_state in STATES),
    ]
    number = 0
    for state, epoch in places:
        for request in REQUESTS:
            yield Row(number, state, epoch, request)
            number += 1


def seed(row: Row, version: int, now_ms: int) -> Transaction | None:
    """The transaction that a coordinator finds for the row."""
    if row.state is None:
        return None
    has = row.state is State.ONGOING or row.state in ENDING
    started_ms = now_ms - 2 * TIMEOUT_MS if row.request == "timeout passed" else now_ms
    return Transaction(
        producer_id=row.producer_id,
        previous_producer_id=row.producer_id,
        epoch=row.epoch,
        timeout_ms=TIMEOUT_MS,
        state=row.state,
        partitions=frozenset([("t", 0)]) if has else frozenset(),
        started_ms=-1 if row.state is State.EMPTY else started_ms,
        updated_ms=now_ms - 8 * DAY_MS if row.request == "expiration passed" else now_ms,
        client_version=version,
    )


class Wire:
    """One connection to a broker, for requests one after the other."""

    def __init__(self, address: str) -> None:
        host, port = address.rsplit(":", 1)
        self._socket = socket.create_connection((host, int(port)), timeout=30)
        self._reader = self._socket.makefile("rb")

    def close(self) -> None:
        self._reader.close()
        self._socket.close()

    def ask(self, request: Any, version: int | None = None, client_id: str = "rows") -> Any:
        key = request.meta.key
        version = API_BY_KEY[key].max_version if version is None else version
        frame = put_request_header(key, version, 1, client_id) + encode(request, version)
        self._socket.sendall(len(frame).to_bytes(4) + frame)
        body = self._reader.read(int.from_bytes(self._reader.read(4)))
        _, start = response_body_offset(memoryview(body), key, version)
        return decode(response_class(key), body, version, start)

    # Preparation

    def prepare(self, version: int) -> None:
        """Write the states into the log, and keep markers away where a transaction is to stay prepared."""
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
        self.ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 5)
        self.await_coordinator()
        update = FeatureUpdateKey(feature="transaction.version", max_version_level=version, upgrade_type=2)
        answer = self.ask(UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update]), 1)
        assert version == 2 or not answer.error_code, answer
        rows = list(all_rows())
        self._write(rows, version)
        self._fence([row for row in rows if row.state in ENDING])

    def await_coordinator(self) -> None:
        end = time.monotonic() + READY_S_MAX
        find = FindCoordinatorRequest(key="row-0", key_type=1)
        describe = DescribeTransactionsRequest(transactional_ids=["nobody"])
        while (
            self.ask(find, 3).error_code
            or self.ask(describe, 0).transaction_states[0].error_code != ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        ):
            assert time.monotonic() < end, "the coordinator does not come"
            time.sleep(0.05)

    def _write(self, rows: list[Row], version: int) -> None:
        now_ms = time.time_ns() // 1_000_000
        items: list[Record] = []
        for row in rows:
            transaction = seed(row, version, now_ms)
            if transaction is not None:
                made = record(row.transactional_id, transaction, version)
                items.append(Record(offset=len(items), timestamp=now_ms, key=made.key, value=made.value))
        data = PartitionProduceData(index=0, records=build_batch(items))
        request = ProduceRequest(
            acks=-1,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(name=STATE_TOPIC, partition_data=[data])],
        )
        answer = self.ask(request, 9, ADMIN).responses[0].partition_responses[0]
        assert not answer.error_code, answer

    def _fence(self, rows: list[Row]) -> None:
        markers = [
            WritableTxnMarker(
                producer_id=row.producer_id,
                producer_epoch=LATER_EPOCH,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name="t", partition_indexes=[0])],
            )
            for row in rows
        ]
        response = self.ask(WriteTxnMarkersRequest(markers=markers), 1)
        assert not any(marker.topics[0].partitions[0].error_code for marker in response.markers)

    # Play

    def play(self, version: int) -> list[str]:
        """The lines of the table, of a broker that was started again after :meth:`prepare`."""
        self.await_coordinator()
        while self.ask(InitProducerIdRequest(transactional_id=None), 5).error_code:
            time.sleep(0.05)  # Kafka's broker gets its producer ids later
        lines: list[str] = []
        place = ""
        for row in all_rows():
            if row.place != place:
                place = row.place
                lines += ["", f"{place}:"]
            lines.append(f"  {row.request:<30} {self._outcome(row, version)}")
        return lines

    def _outcome(self, row: Row, version: int) -> str:
        """The answer and the state after it, and the same for a second request."""
        if row.request == "timeout passed":
            return f"{self._after(row)}; abort: {self._asked(row, version, 'abort')}"
        if row.request == "expiration passed":
            return f"{self._after(row)}; init: {self._asked(row, version, 'init')}"
        first = self._asked(row, version, row.request)
        return f"{first}; again: {self._asked(row, version, row.request)}"

    def _asked(self, row: Row, version: int, request: str) -> str:
        verb, _, detail = request.partition(", ")
        verb, _, partitions = verb.partition(" ")
        row = row._replace(request=request)
        if verb == "init":
            answer = self._init(row, detail)
        elif verb in ("add", "verify"):
            answer = self._add(row, version, verb, partitions, detail)
        else:
            answer = self._end(row, version, verb == "commit", detail)
        return f"{answer}; {self._after(row)}"

    def _init(self, row: Row, detail: str) -> str:
        expected = {
            "": (-1, -1),
            "has the epoch": (row.producer_id, row.epoch),
            "has the epoch before": (row.producer_id, row.epoch - 1),
            "has an older epoch": (row.producer_id, row.epoch - 2),
            "has another producer id": (row.producer_id + 1_000_000, row.epoch),
        }[detail]
        request = InitProducerIdRequest(
            transactional_id=row.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=expected[0],
            producer_epoch=expected[1],
        )
        answer = self.ask(request, 5)
        return _with_producer(row, answer)

    def _producer(self, row: Row, detail: str) -> tuple[int, int]:
        return {
            "": (row.producer_id, row.epoch),
            "epoch before": (row.producer_id, row.epoch - 1),
            "epoch after": (row.producer_id, row.epoch + 1),
            "other producer id": (row.producer_id + 1_000_000, row.epoch),
        }[detail]

    def _add(self, row: Row, version: int, verb: str, partitions: str, detail: str) -> str:
        producer_id, epoch = self._producer(row, detail)
        topic = AddPartitionsToTxnTopic(
            name="t", partitions=[int(name.removeprefix("t-")) for name in partitions.split()]
        )
        if version < 2 and verb == "add":
            request = AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=row.transactional_id,
                v3_and_below_producer_id=producer_id,
                v3_and_below_producer_epoch=epoch,
                v3_and_below_topics=[topic],
            )
            (topic_result,) = self.ask(request, 3).results_by_topic_v3_and_below
        else:
            transaction = AddPartitionsToTxnTransaction(
                transactional_id=row.transactional_id,
                producer_id=producer_id,
                producer_epoch=epoch,
                verify_only=verb == "verify",
                topics=[topic],
            )
            (result,) = self.ask(
                AddPartitionsToTxnRequest(transactions=[transaction]), 5
            ).results_by_transaction
            (topic_result,) = result.topic_results
        codes = {
            partition_result.partition_index: partition_result.partition_error_code
            for partition_result in topic_result.results_by_partition
        }
        return " ".join(f"t-{index}={ErrorCode(code).name}" for index, code in sorted(codes.items()))

    def _end(self, row: Row, version: int, commit: bool, detail: str) -> str:
        producer_id, epoch = self._producer(row, detail)
        request = EndTxnRequest(
            transactional_id=row.transactional_id,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )
        return _with_producer(row, self.ask(request, 5 if version == 2 else 4))

    def _after(self, row: Row) -> str:
        """The state after the request, once it rests. A prepared transaction rests where its markers are kept away."""
        end = time.monotonic() + SETTLED_S_MAX
        request = DescribeTransactionsRequest(transactional_ids=[row.transactional_id])
        resting = {state.text for state in STATES} - {"PrepareCommit", "PrepareAbort"}
        if row.state in ENDING:
            resting |= {"PrepareCommit", "PrepareAbort"}
        if row.request == "timeout passed" and row.state is State.ONGOING:
            resting -= {"Ongoing"}
        waits = row.request == "expiration passed" and row.state in (
            State.EMPTY,
            State.COMPLETE_COMMIT,
            State.COMPLETE_ABORT,
        )
        while True:
            (transaction_state,) = self.ask(request, 0).transaction_states
            if transaction_state.error_code:
                return ErrorCode(transaction_state.error_code).name
            if transaction_state.transaction_state in resting and not waits:
                break
            assert time.monotonic() < end, f"{row} stays in {transaction_state.transaction_state}"
            time.sleep(0.01)
        names = " ".join(f"{t.topic}-{i}" for t in transaction_state.topics for i in sorted(t.partitions))
        producer = f"{_id(row, transaction_state.producer_id)} epoch={transaction_state.producer_epoch}"
        text = f"→ {transaction_state.transaction_state} {producer}"
        return f"{text} [{names}]" if names else text


def _id(row: Row, producer_id: int) -> str:
    return "id=own" if producer_id == row.producer_id else "id=new"


def _with_producer(row: Row, answer: Any) -> str:
    text = ErrorCode(answer.error_code).name
    if answer.producer_id >= 0:
        text += f" {_id(row, answer.producer_id)} epoch={answer.producer_epoch}"
    return text

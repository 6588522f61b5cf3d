"""A workload: the load that is put on every variant, read from TOML. The shipped ones lie in ``bench/workloads/``.

A workload has steps, run one after the other within a round on the same server. Most have one; those that vary the
load (connections, offered rates) have several. Each step is measured on its own.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
TRANSACTION_PARTITIONS_MAX = 126
"""Most partitions of a transaction: their number takes one byte in the answers, and the driver counts on that."""
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class WorkloadError(Exception):
    """The file is not a workload. The message has the path in the file and the allowed values."""


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The topic of the load, created anew in each round."""

    partitions: Positive = 4
    replication_factor: Positive = 1
    """Replication factor. A server with fewer brokers can't run the workload, and its row says so."""
    config: dict[str, str] = {}
    """Kafka's topic configuration."""


class Transaction(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The transactions of a step. Each connection of ``produce`` is a producer. It begins a transaction, writes one
    batch of ``batch_records`` to each partition, waits for the acks and commits; then it begins the next one.
    """

    partitions: Positive = 1
    """Number of partitions of a transaction."""
    version: Literal[0, 2] = 2
    """The ``transaction.version`` whose requests the producers send. 0: AddPartitionsToTxn, Produce v11, EndTxn v4.
    2 (KIP-890): Produce v12, which adds partitions by itself, and EndTxn v5.
    """


class Produce(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The writing side of a step."""

    connections: Positive = 1
    """Connections to each broker that leads a partition, as the producers of a cluster have. Against three leaders
    there are three times as many, and in a closed loop three times as many open requests.
    """
    rate_per_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Records a second over all connections, offered at intended times whatever the server does (open loop).

    0 means a closed loop: ``in_flight`` requests are open, and each answer lets the next one go. Latencies are then
    those of a saturated server, and are marked so.
    """
    record_bytes_min: Positive = 100
    record_bytes_max: Positive = 100
    """Largest record value. Sizes are drawn evenly between the two bounds, by the seed."""
    keys: Count = 0
    """Number of distinct keys; a key's records go to one partition. 0: no keys, partitions in turn."""
    batch_records: Positive = 1
    """Records in a request's one batch. With a rate, a batch is sent when its last record is due; the wait of earlier
    records counts as latency.
    """
    in_flight: Positive = 1
    """Requests open on one connection. With a rate, requests that are due beyond that wait in the driver, and the wait
    counts as latency.
    """
    acks: Literal[-1, 0, 1] = 1
    transaction: Transaction | None = None
    """If set, the latency of an ack is that of a whole transaction, from its first request to the answer that it is
    committed. Needs the driver ``transactions``.
    """


class Consume(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The reading side of a step."""

    groups: Positive = 1
    """Number of groups; each reads every record once."""
    members: Positive = 1
    """Consumers of a group; partitions are dealt among them."""
    start: Literal["latest", "earliest"] = "latest"
    max_wait_ms: Count = 500
    min_bytes: Positive = 1
    partition_max_bytes: Positive = 1_048_576


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One load, held for a while."""

    name: str
    """Name on the step's rows; unique within the workload."""
    produce: Produce | None = None
    consume: Consume | None = None
    idle_connections: Count = 0
    """Connections that are opened before the step and stay silent after one ApiVersions request."""
    page_cache: Literal["warm", "cold"] = "warm"
    """``cold`` drops the server's data from the page cache before the step."""
    warm_up_s: Seconds = 2.0
    measure_s: Annotated[float, msgspec.Meta(gt=0)] = 5.0


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole workload."""

    name: str
    description: str
    driver: Literal["wire", "librdkafka", "transactions"] = "wire"
    processes: Positive = 1
    """Driver processes that share the connections."""
    topic: Topic = Topic()
    preload_bytes: Count = 0
    """Bytes written before the first step of a round, for a catch-up to read."""
    preload_record_bytes: Positive = 1024
    steps: Annotated[tuple[Step, ...], msgspec.Meta(min_length=1)]
    sustained_p99_ms: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """Bound of the produce p99 for the sustained rate. If set, the report names the highest offered rate whose p99
    stays below it and which was reached within 2 %.
    """


def shipped() -> dict[str, str]:
    """Return the text of each shipped workload by name, sorted."""
    folder = resources.files("blumfeld_bench") / "workloads"
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name
    )
    return {file.name.removesuffix(".toml"): file.read_text() for file in files}


def load_workload(name_or_path: str) -> Workload:
    """Load a shipped workload by its name, or another one from a file.

    :raises WorkloadError: there is neither, or the file is no workload
    """
    ours = shipped()
    text = ours.get(name_or_path)
    if text is None:
        path = Path(name_or_path)
        if not path.is_file():
            raise WorkloadError(f"{name_or_path} is neither a file nor one of {', '.join(ours)}")
        text = path.read_text()
    return parse_workload(text, name_or_path)


def parse_workload(text: str, source: str) -> Workload:
    """Parse a workload from TOML.

    :raises WorkloadError: with ``source`` and the path in the file
    """
    try:
        workload = msgspec.convert(tomllib.loads(text), Workload)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise WorkloadError(f"{source}: {error}") from error
    names = [step.name for step in workload.steps]
    if len(set(names)) != len(names):
        raise WorkloadError(f"{source}: two steps have the same name; names must be unique")
    for step in workload.steps:
        if step.produce is None and step.consume is None:
            raise WorkloadError(f"{source}: step {step.name} neither produces nor consumes")
        wrong = _transaction_fault(workload, step)
        if wrong:
            raise WorkloadError(f"{source}: step {step.name}: {wrong}")
    return workload


def _transaction_fault(workload: Workload, step: Step) -> str:
    """Returns what is wrong with a step's transactions, or an empty string."""
    produce = step.produce
    transaction = produce.transaction if produce is not None else None
    if workload.driver != "transactions":
        return "" if transaction is None else 'transactions need driver = "transactions"'
    if produce is None or transaction is None:
        return 'the driver "transactions" needs produce.transaction'
    if transaction.partitions > min(workload.topic.partitions, TRANSACTION_PARTITIONS_MAX):
        most = min(workload.topic.partitions, TRANSACTION_PARTITIONS_MAX)
        return f"a transaction of {transaction.partitions} partitions; at most {most}"
    fixed = (produce.acks == -1, produce.in_flight == 1, produce.rate_per_s == 0, not produce.keys)
    if not all(fixed) or produce.record_bytes_min != produce.record_bytes_max:
        return "transactions have acks = -1, in_flight = 1, no rate, no keys, and records of one size"
    if step.consume is not None or step.idle_connections or workload.processes > 1 or workload.preload_bytes:
        return "transactions have no consumers, idle connections or preload, and one driver process"
    return ""

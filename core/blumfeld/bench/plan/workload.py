"""What is done to every variant: a workload, as a TOML file has it. The shipped ones lie in ``workloads/``.

A workload has steps, run one after the other within a round on the same server: one for most, several where the load
itself is varied (connections, offered rates). Each step is measured on its own.
"""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Annotated, Literal

import msgspec

Positive = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
Seconds = Annotated[float, msgspec.Meta(ge=0)]


class WorkloadError(Exception):
    """The file is not a workload; the message has the path in the file and what is allowed."""


class Topic(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What is written to and read from; made anew in each round."""

    partitions: Positive = 4
    replication_factor: Positive = 1
    """A server with fewer brokers can't run the workload, and its row says so."""
    config: dict[str, str] = {}
    """Kafka's topic configuration."""


class Produce(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The writing side of a step."""

    connections: Positive = 1
    rate_per_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    """Records a second over all connections, offered at intended times whatever the server does (open loop). 0: as
    many as fit in ``in_flight``, each sent when an older one was answered (closed loop); latencies are then those of
    a saturated server, and are marked so."""
    record_bytes_min: Positive = 100
    record_bytes_max: Positive = 100
    """Sizes of record values, drawn evenly, by the seed."""
    keys: Count = 0
    """Distinct keys; a key's records go to one partition. 0: no keys, partitions in turn."""
    batch_records: Positive = 1
    """Records in a request's one batch. With a rate, a batch is sent when its last record is due: earlier records
    wait, and the wait counts as latency."""
    in_flight: Positive = 1
    """Requests open on one connection; with a rate, what is due beyond waits in the driver, and that counts."""
    acks: Literal[-1, 0, 1] = 1


class Consume(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The reading side of a step."""

    groups: Positive = 1
    """Each reads everything once."""
    members: Positive = 1
    """Consumers of a group; partitions are dealt among them."""
    start: Literal["latest", "earliest"] = "latest"
    max_wait_ms: Count = 500
    min_bytes: Positive = 1
    partition_max_bytes: Positive = 1_048_576


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One load, held for a while."""

    name: str
    """Shown on its row: unique within the workload."""
    produce: Produce | None = None
    consume: Consume | None = None
    idle_connections: Count = 0
    """Opened before, kept open, silent but for one ApiVersions."""
    page_cache: Literal["warm", "cold"] = "warm"
    """``cold``: the server's data is dropped from the page cache before the step."""
    warm_up_s: Seconds = 2.0
    measure_s: Annotated[float, msgspec.Meta(gt=0)] = 5.0


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A whole workload."""

    name: str
    description: str
    driver: Literal["wire", "librdkafka"] = "wire"
    processes: Positive = 1
    """Driver processes that share the connections."""
    topic: Topic = Topic()
    preload_bytes: Count = 0
    """Written before the first step of a round: what a catch-up reads."""
    preload_record_bytes: Positive = 1024
    steps: Annotated[tuple[Step, ...], msgspec.Meta(min_length=1)]
    sustained_p99_ms: Annotated[float, msgspec.Meta(gt=0)] | None = None
    """If set: the highest offered rate among the steps whose produce p99 stays below, and whose rate is reached within
    2 %, is reported as the rate sustained."""


def shipped() -> dict[str, str]:
    """Name → text of the workloads that come with this build, sorted."""
    folder = resources.files("blumfeld.bench") / "workloads"
    files = sorted(
        (file for file in folder.iterdir() if file.name.endswith(".toml")), key=lambda file: file.name
    )
    return {file.name.removesuffix(".toml"): file.read_text() for file in files}


def load_workload(name_or_path: str) -> Workload:
    """A shipped workload by name, or one from a file.

    :raises WorkloadError: neither, or not a workload
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
    """A workload from TOML.

    :raises WorkloadError: with ``source`` and the path in the file
    """
    try:
        workload = msgspec.convert(tomllib.loads(text), Workload)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise WorkloadError(f"{source}: {error}") from error
    names = [step.name for step in workload.steps]
    if len(set(names)) != len(names):
        raise WorkloadError(f"{source}: two steps have one name")
    for step in workload.steps:
        if step.produce is None and step.consume is None:
            raise WorkloadError(f"{source}: step {step.name} neither produces nor consumes")
    return workload

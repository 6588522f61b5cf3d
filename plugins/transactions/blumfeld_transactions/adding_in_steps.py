"""AddPartitionsToTxn of a client with many partitions, in steps, so that others get their turns between (ADR 0045).

Such a request (v0-3) adds all of its partitions or none. So it is walked twice: to find those that can't be added, and
to answer each element. Between the two the rest is submitted as one command.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from blumfeld.spi.completion import Steps
from blumfeld.spi.context import RequestContext
from blumfeld.spi.steps import STEP_ELEMENTS
from blumfeld.spi.transactions import TransactionSurroundings
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
)
from blumfeld_transactions.commands import AddPartitions
from blumfeld_transactions.transaction import Partition

CodesOf = Callable[[str, list[int]], list[ErrorCode]]


def add_in_steps(
    around: TransactionSurroundings,
    request: AddPartitionsToTxnRequest,
    context: RequestContext,
    code_for: Callable[[BaseException | None], ErrorCode],
) -> Steps[AddPartitionsToTxnResponse]:
    """The steps to the answer to a client's request, whose principal may use its transactional id.

    :param code_for: returns the code by which the client's version knows an error of the shard
    """
    topics, known = request.v3_and_below_topics, around.metadata.image.topics

    def refusals(topic: str, some: list[int]) -> list[ErrorCode]:
        if not context.authorize("Write", "Topic", topic):
            return [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * len(some)
        found = known.get(topic)
        there = {} if found is None else found.partitions
        return [ErrorCode.NONE if one in there else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for one in some]

    def refusals_of_all(topic: str, some: list[int]) -> list[ErrorCode]:
        return [code or ErrorCode.OPERATION_NOT_ATTEMPTED for code in refusals(topic, some)]

    partitions: set[Partition] = set()
    is_refused = False
    for topic, some in _pieces(topics):
        is_refused = is_refused or any(refusals(topic.name, some))
        if not is_refused:  # all of them are known, so there are no more than the cluster has
            partitions.update((topic.name, index) for index in some)
        yield None
    if is_refused:
        return (yield from answer_in_steps(topics, refusals_of_all))
    command = AddPartitions(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        epoch=request.v3_and_below_producer_epoch,
        partitions=frozenset(partitions),
    )
    submitted = around.coordinator.submit(request.v3_and_below_transactional_id, command, context)
    if not submitted.done:
        yield submitted
    code = code_for(submitted.error)
    return (yield from answer_in_steps(topics, lambda topic, some: [code] * len(some)))


def answer_in_steps(
    topics: list[AddPartitionsToTxnTopic], codes_of: CodesOf
) -> Steps[AddPartitionsToTxnResponse]:
    """The steps to an answer for each element of a client's request.

    :param codes_of: returns the codes of some partitions of a topic
    """
    results: list[AddPartitionsToTxnTopicResult] = []
    last: AddPartitionsToTxnTopic | None = None
    for topic, some in _pieces(topics):
        if topic is not last:
            results.append(AddPartitionsToTxnTopicResult(name=topic.name, results_by_partition=[]))
            last = topic
        results[-1].results_by_partition += [
            AddPartitionsToTxnPartitionResult(partition_index=index, partition_error_code=code)
            for index, code in zip(some, codes_of(topic.name, some), strict=True)
        ]
        yield None
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results)


def _pieces(topics: list[AddPartitionsToTxnTopic]) -> Iterator[tuple[AddPartitionsToTxnTopic, list[int]]]:
    """Yield each topic with some of its indexes, and a topic without any once."""
    for topic in topics:
        for start in range(0, len(topic.partitions) or 1, STEP_ELEMENTS):
            yield topic, topic.partitions[start : start + STEP_ELEMENTS]

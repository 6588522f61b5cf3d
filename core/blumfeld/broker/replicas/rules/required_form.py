"""A batch as its topic requires it: where records are checked or batches get the broker's time."""

from __future__ import annotations

from blumfeld.broker.replicas.rules.append_rules import AppendRules
from blumfeld.config.values import TopicConfig
from blumfeld.wire.batches.record_batch import RecordBatch


def as_required(
    batch: RecordBatch, rules: AppendRules, config: TopicConfig, now_ms: int, looked: RecordBatch | None
) -> RecordBatch:
    """Returns the batch as the topic requires it.

    :param looked: that batch, if a worker thread has checked the records already
    :raises TooMuchAtOnce: a worker thread must check them
    :raises BrokerError: a record may not be placed
    """
    if looked is not None:
        batch = looked
    elif rules.looks_inside:
        from blumfeld.broker.replicas.rules.record_rules import conformed

        batch = conformed(batch, config)
    if rules.log_append_time:
        batch.set_log_append_time(now_ms)
    return batch

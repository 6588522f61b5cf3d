"""Gauges of topics and replicas, as a Kafka operator looks for them. Nothing is counted on the path of a request.

A scrape walks the hosted partitions once for each gauge. At most :data:`TOPICS_MAX` topics have a sample of their own,
so that a cluster with many topics doesn't flood what collects the samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from blumfeld.broker.ports import Hosted
from blumfeld.broker.replicas.partition import Partition
from blumfeld.spi.hooks import Metric

TOPICS_MAX = 100
"""Topics with a sample of their own: the first by name. The others are summed as :data:`OTHERS`."""
OTHERS = "(others)"
"""No topic can have this name: brackets are not legal in one."""


def topic_gauges(hosted: Hosted) -> list[Metric]:
    """The gauges. They read ``hosted`` when somebody scrapes."""
    return [
        Metric(
            "blumfeld_topic_log_end_offset",
            "Sum of the log end offsets of the partitions led here; its rate is the records that come in",
            "gauge",
            lambda: _by_topic(hosted, lambda one: one.log.written_end_offset if one.leader else None),
            ("topic",),
        ),
        Metric(
            "blumfeld_topic_log_bytes",
            "Bytes of record batches in the logs hosted here (Kafka's Log Size)",
            "gauge",
            lambda: _by_topic(hosted, lambda one: one.log.size_bytes() if one.closed is None else None),
            ("topic",),
        ),
        Metric(
            "blumfeld_led_partitions",
            "Partitions that this node leads (Kafka's LeaderCount)",
            "gauge",
            lambda: sum(one.leader is not None for one in hosted),
        ),
        Metric(
            "blumfeld_under_replicated_partitions",
            "Partitions led here with fewer replicas in sync than replicas (Kafka's UnderReplicatedPartitions)",
            "gauge",
            lambda: sum(map(_is_under_replicated, hosted)),
        ),
    ]


def _is_under_replicated(one: Partition) -> bool:
    image = one.image
    return one.leader is not None and image is not None and len(image.isr) < len(image.replicas)


def _by_topic(hosted: Hosted, value_of: Callable[[Partition], int | None]) -> Mapping[tuple[str, ...], float]:
    found: dict[str, float] = {}
    for one in hosted:
        value = value_of(one)
        if value is not None:
            topic = one.partition.topic
            found[topic] = found.get(topic, 0) + value
    names = sorted(found)
    samples: dict[tuple[str, ...], float] = {(name,): found[name] for name in names[:TOPICS_MAX]}
    if len(names) > TOPICS_MAX:
        samples[(OTHERS,)] = sum(found[name] for name in names[TOPICS_MAX:])
    return samples

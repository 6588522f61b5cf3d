"""The quota of throttled replication (KIP-73): a rate over the last seconds, as Kafka's ``ReplicationQuotaManager`` and
``SimpleRate`` measure it. Pure.

A node has two: one for what its leaders send, one for what its followers fetch. Both count the bytes of throttled
replicas only. A quota stops nothing by itself: it is asked before a transfer and told the bytes afterwards, so one
transfer may exceed it, and those behind it wait.
"""

from __future__ import annotations

from collections import deque

UNLIMITED = 2**63 - 1
"""Bytes a second of a quota that was not set: Kafka's default."""


class ReplicationQuota:
    """Bytes a second, over ``samples`` samples of ``sample_ms`` each.

    The rate is the sum of the samples over the time since the oldest one began, one sample's time at least: what came
    in the first milliseconds is no high rate.
    """

    __slots__ = ("_sample_ms", "_samples", "_span_ms", "_total_bytes", "bytes_per_s_max", "counted_bytes")

    def __init__(self, samples: int, sample_ms: float, bytes_per_s_max: int = UNLIMITED) -> None:
        self.bytes_per_s_max = bytes_per_s_max
        self.counted_bytes = 0
        """All bytes that were counted since the start, for metrics."""
        self._sample_ms = sample_ms
        self._span_ms = samples * sample_ms
        self._samples: deque[tuple[float, int]] = deque()
        """(start, bytes) of each sample, oldest first."""
        self._total_bytes = 0

    def record(self, size_bytes: int, now_ms: float) -> None:
        """Count bytes that were sent or fetched now."""
        if size_bytes <= 0:
            return
        self._drop(now_ms)
        samples = self._samples
        self.counted_bytes += size_bytes
        self._total_bytes += size_bytes
        if samples and now_ms - samples[-1][0] < self._sample_ms:
            start_ms, before = samples[-1]
            samples[-1] = (start_ms, before + size_bytes)
        else:
            samples.append((now_ms, size_bytes))

    def is_exceeded(self, now_ms: float) -> bool:
        """Whether the rate is above the quota, so that throttled replicas wait."""
        self._drop(now_ms)
        return bool(self._samples) and now_ms < self._within(self._samples[0][0], self._total_bytes)

    def ends_ms(self, now_ms: float) -> float:
        """Returns when the rate is within the quota again if nothing more is counted; ``now_ms`` if it is already."""
        self._drop(now_ms)
        total = self._total_bytes
        at_ms = now_ms
        for start_ms, size_bytes in self._samples:
            within_ms = self._within(start_ms, total)
            gone_ms = start_ms + self._span_ms
            if at_ms >= within_ms or within_ms <= gone_ms:
                return max(at_ms, within_ms)
            at_ms = max(at_ms, gone_ms)  # the sample counts no more
            total -= size_bytes
        return at_ms

    def _within(self, oldest_ms: float, total_bytes: int) -> float:
        """Returns the time from which on these bytes are within the quota, while the oldest sample counts."""
        if total_bytes * 1000 <= self.bytes_per_s_max * self._sample_ms:
            return oldest_ms
        if self.bytes_per_s_max <= 0:
            return float("inf")
        return oldest_ms + total_bytes * 1000 / self.bytes_per_s_max

    def _drop(self, now_ms: float) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= self._span_ms:
            self._total_bytes -= samples.popleft()[1]

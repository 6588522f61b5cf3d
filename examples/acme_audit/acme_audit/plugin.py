"""The plug-in: what it observes, the rare events that it is told of, and its counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import msgspec

from acme_audit.audit import Audit
from blumfeld.spi.cluster import PartitionImage, TopicImage
from blumfeld.spi.hooks import Composition, Metric, hookimpl
from blumfeld.spi.observer import Observer
from blumfeld.spi.storage import TopicPartition


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[plugins.options.audit]``."""

    path: Annotated[str, msgspec.Meta(min_length=1)] = "audit.jsonl"
    apis: tuple[int, ...] | None = None
    lines_waiting_max: Annotated[int, msgspec.Meta(ge=1)] = 100_000


class Plugin:
    """Named ``audit`` in a manifest."""

    options_class = Options
    roles = ("observers",)
    requires_spi = "1.0"

    def __init__(self) -> None:
        self._audit: Audit | None = None

    @hookimpl
    def blumfeld_make_observer(self, composition: Composition) -> Observer:
        """One file for each node."""
        options: Options = composition.options
        path = f"{composition.data_dir}/{options.path}" if options.path[0] != "/" else options.path
        self._audit = Audit(composition.runtime, path, options.apis, options.lines_waiting_max)
        return self._audit

    @hookimpl
    def blumfeld_metrics(self) -> Sequence[Metric]:
        """Read when somebody scrapes."""
        audit = self._audit
        if audit is None:
            return ()
        return (
            Metric("acme_audit_lines_total", "Lines written", "counter", lambda: audit.written),
            Metric("acme_audit_lines_lost_total", "Lines that found no room", "counter", lambda: audit.lost),
        )

    @hookimpl
    def blumfeld_node_started(self, composition: Composition) -> None:
        """From here on a gap in the file is not a stop."""
        self._event("node started", str(composition.node_id))

    @hookimpl
    def blumfeld_topic_created(self, topic: TopicImage) -> None:
        """A rare event: a line too."""
        self._event("topic created", topic.name)

    @hookimpl
    def blumfeld_topic_deleted(self, topic: TopicImage) -> None:
        """As above."""
        self._event("topic deleted", topic.name)

    @hookimpl
    def blumfeld_leader_changed(self, partition: TopicPartition, image: PartitionImage) -> None:
        """With the leader, -1 for none, and its epoch."""
        name = f"{partition.topic}-{partition.partition}"
        self._event("leader changed", f"{name} to {image.leader} in epoch {image.leader_epoch}")

    @hookimpl
    def blumfeld_node_stopping(self, composition: Composition) -> None:
        """The last event of a node that was not killed. Requests that are still open are answered after it."""
        self._event("node stopping", str(composition.node_id))

    def _event(self, what: str, name: str) -> None:
        if self._audit is not None:
            self._audit.event(what, name)

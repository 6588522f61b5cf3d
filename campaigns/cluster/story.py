"""A cluster under load that an operator changes one node at a time, and the campaign that runs such a story."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Generic, TypeVar

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from rich.markup import escape

from blumfeld.testing.process import NodeError, NodeProcess, start_together
from blumfeld_kit.cluster import end_together
from campaigns.clients.access import Access
from campaigns.clients.load.groups import Groups
from campaigns.clients.load.load import TOPIC, Load, NoLoadError
from campaigns.clients.load.producers import LIBRDKAFKA, Librdkafka, Make
from campaigns.cluster.phases import Phases, Report, tell
from campaigns.terminal import console_of, folder_of, refused
from campaigns.waits import await_true

PARTITIONS = 6
OWNED_S = 60.0
WHOLE_S = 90.0
ASK_S = 10.0
BEFORE_S = 5.0
"""Seconds of load before the first step."""
Node_ = TypeVar("Node_", bound=NodeProcess)
Step = tuple[str, Callable[[], None]]


class Story(Generic[Node_]):
    """The nodes of one run, with a replica of everything on each, and their clients. The load notes what is wrong.

    :param access: how clients and administrators reach the nodes at first
    """

    def __init__(
        self, nodes: Sequence[Node_], access: Access, rate_per_s: float, make_producer: Make = Librdkafka
    ) -> None:
        self.nodes = nodes
        self.admin_access = access
        self.load = Load(access.bootstrap, PARTITIONS, rate_per_s, make_producer=make_producer)
        self.groups = Groups(access.bootstrap, TOPIC, PARTITIONS)

    def steps(self) -> Sequence[Step]:
        """Return the names of the steps, and what each does."""
        raise NotImplementedError

    def run(self, say: Callable[[str], None]) -> Report:
        """Start, take all steps, and make the account.

        :raises NoLoadError: the nodes take no records at first
        """
        phases = Phases(self.load, say)
        is_whole = False
        try:
            self.start()
            time.sleep(BEFORE_S)
            for name, work in self.steps():
                phases.run(name, work)
            is_whole = True
        except (NodeError, KafkaException, OSError) as error:
            self.load.wrong.append(repr(error))
        finally:
            phases.finish(self.groups, is_whole=is_whole)
        return phases.report()

    def start(self) -> None:
        """Start the nodes, and put them under load."""
        start_together(self.nodes, ())
        self.load.make_topic(len(self.nodes), {"min.insync.replicas": "2"})
        self.await_whole("the start")
        self.load.start()
        self.groups.start()
        self.await_owned("the start")

    def restart(self, node: Node_, words: str) -> None:
        """Stop a node in good order, start it, and wait until the cluster is whole."""
        status = node.stop()
        if status:
            self.load.wrong.append(f"{node.name} ended with status {status}")
        node.start()
        self.await_whole(f"{node.name} {words}")

    def admin(self) -> Any:
        """Return an admin client. Its answers come only while it lives."""
        given = self.admin_access
        return AdminClient({**LIBRDKAFKA, **given.librdkafka(), "bootstrap.servers": given.bootstrap})

    def await_whole(self, words: str) -> None:
        """Wait until every broker is there, every replica in sync, and each partition takes records."""
        admin = self.admin()
        seen: Any = None

        def is_whole() -> bool:
            nonlocal seen
            try:
                seen = admin.list_topics(timeout=ASK_S)
            except KafkaException as error:
                seen = error
                return False
            count = len(self.nodes)
            parts = [part for topic in seen.topics.values() for part in topic.partitions.values()]
            return len(seen.brokers) == count and all(len(part.isrs) == count for part in parts)

        if not await_true(is_whole, WHOLE_S, 0.2):
            self.load.wrong.append(f"{words}: not whole in {WHOLE_S:.0f} s: {seen}")
        if any(self.load.ack_times):
            self.await_acks(words)

    def await_acks(self, words: str) -> None:
        """Wait until each partition takes records."""
        if not self.load.await_acks(time.monotonic(), WHOLE_S):
            self.load.wrong.append(f"{words}: a partition takes no records")

    def await_owned(self, words: str) -> None:
        """Wait until each partition has an owner in each group."""
        if max(self.groups.await_owned(OWNED_S).values()) >= OWNED_S:
            self.load.wrong.append(f"{words}: partitions without an owner: {self.groups.describe()}")


def run_campaign(name: str, given: argparse.Namespace, make_story: Callable[[Path], Story[Any]]) -> int:
    """Run a story, and tell its end. Return 0 if every promise was kept, 1 if not, 2 if there was no load."""
    console = console_of()
    with ExitStack() as stack:
        story = make_story(folder_of(name, given, stack))
        stack.callback(end_together, story.nodes)
        try:
            report = story.run(lambda line: console.print(escape(line)))
        except NoLoadError as error:
            return refused(name, error)
    return tell(console, report, given.out)

"""This node, as its leaders and fetchers see it."""

from __future__ import annotations

from typing import Any

from blumfeld.metadata.partitions.directories import has_online_directory
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition
from blumfeld.spi.repeated_events import RepeatedEvents
from blumfeld.wire.errors import BrokerError
from blumfeld.wire.schema import Message

SUBMIT_TIMEOUT_MS = 5_000
"""Time after which a change of ISRs without an answer is asked for again. A leader's high watermark may wait for that
answer, and to ask twice does no harm. Kafka waits ``controller.socket.timeout.ms``, 30 s."""


class Node:
    """The clock, the brokers of the image, the controller, and the log of what is refused."""

    def __init__(self, composition: Composition) -> None:
        self.runtime = composition.runtime
        self.node_id = composition.node_id
        self.lag_max_ms = composition.config.int("replica.lag.time.max.ms")
        self.events = composition.log("replication")
        self.repeated = RepeatedEvents(composition.runtime)
        """Events that are logged once in ten seconds for each key."""
        self._composition = composition

    def eligible(self, replica_id: int, directory_id: bytes) -> bool:
        """Whether a broker may be in an ISR now with a replica in this directory: registered, unfenced, not shutting
        down, and the directory isn't offline (KIP-858)."""
        broker = self._composition.metadata.image.brokers.get(replica_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return has_online_directory(broker, directory_id)

    def alive(self, replica_id: int) -> bool:
        """Whether a broker is registered and not fenced."""
        broker = self._composition.metadata.image.brokers.get(replica_id)
        return broker is not None and not broker.fenced

    def epoch_of(self, replica_id: int) -> int:
        """Returns the broker epoch of a broker that is registered and not fenced; -1 if it isn't."""
        broker = self._composition.metadata.image.brokers.get(replica_id)
        return -1 if broker is None or broker.fenced else broker.epoch

    def rack_of(self, replica_id: int) -> str | None:
        """Returns the rack of a broker, if it is known."""
        broker = self._composition.metadata.image.brokers.get(replica_id)
        return None if broker is None else broker.rack

    def own_epoch(self) -> int:
        """Returns this node's broker epoch, as registered; -1 before that. Not the image's: that may be an earlier
        process's (KIP-903)."""
        return self._composition.membership.broker_epoch

    def submit(self, command: Message) -> Completion[Message]:
        """Ask the controller."""
        return self._composition.metadata.submit(command, SUBMIT_TIMEOUT_MS, wait_image=False)

    def say_refused(self, event: str, error: BaseException, **values: Any) -> None:
        """Log a refusal of the controller, once for each error in ten seconds."""
        text = str(error) or type(error).__name__
        key = (event, error.code if isinstance(error, BrokerError) else type(error))
        self.repeated.say(self.events.warning, event, key, error=text, **values)

    def say_defect(self, event: str, partition: str, defect: Exception) -> None:
        """Log a defect of one partition, once for each kind in ten seconds."""
        key = (event, partition, type(defect))
        self.repeated.say(self.events.error, event, key, partition=partition, exc_info=defect)

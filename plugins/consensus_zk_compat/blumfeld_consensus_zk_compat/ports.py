"""What the controller asks of the pushes, and what they tell it: tests of the controller have other pushes. ADR 0047
draws the rooms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld_consensus_zk_compat.change import Change


class Pushes(Protocol):
    """What the controller sends to brokers, from :meth:`begin` to :meth:`stop`. Made anew for each controller epoch.

    Each broker has its own channel and queue: requests reach it in order, one at a time, and what comes later is joined
    to what waits. A request is sent again until it is answered, the broker is gone, or the controller has ended.
    """

    def begin(self, controller: ControllerId, image: MetadataImage, changes: Sequence[Change] = ()) -> None:
        """Send everything to every broker: LeaderAndIsr of the full set, and UpdateMetadata.

        :param image: the controller's, live: what is sent is read from it when it is sent, or from a change
        :param changes: those of the take-over, which the image has. They are sent first: nobody serves a partition
            whose leader died before its replicas hear of the next one
        """
        ...

    def committed(self, change: Change) -> None:
        """The tree has this change. Send LeaderAndIsr to the replicas of each partition, UpdateMetadata to all brokers,
        StopReplica to the replicas that a reassignment removed."""
        ...

    def broker_came(self, broker_id: int) -> None:
        """A broker's process registered: send it everything."""
        ...

    def broker_went(self, broker_id: int) -> None:
        """Its registration is gone: close its channel, forget what waits."""
        ...

    def resend(self, broker_id: int) -> None:
        """Send everything once more to a broker that is there. It may have lost a log directory: its answer to
        LeaderAndIsr tells which replicas are offline."""
        ...

    def stop_replicas(
        self, broker_id: int, partitions: Sequence[TopicPartition], *, delete: bool
    ) -> Completion[dict[TopicPartition, ErrorCode]]:
        """Send StopReplica to one broker, and complete with its answer. Fails with ``OSError`` if the broker is gone
        first."""
        ...

    def pushed(self, broker_id: int) -> Completion[None]:
        """Complete when the broker has taken all that was committed before the call, or is gone."""
        ...

    def stop(self) -> None:
        """Send no more. What waits fails with ``OSError``."""
        ...


ReplicaFailed = Callable[[int, Sequence[TopicPartition]], None]
"""(broker id, its partitions that are offline): the broker answered LeaderAndIsr with KAFKA_STORAGE_ERROR for them."""
StaleController = Callable[[], None]
"""A broker knows a later controller: this one must look at ``/controller_epoch``."""

"""All channels of one controller: implements ``ports.Pushes``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import Controller as ControllerId
from blumfeld.spi.hooks import EventLog
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.schema import Message
from blumfeld_consensus_zk_compat.change import Change
from blumfeld_consensus_zk_compat.ports import ReplicaFailed, StaleController
from blumfeld_consensus_zk_compat.pushes.channel import BrokerChannel
from blumfeld_consensus_zk_compat.pushes.plan import LiveBrokers, Sender, TreeTopics

SendTo = Callable[[int, Message, float], Completion[Message]]
"""(broker id, request, timeout in ms) → its answer; fails as ``PeerChannel.send``."""


def _every(_image: MetadataImage, _broker_id: int) -> bool:
    return True


class ControllerPushes:
    """Made for one controller epoch → begun → stopped.

    :param send: reaches a broker on the listener that brokers use among themselves
    :param listener: its name; "" for the first one of each broker
    :param tells: whether a broker is told anything; in a migration some brokers read the log of the quorum
    """

    def __init__(
        self,
        *,
        runtime: Runtime,
        events: EventLog,
        listener: str,
        send: SendTo,
        replica_failed: ReplicaFailed,
        stale_controller: StaleController,
        tells: Callable[[MetadataImage, int], bool] = _every,
    ) -> None:
        self._runtime = runtime
        self._tells = tells
        self._events = events
        self._listener = listener
        self._send = send
        self._replica_failed = replica_failed
        self._stale_controller = stale_controller
        self._controller = ControllerId(-1, -1)
        self._image = MetadataImage()
        self._topics = TreeTopics({})
        self._channels: dict[int, BrokerChannel] = {}

    @property
    def image(self) -> MetadataImage:
        """The controller's image, for the addresses of brokers."""
        return self._image

    def begin(self, controller: ControllerId, image: MetadataImage, changes: Sequence[Change] = ()) -> None:
        """As ``Pushes.begin``. Brokers that lead most of what has changed come first."""
        self._controller, self._image = controller, image
        self._topics = TreeTopics(image.topics)
        led = Counter(step.after.leader for change in changes for step in change.partitions if step.after)
        live = [at for at, broker in image.brokers.items() if not broker.fenced and self._tells(image, at)]
        for broker_id in sorted(live, key=lambda broker_id: -led[broker_id]):
            self._open(broker_id).begin(changes)

    def follow(self, image: MetadataImage) -> None:
        """Take brokers and their addresses from this image from now on. Topics come with changes only."""
        self._image = image

    def committed(self, change: Change) -> None:
        """As ``Pushes.committed``."""
        self._topics.apply(change)
        for channel in self._channels.values():
            channel.committed(change)

    def broker_came(self, broker_id: int) -> None:
        """As ``Pushes.broker_came``. The other brokers hear of it, too."""
        self._close(broker_id)
        for channel in self._channels.values():
            channel.brokers_changed()
        self._open(broker_id).send_all()

    def broker_went(self, broker_id: int) -> None:
        """As ``Pushes.broker_went``. The other brokers hear of it, too."""
        self._close(broker_id)
        for channel in self._channels.values():
            channel.brokers_changed()

    def resend(self, broker_id: int) -> None:
        """As ``Pushes.resend``."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.send_all()

    def stop_replicas(
        self, broker_id: int, partitions: Sequence[TopicPartition], *, delete: bool
    ) -> Completion[dict[TopicPartition, ErrorCode]]:
        """As ``Pushes.stop_replicas``."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            return channel.stop_replicas(partitions, delete=delete)
        gone: Completion[dict[TopicPartition, ErrorCode]] = Completion()
        gone.fail(OSError(f"broker {broker_id} is gone"))
        return gone

    def pushed(self, broker_id: int) -> Completion[None]:
        """As ``Pushes.pushed``."""
        channel = self._channels.get(broker_id)
        return Completion.of(None) if channel is None else channel.pushed()

    def stop(self) -> None:
        """As ``Pushes.stop``."""
        for broker_id in list(self._channels):
            self._close(broker_id)

    def _close(self, broker_id: int) -> None:
        channel = self._channels.pop(broker_id, None)
        if channel is not None:
            channel.close()

    def _open(self, broker_id: int) -> BrokerChannel:
        channel = self._channels[broker_id] = BrokerChannel(
            broker_id=broker_id,
            sender=Sender(self._controller, self._image.brokers[broker_id].epoch),
            topics=self._topics,
            live=lambda: LiveBrokers(self._image, self._listener),
            send=lambda request, timeout_ms: self._send(broker_id, request, timeout_ms),
            runtime=self._runtime,
            events=self._events,
            replica_failed=self._replica_failed,
            stale_controller=self._stale_controller,
        )
        return channel

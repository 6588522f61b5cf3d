"""A node that is nothing but storage and consensus, in virtual time, on a disk that may fail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.image.cluster_image import ELR_FEATURE, MetadataImage
from blumfeld.metadata.image.records import image_records
from blumfeld.spi.cluster import ClusterImage, ImageDelta
from blumfeld.spi.completion import Completion
from blumfeld.spi.hooks import Composition, Feature
from blumfeld.spi.image_sections import ControllerCommand, ImageSection
from blumfeld.spi.transport import Listener
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from blumfeld.wire.messages.broker_registration import Feature as FeatureRange
from blumfeld.wire.messages.broker_registration import Listener as BrokerListener
from blumfeld.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from blumfeld.wire.messages.metadata_records import RegisterControllerRecord
from blumfeld.wire.schema import Message
from blumfeld_consensus_kraft.kraft_metadata import KraftMetadata
from blumfeld_kit.fakes.files import FakeDisk
from blumfeld_kit.fakes.runtime import FakeRuntime
from blumfeld_storage_local.storage import LocalStorage
from tests.coordinator.fakes import Events

CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
DATA_DIR = "/data"
LOG_DIR = f"{DATA_DIR}/__cluster_metadata-0"
M = TypeVar("M", bound=Message)


class Parts:
    """As much of a composition as consensus reads."""

    def __init__(
        self,
        runtime: FakeRuntime,
        config: Mapping[str, Any],
        node_id: int,
        data_dir: str,
        features: tuple[Feature, ...],
        image_sections: tuple[ImageSection, ...] = (),
        controller_commands: tuple[ControllerCommand, ...] = (),
    ) -> None:
        self.runtime = runtime
        self.config = BrokerConfig(config)
        self.node_id = node_id
        self.roles = ("broker", "controller")
        self.data_dir = data_dir
        self.cluster_id = CLUSTER_ID
        self.incarnation_id = runtime.new_uuid()
        self.features = features
        self.image_sections = image_sections
        self.controller_commands = controller_commands
        self.migration = None
        self.listeners = (
            Listener(name="PLAINTEXT", kind="broker", host="127.0.0.1", port=9092),
            Listener(name="CONTROLLER", kind="controller", host="127.0.0.1", port=9093),
        )
        self.events = Events()
        self.local_storage = LocalStorage(runtime, data_dir, self.events)

    def log(self, name: str) -> Events:
        return self.events


class KraftNode:
    """One incarnation of a node. Several, one after the other, may have one disk."""

    def __init__(
        self,
        disk: FakeDisk | None = None,
        *,
        config: Mapping[str, Any] | None = None,
        node_id: int = 1,
        runtime: FakeRuntime | None = None,
        data_dir: str = DATA_DIR,
        features: tuple[Feature, ...] = (),
        image_sections: tuple[ImageSection, ...] = (),
        controller_commands: tuple[ControllerCommand, ...] = (),
        seed: int = 0,
        force_empty_metadata: bool = False,
    ) -> None:
        self.runtime = runtime if runtime is not None else FakeRuntime(seed, disk=disk)
        self._seed = seed
        self.parts = Parts(
            self.runtime, config or {}, node_id, data_dir, features, image_sections, controller_commands
        )
        self.metadata = KraftMetadata(
            cast("Composition", self.parts),
            force_empty_metadata=force_empty_metadata,
            notice_dead=False,  # this node has no network
        )
        self.deltas: list[ImageDelta] = []
        self.epoch = -1

    @property
    def image(self) -> ClusterImage:
        return self.metadata.image

    def start(self) -> KraftNode:
        self.metadata.subscribe(self._heard)

        async def start() -> None:
            await self.parts.local_storage.start(CLUSTER_ID, self.parts.node_id)
            await self.metadata.start()

        self.runtime.run(start())
        return self

    def again(self, **options: Any) -> KraftNode:
        """The next incarnation, on the same disk."""
        self._seed += 1
        return KraftNode(self.runtime.disk, seed=self._seed, **options).start()

    @property
    def controller_epoch(self) -> int | None:
        """The epoch of the controller that this node knows."""
        return None if self.metadata.controller is None else self.metadata.controller.epoch

    def content(self) -> list[Message]:
        """All that the image says, but for the controller's word of itself, which each start renews."""
        assert isinstance(self.image, MetadataImage)
        return [r for r in image_records(self.image) if not isinstance(r, RegisterControllerRecord)]

    def snapshots(self) -> list[str]:
        """The names of finished snapshots, the oldest first."""
        return [name for name in self.runtime.files.list_dir(LOG_DIR) if name.endswith(".checkpoint")]

    def _heard(self, image: ClusterImage, delta: ImageDelta) -> None:
        assert image is self.metadata.image
        self.deltas.append(delta)

    def stop(self) -> None:

        async def stop() -> None:
            await self.metadata.stop()
            await self.parts.local_storage.stop(self.epoch)

        self.runtime.run(stop())

    def submit(self, request: Message, timeout_ms: float = 5_000) -> Completion[Message]:
        return self.metadata.submit(request, timeout_ms)

    def ask(self, request: Message, response_class: type[M]) -> M:

        async def ask() -> Message:
            return await self.submit(request)

        response = self.runtime.run(ask())
        assert isinstance(response, response_class)
        return response

    def join(self, incarnation: bytes | None = None) -> int:
        """Register this node's broker and unfence it; its epoch."""
        registration = BrokerRegistrationRequest(
            broker_id=self.parts.node_id,
            cluster_id=CLUSTER_ID,
            incarnation_id=incarnation or self.parts.incarnation_id,
            listeners=[BrokerListener(name="PLAINTEXT", host="127.0.0.1", port=9092)],
            features=[
                FeatureRange(name="metadata.version", min_supported_version=7, max_supported_version=30),
                FeatureRange(name=ELR_FEATURE, min_supported_version=0, max_supported_version=1),
            ],
            rack=None,
            log_dirs=[info.directory_id for info in self.parts.local_storage.log_dirs()],
        )
        registered = self.ask(registration, BrokerRegistrationResponse)
        assert registered.error_code == 0
        self.epoch = registered.broker_epoch
        beat = BrokerHeartbeatRequest(
            broker_id=self.parts.node_id, broker_epoch=self.epoch, current_metadata_offset=self.epoch
        )
        assert not self.ask(beat, BrokerHeartbeatResponse).is_fenced
        return self.epoch

    def create(self, *names: str, partitions: int = 1) -> list[int]:
        """Create topics; their errors."""
        request = creation(*names, partitions=partitions)
        return [t.error_code for t in self.ask(request, CreateTopicsResponse).topics]


def creation(*names: str, partitions: int = 1) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=n, num_partitions=partitions, replication_factor=1) for n in names]
    return CreateTopicsRequest(topics=topics)

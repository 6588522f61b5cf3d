"""The cluster as this node knows it, and the configuration that follows from it."""

from __future__ import annotations

from collections.abc import Callable

from blumfeld.broker.composition import BrokerComposition
from blumfeld.config.values import BROKER_CONFIGS, BrokerConfig, TopicConfig, usable
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, ClusterImage, TopicImage
from blumfeld.spi.consensus import ClusterMetadata


class ClusterView:
    """One node's view. :attr:`config` is a value: a change at run time puts another in its place."""

    def __init__(self, composition: BrokerComposition) -> None:
        self.node_id = composition.node_id
        self.config: BrokerConfig = composition.config
        self._composition = composition
        self._followers: list[Callable[[BrokerConfig], None]] = []

    @property
    def metadata(self) -> ClusterMetadata:
        """The node's consensus."""
        return self._composition.metadata

    @property
    def image(self) -> ClusterImage:
        """The image of the cluster's metadata now. It is replaced, never changed: ask anew in each turn."""
        return self._composition.metadata.image

    def topic_config(self, topic: str) -> TopicConfig:
        """The configuration that holds for a topic now."""
        return TopicConfig.stored(self.image.config(TOPIC_RESOURCE, topic), self.config)

    def topic_image(self, name: str, topic_id: bytes, by_id: bool) -> TopicImage | None:
        """A topic by its id, or by its name."""
        return self.image.topic_by_id(topic_id) if by_id else self.image.topics.get(name)

    def reconfigure(self) -> None:
        """Read this broker's configuration from the image again, and tell those that follow it."""
        self.config = self._composition.config.with_overrides(
            dynamic_default=usable(BROKER_CONFIGS, self.image.config(BROKER_RESOURCE, "")),
            dynamic=usable(BROKER_CONFIGS, self.image.config(BROKER_RESOURCE, str(self.node_id))),
        )
        for follower in self._followers:
            follower(self.config)

    def follow_config(self, follower: Callable[[BrokerConfig], None]) -> None:
        """Call ``follower`` with the configuration now, and each time it has changed."""
        self._followers.append(follower)
        follower(self.config)

"""Configurations as the controller uses them: values set at run time before the manifest's. Pure."""

from __future__ import annotations

from blumfeld.config.values import BROKER_CONFIGS, BrokerConfig, TopicConfig, usable
from blumfeld.metadata.decision import ControllerState
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, TopicImage


def effective_config(state: ControllerState) -> BrokerConfig:
    """Returns the broker configuration: values set at run time for all brokers, then the manifest's."""
    given = state.image.config(BROKER_RESOURCE, "")
    known = usable(BROKER_CONFIGS, given)
    return state.config.with_overrides(dynamic_default=known) if known else state.config


def topic_config(state: ControllerState, topic: TopicImage, config: BrokerConfig) -> TopicConfig:
    """Returns the topic's configuration. Keys that a later Kafka stored and this build does not know are ignored."""
    given = state.image.config(TOPIC_RESOURCE, topic.name)
    return TopicConfig.stored(given, config)

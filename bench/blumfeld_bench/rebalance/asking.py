"""Requests of the rebalance bench beside its load: coordinator, topic id, configuration."""

from __future__ import annotations

import time
from collections.abc import Sequence

from blumfeld.client.errors import error_name
from blumfeld.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from blumfeld_bench.drivers.contract import DriverError
from blumfeld_bench.drivers.wire_client import POLL_S, WireClient
from blumfeld_bench.rebalance.settings import BROKER_RESOURCE

FIND_COORDINATOR_VERSION, TOPIC_ID_VERSION, DESCRIBE_CONFIGS_VERSION = 2, 12, 2


class GroupClient(WireClient):
    """One connection; it raises DriverError for any refusal."""

    def broker_config(self, keys: Sequence[str]) -> dict[str, str | None]:
        """Return the values of these keys at the only broker; None where it has no such key.

        :raises DriverError: there are several brokers, or the broker refuses
        """
        brokers = self._metadata([]).brokers
        if len(brokers) != 1:
            raise DriverError(f"rebalances are measured on one broker; there are {len(brokers)}")
        resource = DescribeConfigsResource(
            resource_type=BROKER_RESOURCE,
            resource_name=str(brokers[0].node_id),
            configuration_keys=list(keys),
        )
        request = DescribeConfigsRequest(resources=[resource])
        result = self._ask(request, DESCRIBE_CONFIGS_VERSION, DescribeConfigsResponse).results[0]
        if result.error_code:
            raise DriverError(f"DescribeConfigs: {error_name(result.error_code)}")
        found = {config.name: config.value for config in result.configs}
        return {key: found.get(key) for key in keys}

    def topic_id(self, name: str) -> bytes:
        """Return the id of an existing topic."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        topic = self._ask(request, TOPIC_ID_VERSION, MetadataResponse).topics[0]
        if topic.error_code:
            raise DriverError(f"topic {name}: {error_name(topic.error_code)}")
        return topic.topic_id

    def await_coordinator(self, group_id: str) -> None:
        """Wait until the group has a coordinator.

        :raises DriverError: it took longer than the client's timeout
        """
        deadline = time.monotonic() + self._timeout_s
        while True:
            request = FindCoordinatorRequest(key=group_id, key_type=0)
            found = self._ask(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse)
            if not found.error_code:
                return
            if time.monotonic() > deadline:
                raise DriverError(f"group {group_id}: {error_name(found.error_code)}")
            time.sleep(POLL_S)

"""The way of one client to the brokers of a cluster: bootstrap, metadata, leaders and coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TypeVar

from blumfeld.client.errors import RefusedError
from blumfeld.client.metadata import ClusterView
from blumfeld.spi.runtime import Random
from blumfeld.spi.storage import TopicPartition
from blumfeld.wire.errors import ErrorCode, is_retriable
from blumfeld.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from blumfeld.wire.messages.metadata import MetadataResponse
from blumfeld.wire.schema import Message
from blumfeld_kit.simulation.clients.client import ClientConnection, Reach, connect
from blumfeld_kit.simulation.clients.oracle import ViolationError

R = TypeVar("R", bound=Message)

METADATA_VERSION = 12
FIND_COORDINATOR_VERSION = 3
RETRY_S = 0.2
CONNECT_S_MAX = 5.0


class Routes:
    """The connections of one client. Every error that a real client retries is retried here."""

    def __init__(
        self, name: str, network: Reach, random: Random, bootstrap: Sequence[tuple[str, int]]
    ) -> None:
        self.name = name
        self.network = network
        self.random = random
        self.brokers_forward = True
        """Whether each broker passes a command on to the controller (KIP-590)."""
        self._bootstrap = list(bootstrap)
        self._view = ClusterView()
        self._connections: dict[tuple[str, int], ClientConnection] = {}

    async def connection(self, address: tuple[str, int]) -> ClientConnection:
        """Return the connection to an address. :raises OSError: there is no way to it now"""
        connection = self._connections.get(address)
        if connection is None or not connection.is_open:
            try:
                connection = await asyncio.wait_for(connect(self.network, address, self.name), CONNECT_S_MAX)
            except TimeoutError:
                raise ConnectionError(f"no connection to {address}") from None
            self._connections[address] = connection
        return connection

    async def any_broker(self) -> ClientConnection:
        """Return a connection to some broker. :raises OSError: the one that was drawn can't be reached"""
        return await self.connection(self._bootstrap[self.random.randrange(len(self._bootstrap))])

    async def for_admin(self) -> ClientConnection:
        """Return a connection to a broker that takes commands of an operator: any one, or the controller where brokers
        don't forward them.

        :raises OSError: none is known, or it can't be reached
        """
        if self.brokers_forward:
            return await self.any_broker()
        connection = await self.any_broker()
        answer = await connection.ask(ClusterView.request([]), METADATA_VERSION, MetadataResponse)
        for broker in answer.brokers:
            if broker.node_id == answer.controller_id:
                return await self.connection((broker.host, broker.port))
        raise ConnectionError("no controller is known")

    async def refresh(self, topics: Sequence[str]) -> None:
        """Ask some broker for the leaders. :raises OSError: it can't be reached"""
        connection = await self.any_broker()
        self._view.take(await connection.ask(ClusterView.request(topics), METADATA_VERSION, MetadataResponse))

    async def leader(self, partition: TopicPartition) -> ClientConnection:
        """Return the connection to the leader as the newest metadata has it.

        :raises OSError: no leader is known, or it can't be reached
        """
        try:
            broker = self._view.leader(partition.topic, partition.partition)
        except RefusedError:
            await self.refresh([partition.topic])
            try:
                broker = self._view.leader(partition.topic, partition.partition)
            except RefusedError as error:
                raise ConnectionError(str(error)) from error
        return await self.connection((broker.host, broker.port))

    async def replica(self, partition: TopicPartition) -> ClientConnection:
        """Return the connection to any replica, as the newest metadata has them. :raises OSError: as :meth:`leader`"""
        try:
            topic = self._view.topic(partition.topic)
        except RefusedError:
            return await self.leader(partition)
        nodes = [
            node
            for candidate in topic.partitions
            if candidate.partition_index == partition.partition
            for node in candidate.replica_nodes
            if node in self._view.brokers
        ]
        if not nodes:
            return await self.leader(partition)
        broker = self._view.brokers[nodes[self.random.randrange(len(nodes))]]
        return await self.connection((broker.host, broker.port))

    def leader_epoch(self, partition: TopicPartition) -> int:
        """Return the newest leader epoch that this client has seen; -1 if it has seen none."""
        try:
            topic = self._view.topic(partition.topic)
        except RefusedError:
            return -1
        epochs = [
            candidate.leader_epoch
            for candidate in topic.partitions
            if candidate.partition_index == partition.partition
        ]
        return epochs[0] if epochs else -1

    async def lost(self, partition: TopicPartition) -> None:
        """Wait a little and look for the leader anew, after it refused a request or was lost."""
        await asyncio.sleep(RETRY_S * (0.5 + self.random.random()))
        try:
            await self.refresh([partition.topic])
        except OSError:
            await asyncio.sleep(RETRY_S)

    async def coordinator(self, key: str, kind: int = 0) -> ClientConnection:
        """Return the connection to a group's coordinator, or to that of a transactional id (``kind`` 1).

        :raises OSError: none is known, or it can't be reached
        """
        broker = await self.any_broker()
        request = FindCoordinatorRequest(key=key, key_type=kind)
        answer = await broker.ask(request, FIND_COORDINATOR_VERSION, FindCoordinatorResponse)
        if answer.error_code:
            if not is_retriable(answer.error_code):
                raise ViolationError(f"FindCoordinator of {key}: {ErrorCode(answer.error_code).name}")
            raise ConnectionError(ErrorCode(answer.error_code).name)
        return await self.connection((answer.host, answer.port))

    def close(self) -> None:
        """Close every connection."""
        for connection in self._connections.values():
            if connection.is_open:
                connection.close()

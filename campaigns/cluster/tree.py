"""Reads a cluster in the tree of its ZooKeeper: its controller, its brokers, and writes of a former controller."""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import attrs
from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.retry import KazooRetry

ASK_S = 5.0
GONE = (KazooException, KazooTimeoutError, OSError)
"""Errors of a server that is away."""


@attrs.frozen
class Written:
    """One znode: its JSON, and the transaction that wrote it last."""

    path: str
    value: Any
    mzxid: int


class Tree:
    """Reads the tree of a cluster while a ``with`` block lasts. A server that is away is waited for :data:`ASK_S`."""

    def __init__(self, connect: str) -> None:
        """:param connect: as ``zookeeper.connect``"""
        logging.getLogger("kazoo").setLevel(logging.CRITICAL)
        self._client = KazooClient(connect, connection_retry=KazooRetry(max_tries=-1, max_delay=1.0))

    def __enter__(self) -> Tree:
        self._client.start_async()
        return self

    def __exit__(self, *_: object) -> None:
        self._client.stop()
        self._client.close()

    def controller(self) -> int | None:
        """Return the broker in ``/controller``; None if there is none, or no answer."""
        try:
            return int(self._read(["/controller"])[0].value["brokerid"])
        except (*GONE, IndexError):
            return None

    def absent(self, nodes: Iterable[int]) -> list[int] | None:
        """Return the nodes that have no znode below ``/brokers/ids``; None without an answer or a controller."""
        try:
            ids = set(map(int, self._client.get_children_async("/brokers/ids").get(timeout=ASK_S)))
        except GONE:
            return None
        return None if self.controller() is None else sorted(set(nodes) - ids)

    def writes_of_former_controllers(self) -> list[str]:
        """Return a sentence for each state of a partition that a controller wrote after the next one was elected.

        :raises KazooException: or another of :data:`GONE`; there is no answer
        """
        while True:
            epoch = self._read(["/controller_epoch"])
            states = self._states()
            if epoch == self._read(["/controller_epoch"]):
                return writes_of_former_controllers(epoch[0], states) if epoch else []

    def _states(self) -> list[Written]:
        folders = [
            f"/brokers/topics/{topic}/partitions"
            for topic in self._client.get_children_async("/brokers/topics").get(timeout=ASK_S)
        ]
        asked = [(folder, self._client.get_children_async(folder)) for folder in folders]
        paths = []
        for folder, answer in asked:
            try:
                paths += [f"{folder}/{partition}/state" for partition in answer.get(timeout=ASK_S)]
            except NoNodeError:
                continue
        return self._read(paths)

    def _read(self, paths: Collection[str]) -> list[Written]:
        """Return those of the nodes that there are."""
        read = []
        for path, answer in [(path, self._client.get_async(path)) for path in paths]:
            try:
                data, stat = answer.get(timeout=ASK_S)
            except NoNodeError:
                continue
            read.append(Written(path, json.loads(data), stat.mzxid))
        return read


def writes_of_former_controllers(epoch: Written, states: Iterable[Written]) -> list[str]:
    """Return a sentence for each state that names an older controller, and was written after the election of the
    present one.

    :param epoch: ``/controller_epoch``, which an election writes
    """
    return [
        f"{state.path} was written by the controller of epoch {_epoch(state.value)} in transaction {state.mzxid:#x}, "
        f"after the election of epoch {epoch.value} in {epoch.mzxid:#x}"
        for state in states
        if state.mzxid > epoch.mzxid and _epoch(state.value) != epoch.value
    ]


def _epoch(state: Mapping[str, Any]) -> int:
    return int(state["controller_epoch"])

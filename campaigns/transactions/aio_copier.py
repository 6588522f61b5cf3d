"""aiokafka copies a topic in transactions: ``python -m campaigns.transactions.aio_copier``, its spec on stdin.

It has neither the fetch of stable offsets nor the group's generation in TxnOffsetCommit (KIP-447). So its partitions
are dealt to transactional ids, as was done before that KIP. A successor takes its predecessor's partitions after it has
its producer id, and InitProducerId waits for the end of the predecessor's transaction.

Where it begins is asked without aiokafka: it takes the answer of a broker that is the group's coordinator no longer
for "nothing is committed", because it doesn't look at the error of a whole OffsetFetch answer (versions 2 and 3).
"""

from __future__ import annotations

import asyncio
import sys
from functools import partial
from typing import Any

from campaigns.coordinators import stable_offsets
from campaigns.transactions.copier_process import FAILED_STATUS, FENCED_STATUS, HEADERS, Copier, one_line
from campaigns.waits import NoAnswerError, answer_of

START_S = 60.0


class AioCopier:
    """Consumes assigned partitions, and sends their offsets with each transaction."""

    def __init__(self, copier: Copier) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

        spec = copier.spec
        self._copier = copier
        self._spec = spec
        self._mine = [TopicPartition(spec["topic"], at) for at in spec["owned"]]
        common = {
            "bootstrap_servers": spec["bootstrap"],
            "request_timeout_ms": 5000,
            "retry_backoff_ms": 50,
            "metadata_max_age_ms": 1000,
        }
        self._producer = AIOKafkaProducer(
            **common,
            transactional_id=spec["transactionalId"],
            transaction_timeout_ms=spec["transactionTimeout"],
            linger_ms=2,
        )
        self._consumer = AIOKafkaConsumer(
            **common,
            group_id=spec["group"],
            enable_auto_commit=False,
            isolation_level="read_committed",
            auto_offset_reset="earliest",
            fetch_max_wait_ms=100,
        )

    async def run(self) -> None:
        """Copy until stdin ends."""
        await _started(self._producer)
        await _started(self._consumer)
        self._consumer.assign(self._mine)
        begin = await self._begin()
        for at in self._mine:
            self._consumer.seek(at, begin.get(at.partition, 0))
        self._copier.say("ready")
        self._copier.holds(len(self._mine))
        while self._copier.goes_on:
            got = await self._consumer.getmany(timeout_ms=200, max_records=self._spec["batchRecords"])
            messages = [message for many in got.values() for message in many]
            if messages:
                await self._copy(messages)
        await self._consumer.stop()
        await self._producer.stop()
        self._copier.say("ended")

    async def _copy(self, messages: list[Any]) -> None:
        doomed = self._copier.dooms()
        await self._producer.begin_transaction()
        self._copier.say("began", len(messages))
        sent = [
            await self._producer.send(
                self._spec["output"],
                message.value,
                message.key,
                message.partition,
                headers=HEADERS if doomed else None,
            )
            for message in messages
        ]
        places = await asyncio.gather(*sent)
        await asyncio.sleep(self._copier.pause_s())
        if doomed:
            await self._producer.abort_transaction()
            self._copier.aborted((place.partition, place.offset) for place in places)
            self._rewind(messages)
            return
        ends = {message.partition: message.offset + 1 for message in messages}
        offsets = {at: ends[at.partition] for at in self._mine if at.partition in ends}
        await self._producer.send_offsets_to_transaction(offsets, self._spec["group"])
        await self._producer.commit_transaction()
        self._copier.say("committed", len(messages))

    async def _begin(self) -> dict[int, int]:
        """Return the group's stable offsets."""
        spec = self._spec
        offsets = await asyncio.to_thread(
            answer_of, partial(stable_offsets, spec["bootstrap"], spec["group"]), START_S
        )
        return {at: offset for (topic, at), offset in offsets.items() if topic == spec["topic"]}

    def _rewind(self, messages: list[Any]) -> None:
        """Go back to the first of these messages: they were not copied."""
        first: dict[int, int] = {}
        for message in messages:
            first[message.partition] = min(message.offset, first.get(message.partition, message.offset))
        for at in self._mine:
            if at.partition in first:
                self._consumer.seek(at, first[at.partition])


async def _started(client: Any) -> None:
    """Start a client, again while no broker answers."""
    from aiokafka.errors import KafkaConnectionError

    deadline = asyncio.get_running_loop().time() + START_S
    while True:
        try:
            await client.start()
        except KafkaConnectionError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(0.2)
        else:
            return


async def copy(copier: Copier) -> int:
    """Return 0 at the end of stdin, :data:`FENCED_STATUS` or :data:`FAILED_STATUS` else.

    An error in a transaction ends the program. Its successor begins with the committed offsets.
    """
    from aiokafka.errors import KafkaError, ProducerFenced

    try:
        await AioCopier(copier).run()
    except ProducerFenced as fenced:
        copier.say("fenced", one_line(fenced))
        return FENCED_STATUS
    except (KafkaError, TimeoutError, NoAnswerError) as error:
        copier.say("failed", one_line(error))
        return FAILED_STATUS
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(copy(Copier())))

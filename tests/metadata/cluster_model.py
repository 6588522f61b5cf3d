"""A cluster in a model: the real controller, and brokers whose logs, page caches and views of the metadata are lists.

It checks each record that the controller writes, and that no acknowledged record is lost: an acknowledgement needs the
high watermark, which a leader moves by its own view of ISR and ``min.insync.replicas``. Where the controller says that
it elects uncleanly, loss is allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

from blumfeld.metadata.decision import ControllerDecision
from blumfeld.metadata.image.cluster_image import MetadataImage
from blumfeld.metadata.image.step import ImageStep, changed_partition
from blumfeld.metadata.partitions.requested_elections import PREFERRED, UNCLEAN
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE, PartitionImage
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.alter_partition import AlterPartitionResponse, BrokerState, RequestPartitionData
from blumfeld.wire.messages.broker_registration import BrokerRegistrationResponse
from blumfeld.wire.messages.create_topics import CreatableTopicConfig
from blumfeld.wire.messages.metadata_records import (
    ClearElrRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
)
from blumfeld.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from blumfeld.wire.schema import Message
from tests.metadata.driven import CLUSTER_ID, SET, Driven, isr_request, replayed

Key = tuple[bytes, int]
Entry = tuple[int, int]
"""(leader epoch, number): no two records of a partition are alike."""


class Led:
    """What a leader knows of a partition, from its election on."""

    def __init__(self, image: PartitionImage) -> None:
        self.epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.isr = set(image.isr)
        self.maximal = set(image.isr)
        """With the members of a proposal whose answer was lost."""
        self.ends: dict[int, int] = {}
        """Log end of each follower, as of its last fetch."""
        self.epochs: dict[int, int] = {}
        """Broker epoch of that fetch. The follower may have restarted since: the controller refuses the old one."""
        self.started: int | None = None
        self.high_watermark = 0


class ModelBroker:
    """One broker over its processes. Its logs and the epoch of its last clean shutdown are on disk."""

    def __init__(self, broker_id: int) -> None:
        self.id = broker_id
        self.logs: dict[Key, list[Entry]] = {}
        self.flushed: dict[Key, int] = {}
        self.up = False
        self.cut = False
        """No request of it reaches the controller."""
        self.stopping = False
        self.epoch = -1
        self.clean_epoch = -1
        self.incarnation = 0
        self.view = MetadataImage(CLUSTER_ID)
        self.led: dict[Key, Led] = {}
        self.followed: dict[Key, int] = {}
        """Leader epoch in which the log was last cut to the leader's."""

    def log(self, key: Key) -> list[Entry]:
        return self.logs.setdefault(key, [])

    def down(self, *, clean: bool, power: Random | None = None) -> None:
        """The process ends. With the power goes what is not flushed."""
        self.up = self.stopping = False
        self.led.clear()
        self.followed.clear()
        self.clean_epoch = self.epoch if clean else -1
        if power is not None:
            for key, log in self.logs.items():
                del log[power.randint(min(self.flushed.get(key, 0), len(log)), len(log)) :]

    def flush(self) -> None:
        self.flushed = {key: len(log) for key, log in self.logs.items()}


class CheckedDriven(Driven):
    """Checks each record against the partition before it."""

    def __init__(self, model: ClusterModel, **how: Any) -> None:
        self._model = model
        self.partitions: dict[Key, PartitionImage] = {}
        super().__init__(**how)

    def place(self, records: Sequence[Message]) -> None:
        before = dict(self.partitions)
        super().place(records)
        elections: list[tuple[Key, PartitionImage, PartitionImage]] = []
        for record in records:
            if isinstance(record, PartitionRecord):
                key = record.topic_id, record.partition_id
                self.partitions[key] = self.image.topics[self.image.topic_names[key[0]]].partitions[key[1]]
            elif isinstance(record, PartitionChangeRecord):
                key = record.topic_id, record.partition_id
                old = self.partitions[key]
                self.partitions[key] = new = changed_partition(old, record)
                elections.append((key, old, new))
            elif isinstance(record, ClearElrRecord):
                self._cleared(record)
            elif isinstance(record, RegisterBrokerRecord):
                self._registered(record)
        for key, old, new in elections:
            self._model.changed(key, old, new)
        for key, now in self.partitions.items():
            assert self.image.topics[self.image.topic_names[key[0]]].partitions[key[1]] == now
            assert now.partition_epoch >= before.get(key, now).partition_epoch

    def _cleared(self, record: ClearElrRecord) -> None:
        for key, old in self.partitions.items():
            named = record.topic_name in ("", self.image.topic_names[key[0]])
            if named and (old.eligible_leader_replicas or old.last_known_elr):
                nothing = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                self.partitions[key] = changed_partition(old, nothing)

    def _registered(self, record: RegisterBrokerRecord) -> None:
        """A broker that lost its page cache is nowhere trusted from its registration on."""
        broker = self._model.brokers[record.broker_id]
        if self.image.elr_enabled and record.fenced and broker.clean_epoch < 0:
            for partition in self.partitions.values():
                assert record.broker_id not in partition.isr
                assert record.broker_id not in partition.eligible_leader_replicas
        for partition in self.partitions.values():
            assert partition.leader != record.broker_id or not record.fenced


class ClusterModel:
    """A history by seed."""

    def __init__(self, seed: int, *, elr: bool, power: bool) -> None:
        self.chance = Random(seed)
        self.power = power
        self.brokers = {n: ModelBroker(n) for n in range(1, 6)}
        self.committed: dict[Key, list[Entry]] = {}
        self.unclean_epochs: dict[Key, int] = {}
        """Leader epoch of the last unclean election: acknowledgements of earlier leaders count no more."""
        self.unclean_topics: set[str] = set()
        self.counts: dict[str, int] = {}
        self.numbers = 0
        self.lost: int | None = None
        """The broker that registers behind an unclean shutdown."""
        self.driven = CheckedDriven(self, levels={"eligible.leader.replicas.version": int(elr)})
        for broker in self.brokers.values():
            self.start(broker)
            self.beat(broker)
        for name in ("a", "b", "c"):
            self.create(name)

    def count(self, name: str) -> None:
        self.counts[name] = self.counts.get(name, 0) + 1

    # What must hold

    def changed(self, key: Key, old: PartitionImage, new: PartitionImage) -> None:
        """A record changed a partition."""
        image = self.driven.image
        assert set(new.isr) <= set(new.replicas)
        assert not set(new.isr) & set(new.eligible_leader_replicas)
        assert new.leader == -1 or new.leader in new.isr
        assert new.leader_epoch >= old.leader_epoch
        assert new.partition_epoch == old.partition_epoch + 1
        if new.leader == old.leader:
            return
        assert new.leader_epoch == old.leader_epoch + 1
        if new.leader == -1:
            self.count("leaderless")
            return
        broker = image.brokers[new.leader]
        assert not broker.fenced
        assert not broker.in_controlled_shutdown
        ended = old.adding_replicas and not new.adding_replicas
        if ended and new.leader not in old.isr and new.leader_recovery_state == 0:
            # The change of the ISR that ended the reassignment brought it: ``check_logs`` looks whether it has all.
            self.count("from a reassignment")
            return
        trusted = {*old.isr, *old.eligible_leader_replicas} - {self.lost}
        if new.leader in trusted and (new.leader in old.isr or not set(old.isr) & set(new.isr)):
            self.count("clean" if new.leader in old.isr else "from the ELR")
            return
        last_known = image.elr_enabled and not trusted
        if not (last_known and old.last_known_elr == (new.leader,)):
            assert image.topic_names[key[0]] in self.unclean_topics, f"{old} -> {new}"
            self.count("unclean")
        else:
            self.count("last known leader")
        assert new.leader_recovery_state == 1
        assert new.eligible_leader_replicas == ()
        self.unclean_epochs[key] = new.leader_epoch
        log, committed = self.brokers[new.leader].log(key), self.committed.setdefault(key, [])
        del committed[common(log, committed) :]

    def check_logs(self) -> None:
        """Each replica that may be elected without loss has all that was acknowledged."""
        for key, partition in self.driven.partitions.items():
            committed = self.committed.get(key, [])
            for replica in (*partition.isr, *partition.eligible_leader_replicas):
                broker = self.brokers[replica]
                known = self.driven.image.brokers.get(replica)
                registered = known is not None and known.epoch == broker.epoch
                if broker.up and registered and not self._still_to_follow(key, partition, broker):
                    assert broker.log(key)[: len(committed)] == committed, f"{replica} lacks records of {key}"

    def _still_to_follow(self, key: Key, partition: PartitionImage, broker: ModelBroker) -> bool:
        """Whether loss was allowed, and the replica has not heard of it yet."""
        return key in self.unclean_epochs and partition.leader != broker.id

    # Brokers

    def start(self, broker: ModelBroker) -> None:
        """A new process registers, unless the controller believes the last one alive."""
        if broker.up or broker.cut:
            return
        request = self.driven.registration(broker.id, broker.incarnation + 1)
        request.previous_broker_epoch = broker.clean_epoch
        # The controller knows no clean stop of a broker that was unregistered.
        clean = broker.clean_epoch >= 0 and broker.id in self.driven.image.brokers
        self.lost = None if clean else broker.id
        answer = self.driven.do(request, BrokerRegistrationResponse)
        self.lost = None
        if answer.error_code == 0:
            broker.incarnation += 1
            broker.epoch = answer.broker_epoch
            broker.up = True
            broker.clean_epoch = -1
            self.catch_up(broker, len(self.driven.log))

    def catch_up(self, broker: ModelBroker, to: int) -> None:
        """The broker reads the metadata up to an offset, and applies it."""
        while broker.view.offset + 1 < to:
            step = ImageStep(broker.view)
            offset = broker.view.offset + 1
            record = self.driven.log[offset]
            step.replay(record)
            step.finish(offset, 1)
            if isinstance(record, PartitionChangeRecord):
                self._replicas_changed(broker, (record.topic_id, record.partition_id))
        for topic in broker.view.topics.values():
            for partition in topic.partitions.values():
                self._apply(broker, (topic.topic_id, partition.partition), partition)

    def _replicas_changed(self, broker: ModelBroker, key: Key) -> None:
        """A replica that is taken away deletes its log, and the leader forgets how far it was."""
        partition = self.viewed(broker, key)
        assert partition is not None
        if broker.id not in partition.replicas:
            for held in (broker.logs, broker.flushed, broker.followed):
                held.pop(key, None)
        if (led := broker.led.get(key)) is not None:
            for replica in {*led.ends} - {*partition.replicas}:
                del led.ends[replica], led.epochs[replica]

    def _apply(self, broker: ModelBroker, key: Key, partition: PartitionImage) -> None:
        led = broker.led.get(key)
        if partition.leader != broker.id:
            broker.led.pop(key, None)
        elif led is None or led.epoch != partition.leader_epoch:
            broker.led[key] = Led(partition)
        elif partition.partition_epoch > led.partition_epoch:  # an older one says nothing of a lost answer
            led.partition_epoch = partition.partition_epoch
            led.isr = set(partition.isr)
            led.maximal = set(partition.isr)

    def beat(self, broker: ModelBroker) -> None:
        if broker.up and not broker.cut:
            offset = broker.view.offset
            answer = self.driven.beat(
                broker.id, broker.epoch, current_metadata_offset=offset, want_shut_down=broker.stopping
            )
            if broker.stopping and answer.should_shut_down:
                broker.flush()
                broker.down(clean=True)
                self.count("clean stop")

    def tick(self) -> None:
        """Two seconds: every broker reads metadata and sends a heartbeat, and sessions end."""
        self.driven.now_ms += 2_000
        for broker in self.brokers.values():
            if broker.up and not broker.cut:
                self.catch_up(broker, self.chance.randint(broker.view.offset + 1, len(self.driven.log)))
                self.beat(broker)
        self.expire()

    def expire(self) -> None:
        for _ in self.driven.expire():
            self.count("session ended")

    def stop(self) -> None:
        broker = self.any_up()
        action = self.chance.choice(["kill", "power", "stop"])
        if action == "stop":
            broker.stopping = True
        elif action == "power" and self.power:
            broker.down(clean=False, power=self.chance)
        else:
            broker.down(clean=False)
            if self.chance.random() < 0.5:
                moment = self.driven.moment()
                self.carry(self.driven.controller.fence_dead(broker.id, broker.epoch, moment))

    def any_up(self) -> ModelBroker:
        return self.chance.choice([b for b in self.brokers.values() if b.up] or list(self.brokers.values()))

    def restart(self) -> None:
        for broker in self.brokers.values():
            if not broker.up and self.chance.random() < 0.5:
                self.start(broker)

    def cut(self) -> None:
        cut = [broker for broker in self.brokers.values() if broker.cut]
        broker = self.chance.choice(cut or list(self.brokers.values()))
        broker.cut = not broker.cut

    def flush(self) -> None:
        self.any_up().flush()

    def unregister(self) -> None:
        """An operator gives up a broker that is down. It may come back, and registers as a new one."""
        down = [b for b in self.brokers.values() if not b.up and b.id in self.driven.image.brokers]
        if down:
            request = UnregisterBrokerRequest(broker_id=self.chance.choice(down).id)
            answer = self.driven.do(request, UnregisterBrokerResponse)
            self.count("unregistered" if answer.error_code == 0 else "not unregistered")

    # Records

    def some(self) -> tuple[Key, ModelBroker, Led] | None:
        """A partition, and a process that believes that it leads it."""
        broker = self.any_up()
        if not broker.up or not broker.led:
            return None
        key = self.chance.choice(list(broker.led))
        led = broker.led[key]
        if led.started is None:
            led.started = len(broker.log(key))
        return key, broker, led

    def produce(self) -> None:
        if (choice := self.some()) is not None:
            key, broker, led = choice
            for _ in range(self.chance.randint(1, 3)):
                self.numbers += 1
                broker.log(key).append((led.epoch, self.numbers))
            self.move(key, broker, led)

    def fetch(self) -> None:
        """A follower fetches, if it believes in the same leader and epoch, and the leader in its epoch (KIP-903)."""
        if (choice := self.some()) is None:
            return
        key, leader, led = choice
        for follower in self.brokers.values():
            partition = self.viewed(follower, key)
            if not follower.up or follower is leader or partition is None or self.chance.random() < 0.3:
                continue
            known = leader.view.brokers.get(follower.id)
            same = (partition.leader, partition.leader_epoch) == (leader.id, led.epoch)
            if not same or follower.id not in partition.replicas or known is None:
                continue
            if known.epoch != follower.epoch:
                continue
            mine, theirs = follower.log(key), leader.log(key)
            if follower.followed.get(key) != led.epoch:
                del mine[common(mine, theirs) :]
                follower.flushed[key] = min(follower.flushed.get(key, 0), len(mine))
                follower.followed[key] = led.epoch
            mine += theirs[len(mine) : len(mine) + self.chance.randint(0, 4)]
            led.ends[follower.id], led.epochs[follower.id] = len(mine), follower.epoch
        self.move(key, leader, led)

    def viewed(self, broker: ModelBroker, key: Key) -> PartitionImage | None:
        topic = broker.view.topic_by_id(key[0])
        return None if topic is None else topic.partitions.get(key[1])

    def move(self, key: Key, leader: ModelBroker, led: Led) -> None:
        """The high watermark moves, unless the ISR is too small; what it passes is acknowledged."""
        partition = self.viewed(leader, key)
        assert partition is not None
        if len(led.isr) < min(self.minimum(leader.view, key), len(partition.replicas)):
            return
        log = leader.log(key)
        reached = min([len(log), *(led.ends.get(r, 0) for r in led.maximal if r != leader.id)])
        if reached <= led.high_watermark:
            return
        led.high_watermark = reached
        committed = self.committed.setdefault(key, [])
        if led.epoch < self.unclean_epochs.get(key, -1):
            return
        shared = min(reached, len(committed))
        assert log[:shared] == committed[:shared], "two leaders acknowledged different records"
        committed += log[len(committed) : reached]
        self.count("acknowledged")

    def minimum(self, view: MetadataImage, key: Key) -> int:
        topic = view.config(TOPIC_RESOURCE, view.topic_names[key[0]])
        return int(
            topic.get("min.insync.replicas", view.config(BROKER_RESOURCE, "").get("min.insync.replicas", 1))
        )

    def propose(self) -> None:
        """A leader asks for another ISR. The answer may be lost, and the leader be behind."""
        if (choice := self.some()) is None:
            return
        key, leader, led = choice
        partition = self.viewed(leader, key)
        assert partition is not None
        assert led.started is not None
        if leader.cut or led.maximal != led.isr:
            return
        wanted = {leader.id}
        for replica in partition.replicas:
            joins = led.ends.get(replica, -1) >= max(led.high_watermark, led.started)
            if (replica in led.isr and self.chance.random() < 0.6) or (joins and self.chance.random() < 0.8):
                wanted.add(replica)
        epochs = {**led.epochs, leader.id: leader.epoch}
        states = [BrokerState(r, epochs.get(r, -1)) for r in sorted(wanted)]
        data = RequestPartitionData(
            partition_index=key[1],
            leader_epoch=led.epoch,
            partition_epoch=led.partition_epoch,
            new_isr_with_epochs=states,
        )
        led.maximal = led.isr | wanted
        answer = self.driven.do(isr_request(leader.id, leader.epoch, key[0], data), AlterPartitionResponse)
        if answer.error_code or self.chance.random() < 0.2:
            return
        result = answer.topics[0].partitions[0]
        if result.error_code == ErrorCode.INELIGIBLE_REPLICA:
            self.count("not eligible")
            led.maximal = set(led.isr)
        if result.error_code == 0:
            self.count("ISR changed")
            led.isr, led.maximal = set(result.isr), set(result.isr)
            led.partition_epoch = result.partition_epoch

    # The controller

    def carry(self, decision: ControllerDecision) -> None:
        """Place a decision. Now and then its controller dies between two parts."""
        self.driven.place(decision.records)
        while decision.rest is not None:
            if self.chance.random() < 0.2:
                self.count("cut between parts")
                self.failover()
                return
            decision = decision.rest(self.driven.controller.state, self.driven.moment())
            self.driven.place(decision.records)

    def failover(self) -> None:
        """Another controller goes on from the log."""
        assert replayed(self.driven.log) == self.driven.image
        self.driven.fail_over()
        self.count("failover")

    def by_itself(self) -> None:
        controller, moment = self.driven.controller, self.driven.moment()
        self.carry(self.chance.choice([controller.balance, controller.elect_unclean])(moment))

    def elect(self) -> None:
        kind = PREFERRED
        if self.chance.random() < 0.1:
            kind = UNCLEAN
            self.unclean_topics.update(self.driven.image.topics)
        self.driven.elect(kind)
        self.unclean_topics.difference_update(("a", "b"))

    def reassign(self) -> None:
        """Other replicas for a partition, or the end of a reassignment that is under way."""
        key = self.chance.choice(list(self.driven.partitions))
        before = self.driven.partitions[key]
        moving = bool(before.adding_replicas or before.removing_replicas)
        wanted = None
        if not moving or self.chance.random() < 0.5:
            brokers = list(self.driven.image.brokers)
            wanted = self.chance.sample(brokers, min(len(before.replicas), len(brokers)))
        if not self.driven.reassign(self.driven.image.topic_names[key[0]], wanted, key[1]):
            self.count("reassigned" if wanted else "reassignment ended")

    def set_minimum(self) -> None:
        """``min.insync.replicas`` of a topic or of the cluster. Every leader reads it at once: Kafka has the same gap,
        in which a leader goes on with the old value while the controller keeps eligible replicas by the new one.
        """
        topic = self.chance.choice(["a", "b", "c", ""])
        edit = ("min.insync.replicas", SET, str(self.chance.randint(1, 3)))
        assert self.driven.alter_config(TOPIC_RESOURCE if topic else BROKER_RESOURCE, topic, edit) == 0
        self.count("minimum")
        for broker in self.brokers.values():
            if broker.up:
                self.catch_up(broker, len(self.driven.log))

    def create(self, name: str) -> None:
        """Topic c may be led by replicas that lack records."""
        configs = [CreatableTopicConfig(name="min.insync.replicas", value=str(self.chance.randint(1, 3)))]
        if name == "c":
            self.unclean_topics.add(name)
            configs.append(CreatableTopicConfig(name="unclean.leader.election.enable", value="true"))
        factor = 5 if name == "a" else 3
        assert self.driven.create(name, 3, factor, configs=configs).error_code == 0

    def step(self) -> None:
        often = [self.produce, self.fetch, self.fetch, self.fetch, self.propose, self.propose]
        seldom = [self.stop, self.restart, self.restart, self.flush, self.tick, self.tick, self.tick]
        rare = [self.cut, self.cut, self.failover, self.by_itself, self.elect, self.set_minimum]
        rare += [self.reassign, self.reassign, self.unregister]
        self.chance.choice(self.chance.choices([often, seldom, rare], [8, 3, 1])[0])()
        self.check_logs()


def common(first: Sequence[Entry], other: Sequence[Entry]) -> int:
    """How many records both logs begin with."""
    for at, (a, b) in enumerate(zip(first, other, strict=False)):
        if a != b:
            return at
    return min(len(first), len(other))

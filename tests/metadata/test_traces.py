"""Scripts for the controller of a cluster, and the records that come of them.

A line that begins with ``>`` is a command; what it comes to is written below it, indented:

* ``join B…`` registers brokers and unfences them; ``fence B…``, ``unfence B…``, ``stop B…`` (controlled shutdown) and
  ``beat B…`` are heartbeats; ``beat B at=OFFSET`` is one that has read less, ``old B`` one of the process before
* ``unregister B`` forgets a broker
* ``restart B… [unclean]`` registers the next process; ``dead B`` is the word that a process is dead
* ``topic NAME B+B… [min=N] [unclean]`` creates a topic of one partition; ``minimum NAME|cluster N|none`` changes it
* ``isr NAME B+B…`` is the leader's request; ``elect preferred|unclean`` is an operator's
* ``reassign NAME B+B… [same]`` gives the topic's partition other replicas; ``same`` forbids another number of them, and
  ``none`` for the replicas cancels. ``delete NAME`` deletes the topic
* ``balance`` and ``retry`` are the controller's own; ``wait MS`` lets it run, ``pause MS`` stops it
* ``failover [own=B] [same]`` gives the log to the next controller, beside broker B, in whose process it runs or not
* ``join B directories=N`` gives the broker several log directories; ``place TOPIC B DIRECTORY`` says where its replica
  lies, and ``lose B DIRECTORY`` takes one, counted from 0, in a heartbeat that names all lost ones

A line without ``>`` at its beginning is a comment.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from blumfeld.metadata.image.cluster_image import ELR_FEATURE
from blumfeld.metadata.partitions.requested_elections import PREFERRED, UNCLEAN
from blumfeld.spi.cluster import BROKER_RESOURCE, TOPIC_RESOURCE
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages import metadata_records as records
from blumfeld.wire.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    RequestDirectoryData,
    RequestPartitionData,
    RequestTopicData,
)
from blumfeld.wire.messages.broker_registration import BrokerRegistrationResponse
from blumfeld.wire.messages.create_topics import CreatableTopicConfig
from blumfeld.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from blumfeld.wire.schema import Message
from tests.metadata.driven import DELETE, SET, Driven, assigned, directory_id, replayed
from tests.trace_files import check_trace, each_trace

MIN_ISR = "min.insync.replicas"
NO_CHANGE = -2


class ControllerTrace:
    """The state of one script."""

    def __init__(self, *, elr: bool) -> None:
        self.driven = Driven(levels={ELR_FEATURE: int(elr)})
        self.epochs: dict[int, int] = {}
        self.former: dict[int, int] = {}
        self.incarnations: dict[int, int] = {}
        self.directories: dict[int, list[bytes]] = {}
        self.lost: dict[int, list[bytes]] = {}

    def run(self, line: str) -> list[str]:
        """What a command comes to: its records, then its answers."""
        name, *words = line.split()
        before = len(self.driven.log)
        command: Callable[[list[str]], list[str]] = getattr(self, f"do_{name}")
        answers = command(words)
        assert replayed(self.driven.log) == self.driven.image
        return [*self._shown(self.driven.log[before:]), *answers]

    # Brokers

    def do_join(self, words: list[str]) -> list[str]:
        counts = [int(word[12:]) for word in words if word.startswith("directories=")]
        for broker in (int(word) for word in words if word.isdigit()):
            self.directories[broker] = [
                directory_id(broker, nth) for nth in range(counts[0] if counts else 1)
            ]
            self._register(broker, previous=-1)
            self.driven.beat(broker, self.epochs[broker])
        return []

    def _register(self, broker: int, previous: int) -> list[str]:
        self.incarnations[broker] = self.incarnations.get(broker, 0) + 1
        request = self.driven.registration(broker, self.incarnations[broker], self.directories[broker])
        request.previous_broker_epoch = previous
        answer = self.driven.do(request, BrokerRegistrationResponse)
        if answer.error_code:
            return [f"{broker} {ErrorCode(answer.error_code).name}"]
        self.former[broker] = self.epochs.get(broker, -1)
        self.epochs[broker] = answer.broker_epoch
        return []

    def do_restart(self, words: list[str]) -> list[str]:
        unclean = "unclean" in words
        answers = []
        for broker in (int(word) for word in words if word != "unclean"):
            answers += self._register(broker, previous=-1 if unclean else self.epochs[broker])
        return answers

    def _beat(self, broker: int, epoch: int, **wants: object) -> str:
        answer = self.driven.beat(broker, epoch, **wants)
        if answer.error_code:
            return f"{broker} {ErrorCode(answer.error_code).name}"
        words = [
            word
            for word, is_so in (
                ("caught up", answer.is_caught_up),
                ("fenced", answer.is_fenced),
                ("may stop", answer.should_shut_down),
            )
            if is_so
        ]
        return f"{broker} {', '.join(words)}"

    def do_beat(self, words: list[str]) -> list[str]:
        offsets = [int(word[3:]) for word in words if word.startswith("at=")]
        wants = {"current_metadata_offset": offsets[0]} if offsets else {}
        brokers = [int(word) for word in words if not word.startswith("at=")]
        return [
            self._beat(broker, self.epochs[broker], offline_log_dirs=self.lost.get(broker, []), **wants)
            for broker in brokers
        ]

    do_unfence = do_beat

    def do_old(self, words: list[str]) -> list[str]:
        return [self._beat(broker, self.former[broker]) for broker in map(int, words)]

    def do_fence(self, words: list[str]) -> list[str]:
        return [self._beat(broker, self.epochs[broker], want_fence=True) for broker in map(int, words)]

    def do_stop(self, words: list[str]) -> list[str]:
        return [self._beat(broker, self.epochs[broker], want_shut_down=True) for broker in map(int, words)]

    def do_lose(self, words: list[str]) -> list[str]:
        broker, nth = map(int, words)
        self.lost.setdefault(broker, []).append(self.directories[broker][nth])
        return self.do_beat([words[0]])

    def do_place(self, words: list[str]) -> list[str]:
        topic, broker, nth = words[0], int(words[1]), int(words[2])
        topic_id = self.driven.image.topics[topic].topic_id
        data = RequestTopicData(topic_id=topic_id, partitions=[RequestPartitionData()])
        request = AssignReplicasToDirsRequest(
            broker_id=broker,
            broker_epoch=self.epochs[broker],
            directories=[RequestDirectoryData(id=self.directories[broker][nth], topics=[data])],
        )
        self.driven.do(request, AssignReplicasToDirsResponse)
        return []

    def do_unregister(self, words: list[str]) -> list[str]:
        request = UnregisterBrokerRequest(broker_id=int(words[0]))
        return _named(self.driven.do(request, UnregisterBrokerResponse).error_code)

    def do_dead(self, words: list[str]) -> list[str]:
        broker, moment = int(words[0]), self.driven.moment()
        self.driven.carry_out(self.driven.controller.fence_dead(broker, self.epochs[broker], moment))
        return []

    # Partitions

    def do_topic(self, words: list[str]) -> list[str]:
        name, replicas, *more = words
        configs = [CreatableTopicConfig(name=MIN_ISR, value=w[4:]) for w in more if w.startswith("min=")]
        if "unclean" in more:
            configs.append(CreatableTopicConfig(name="unclean.leader.election.enable", value="true"))
        answer = self.driven.create(name, **assigned(_brokers(replicas)), configs=configs)
        assert answer.error_code == 0, answer.error_message
        return []

    def do_minimum(self, words: list[str]) -> list[str]:
        name, value = words
        kind, resource = (BROKER_RESOURCE, "") if name == "cluster" else (TOPIC_RESOURCE, name)
        if name.isdigit():
            kind = BROKER_RESOURCE
        edit = (MIN_ISR, DELETE, None) if value == "none" else (MIN_ISR, SET, value)
        return _named(self.driven.alter_config(kind, resource, edit))

    def do_isr(self, words: list[str]) -> list[str]:
        return _named(self.driven.alter_isr(words[0], _brokers(words[1])))

    def do_elect(self, words: list[str]) -> list[str]:
        elected = self.driven.elect({"preferred": PREFERRED, "unclean": UNCLEAN}[words[0]])
        return [
            f"{topic} {ErrorCode(code).name}" for topic, results in elected.items() for _, code in results
        ]

    def do_reassign(self, words: list[str]) -> list[str]:
        name, replicas = words[:2]
        wanted = None if replicas == "none" else _brokers(replicas)
        return _named(self.driven.reassign(name, wanted, same_factor="same" in words))

    def do_delete(self, words: list[str]) -> list[str]:
        return _named(self.driven.delete(words[0])[0][1])

    # The controller

    def do_balance(self, _: list[str]) -> list[str]:
        self.driven.carry_out(self.driven.controller.balance(self.driven.moment()))
        return []

    def do_retry(self, _: list[str]) -> list[str]:
        self.driven.carry_out(self.driven.controller.elect_unclean(self.driven.moment()))
        return []

    def do_wait(self, words: list[str]) -> list[str]:
        self.driven.now_ms += int(words[0])
        self.driven.expire()
        return []

    def do_pause(self, words: list[str]) -> list[str]:
        self.driven.paused_ms(int(words[0]))
        self.driven.expire()
        return []

    def do_failover(self, words: list[str]) -> list[str]:
        own = next((int(word[4:]) for word in words if word.startswith("own=")), None)
        incarnation = b"another process."
        if own is not None and "same" in words:
            incarnation = self.driven.image.brokers[own].incarnation_id
        self.driven.fail_over(own, incarnation)
        return []

    # Records

    def _shown(self, log: Sequence[Message]) -> Iterator[str]:
        for record in log:
            match record:
                case records.RegisterBrokerRecord():
                    yield f"broker {record.broker_id} registered"
                case records.UnregisterBrokerRecord():
                    yield f"broker {record.broker_id} unregistered"
                case records.BrokerRegistrationChangeRecord():
                    yield f"broker {record.broker_id} {_change_of(record)}"
                case records.TopicRecord():
                    pass
                case records.PartitionRecord():
                    name = self.driven.image.topic_names[record.topic_id]
                    yield f"{name} leader={record.leader} isr={_text(record.isr)}"
                case records.PartitionChangeRecord():
                    yield f"{self.driven.image.topic_names[record.topic_id]} {_fields(record)}"
                case records.ConfigRecord():
                    yield f"config {record.resource_name or 'cluster'} {record.name}={record.value}"
                case records.ClearElrRecord():
                    yield f"elr cleared of {record.topic_name or 'all'}"
                case _:
                    yield type(record).__name__


def _named(code: int) -> list[str]:
    return [ErrorCode(code).name] if code else []


def _brokers(text: str) -> list[int]:
    return [int(part) for part in text.split("+")]


def _text(brokers: Sequence[int]) -> str:
    return "+".join(map(str, brokers)) or "none"


def _change_of(record: records.BrokerRegistrationChangeRecord) -> str:
    words = {1: ["fenced"], -1: ["unfenced"]}.get(record.fenced, [])
    if record.in_controlled_shutdown:
        words.append("shuts down")
    if record.log_dirs:
        words.append(f"directories={len(record.log_dirs)}")
    return ", ".join(words)


def _fields(record: records.PartitionChangeRecord) -> str:
    words = [] if record.leader == NO_CHANGE else [f"leader={record.leader}"]
    if record.replicas is not None:
        words.append(f"replicas={_text(record.replicas)}")
    words += [
        f"{name}={_text(value)}"
        for name, value in (("adding", record.adding_replicas), ("removing", record.removing_replicas))
        if value is not None
    ]
    lists = (("isr", record.isr), ("elr", record.eligible_leader_replicas), ("last", record.last_known_elr))
    words += [f"{name}={_text(value)}" for name, value in lists if value is not None]
    if record.directories is not None:
        words.append("directory")
    if record.leader_recovery_state >= 0:
        words.append("recovering" if record.leader_recovery_state else "recovered")
    return " ".join(words)


@each_trace("controller")
def test_a_script_comes_to_its_trace(name: str) -> None:
    check_trace(name, ControllerTrace(elr="_without_elr" not in name).run)

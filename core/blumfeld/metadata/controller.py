"""The controller: request messages in, records and a response out (docs/design.md, rule 3). Pure.

A command reads the state and writes nothing; only :meth:`Controller.replay` writes. Commands are the wire's
request messages, so that KRaft, ZooKeeper mode and a forwarding broker speak the same language.

The controller reads no clock. Its driver passes the time, appends a decision's records, replays them as soon as
they have offsets, and answers when they are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple, cast

from blumfeld.config.values import BrokerConfig
from blumfeld.metadata.brokers.feature_levels import supported_features
from blumfeld.metadata.brokers.registration import (
    balance_leaders,
    elect_left_over,
    fence_dead,
    fence_expired,
)
from blumfeld.metadata.decision import ControllerDecision, ControllerState, Moment
from blumfeld.metadata.image.cluster_image import METADATA_VERSION_FEATURE, MetadataImage
from blumfeld.metadata.image.step import ImageStep
from blumfeld.metadata.sessions import BrokerSessions
from blumfeld.spi.consensus import OnBehalf
from blumfeld.spi.hooks import Feature
from blumfeld.spi.image_sections import Circumstances, ControllerCommand
from blumfeld.wire.errors import BrokerError, ErrorCode, PluginContractError
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.metadata_records import (
    BrokerRegistrationChangeRecord,
    NoOpRecord,
    RegisterBrokerRecord,
    UnregisterBrokerRecord,
)
from blumfeld.wire.schema import Message

Command = Callable[[ControllerState, Any, Moment], ControllerDecision]

COMMANDS: Mapping[str, tuple[str, str]] = {
    "BrokerRegistrationRequest": ("brokers.registration", "register_broker"),
    "BrokerHeartbeatRequest": ("brokers.registration", "heartbeat"),
    "UnregisterBrokerRequest": ("brokers.registration", "unregister_broker"),
    "ControllerRegistrationRequest": ("brokers.controllers", "register_controller"),
    "CreateTopicsRequest": ("topics.creation", "create_topics"),
    "DeleteTopicsRequest": ("topics.creation", "delete_topics"),
    "CreatePartitionsRequest": ("topics.more_partitions", "create_partitions"),
    "IncrementalAlterConfigsRequest": ("topics.configs", "incremental_alter_configs"),
    "AlterConfigsRequest": ("topics.configs", "alter_configs"),
    "AllocateProducerIdsRequest": ("brokers.producer_ids", "allocate_producer_ids"),
    "UpdateFeaturesRequest": ("brokers.features", "update_features"),
    "AlterPartitionRequest": ("partitions.isr", "alter_partition"),
    "AlterPartitionReassignmentsRequest": ("partitions.reassignments", "alter_partition_reassignments"),
    "ElectLeadersRequest": ("partitions.requested_elections", "elect_leaders"),
    "AssignReplicasToDirsRequest": ("partitions.replica_directories", "assign_replicas_to_dirs"),
}
"""Request class → module of this package and function. The module is imported with its first command, because
a start needs only two of them.
"""


def command_for(name: str) -> Command | None:
    """Returns the function that decides on requests of this class, or ``None``."""
    command = COMMANDS.get(name)
    if command is None:
        return None
    module = import_module(f"blumfeld.metadata.{command[0]}")
    return cast("Command", getattr(module, command[1]))


class PeriodicCommand(NamedTuple):
    """A command that the controller gives itself."""

    name: str
    """The name of the command in log lines."""
    interval_ms: float
    decide: Callable[[Moment], ControllerDecision]


class Controller:
    """The controller's state machine over one image.

    :param image: as replayed so far; the controller owns it from now on
    :param config: the manifest's values
    :param brought: feature levels that plug-ins bring
    :param commands: commands that plug-ins bring
    """

    def __init__(
        self,
        image: MetadataImage,
        config: BrokerConfig,
        brought: Sequence[Feature] = (),
        commands: Sequence[ControllerCommand] = (),
    ) -> None:
        self._commands = {command.request: command for command in commands}
        self.sessions = BrokerSessions(config.int("broker.session.timeout.ms"))
        self.state = ControllerState(
            image=image,
            config=config,
            features=supported_features(brought),
            sessions=self.sessions,
        )

    @property
    def image(self) -> MetadataImage:
        """The image with every replayed record, committed or not."""
        return self.state.image

    def command(
        self, request: Message, moment: Moment, on_behalf: OnBehalf | None = None
    ) -> ControllerDecision:
        """Decide on a request; changes nothing.

        :param on_behalf: the client whose request it is, for a plug-in's command
        :raises BrokerError: UNSUPPORTED_VERSION: no command of this controller; or what a plug-in's command raised
        :raises PluginContractError: a plug-in's command gave a record that belongs to no section
        """
        command = command_for(type(request).__name__)
        brought = self._commands.get(type(request))
        if command is None and brought is not None:
            return self._brought(brought, request, moment, on_behalf)
        if command is None:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_VERSION, f"{type(request).__name__} is no command of this controller"
            )
        return command(self.state, request, moment)

    def _brought(
        self, command: ControllerCommand, request: Message, moment: Moment, on_behalf: OnBehalf | None
    ) -> ControllerDecision:
        circumstances = Circumstances(
            monotonic_ms=moment.now_ms,
            wall_ms=moment.wall_ms,
            on_behalf=on_behalf,
            new_secret=moment.new_secret,
        )
        decided = command.decide(self.image, request, circumstances)
        for record in decided.records:
            if type(record) not in self.image.section_kinds.by_record:
                raise PluginContractError(
                    f"the command for {type(request).__name__} gave a {type(record).__name__}, which belongs to no "
                    "section of the image"
                )
        return ControllerDecision(list(decided.records), decided.response)

    def replay(self, records: Sequence[Message], base_offset: int, epoch: int) -> None:
        """Apply the records of one batch, which are in the log from ``base_offset`` on. They need not
        be committed yet.

        :raises BrokenMetadata: they contradict the image
        """
        step = ImageStep(self.image)
        for offset, record in enumerate(records, start=base_offset):
            step.replay(record)
            self._note(record, offset)
        if records:
            step.finish(base_offset + len(records) - 1, epoch)

    def _note(self, record: Message, offset: int) -> None:
        if isinstance(record, BrokerRegistrationChangeRecord):
            if record.fenced > 0:
                self.sessions.gone(record.broker_id)
            elif record.in_controlled_shutdown > 0:
                self.sessions.shutting_down(record.broker_id, offset)
        elif isinstance(record, UnregisterBrokerRecord):
            self.sessions.gone(record.broker_id)
        elif isinstance(record, RegisterBrokerRecord) and not record.in_controlled_shutdown:
            self.sessions.serves(record.broker_id)

    def answered(self, request: Message, response: Message, now_ms: float) -> None:
        """Extend the session of the broker whose request was answered without an error."""
        if not isinstance(request, BrokerHeartbeatRequest) or getattr(response, "error_code", 0) != 0:
            return
        broker = self.image.brokers.get(request.broker_id)
        # No new session for a broker that shuts down in order: its next process must be able to register at
        # once, and a live session would make that DUPLICATE_BROKER_REGISTRATION.
        if broker is not None and not (broker.fenced and request.want_shut_down):
            self.sessions.heard(broker.broker_id, broker.epoch, now_ms, request.current_metadata_offset)

    def fence_expired(self, now_ms: float) -> tuple[int, list[Message], bool] | None:
        """Returns the first broker with an expired session, the next records that fence it, and whether they are the
        last; ``None`` if every session goes on.
        """
        for broker_id in self.sessions.expired(now_ms):
            records, last = fence_expired(self.state, broker_id)
            if records:
                return broker_id, records, last
            self.sessions.gone(broker_id)
        return None

    def fence_dead(self, broker_id: int, broker_epoch: int, moment: Moment) -> ControllerDecision:
        """Fence a broker whose process is known to be dead: its connection was lost, and its listener refuses new ones.

        Only this very registration is fenced. Nothing happens if it is fenced already, or if the id's next process
        has registered meanwhile. If the process lives after all, its next heartbeat unfences it, and the epochs of its
        partitions have kept it from doing harm. The decision may have parts; its response means nothing.
        """
        return fence_dead(self.state, moment, broker_id=broker_id, broker_epoch=broker_epoch)

    def elect_left_over(self, moment: Moment) -> ControllerDecision:
        """Elect leaders that the controller before this one did not come to elect."""
        return elect_left_over(self.state, moment)

    def periodic(self) -> tuple[PeriodicCommand, ...]:
        """Returns the commands that the controller gives itself. From its take-over on, the driver calls each after
        every interval, as a decision that may have parts and whose response means nothing.
        """
        config, commands = self.state.config, []
        if config.bool("auto.leader.rebalance.enable"):
            interval_ms = config.int("leader.imbalance.check.interval.seconds") * 1_000
            commands.append(PeriodicCommand("preferred leaders", interval_ms, self.balance))
        interval_ms = config.int("unclean.leader.election.interval.ms")
        commands.append(PeriodicCommand("unclean elections", interval_ms, self.elect_unclean))
        interval_ms = config.int("metadata.max.idle.interval.ms")
        if interval_ms > 0:
            commands.append(PeriodicCommand("no-op records", interval_ms, self.noop))
        return tuple(commands)

    def balance(self, moment: Moment) -> ControllerDecision:
        """Elect the preferred leader of each partition that another replica leads, where it may lead.

        The driver calls it every ``leader.imbalance.check.interval.seconds``, unless ``auto.leader.rebalance.enable``
        is false.
        """
        return balance_leaders(self.state, moment)

    def elect_unclean(self, moment: Moment) -> ControllerDecision:
        """Elect a leader for each partition that has none, also one that may lack records where
        ``unclean.leader.election.enable`` allows it: it may have been turned on since the last leader went.

        The driver calls it every ``unclean.leader.election.interval.ms``.
        """
        return elect_left_over(self.state, moment)

    def noop(self, _moment: Moment) -> ControllerDecision:
        """Append a record that says nothing, so that the committed end moves: it shows that a majority still follows,
        and a replica's lag in time can be told from silence (KIP-835). None before the log has a ``metadata.version``.

        The driver calls it every ``metadata.max.idle.interval.ms``, unless that is 0. As in Kafka, it does so whether
        or not other records were written meanwhile, and on a node alone, too.
        """
        records: list[Message] = [NoOpRecord()] if METADATA_VERSION_FEATURE in self.image.features else []
        return ControllerDecision(records, BrokerHeartbeatResponse())

    def take_over(
        self,
        now_ms: float,
        own_broker_id: int | None,
        own_incarnation_id: bytes | None = None,
        silent: tuple[int, float] | None = None,
    ) -> None:
        """Give every unfenced broker a full session, because this controller has just become active.

        The broker beside the former controller is an exception: they are one process. Its session goes on from when
        that process was heard from last (``silent``: its node id, and that moment).

        The broker of this node (``own_broker_id``) may be another process than this one (``own_incarnation_id``): the
        one before it, which has ended. That session doesn't keep the new process from registering.

        A controlled shutdown that began under another controller ends when all brokers have read the log as far as it
        goes now.
        """
        for broker in self.image.brokers.values():
            if broker.fenced:
                continue
            former = broker.broker_id == own_broker_id and broker.incarnation_id != own_incarnation_id
            note = self.sessions.ended if former else self.sessions.heard
            note(broker.broker_id, broker.epoch, now_ms)
            if broker.in_controlled_shutdown:
                self.sessions.shutting_down(broker.broker_id, self.image.offset)
        if silent is not None:
            self.sessions.silent_since(*silent)

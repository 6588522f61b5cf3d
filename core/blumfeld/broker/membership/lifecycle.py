"""A broker's membership: registration, heartbeats, and leaving (KIP-631, Kafka's ``BrokerLifecycleManager``).

The order protects what a former process of this node acknowledged. A broker registers first, which ends the
leaderships of the former process. Only when the image shows this registration may the broker open logs and lead. Were
it the other way round, a broker that comes back within its session would go on in its old leader epoch.

It sends KRaft's messages, but only through ``ClusterMetadata.submit``. So a consensus that isn't KRaft can serve the
same commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from blumfeld.metadata.partitions.directories import directory_of, is_reserved
from blumfeld.spi.cluster import BrokerImage, ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import NodeFailure, Timer, pause
from blumfeld.spi.storage import lasting
from blumfeld.wire.errors import BrokerError, ErrorCode, is_retriable, known_code
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.broker.composition import BrokerComposition

SUPPORTED_FEATURES = {
    "metadata.version": (30, 30),
    "eligible.leader.replicas.version": (0, 1),
    "kraft.version": (0, 1),
}
"""Feature levels of the core: name → (lowest, highest). Plug-ins bring others."""
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
RETRY_MS = 200
LEAVING_MS = 50
"""Interval of the heartbeats of a controlled shutdown."""
LISTENS_MS = 500
"""Longest wait of a start for the controller's answer that it knows the listeners to be open."""
WARN_MS = 10_000
"""Interval of the warnings while a start waits for the image."""
REPLACED = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED)
"""Errors of a heartbeat that say that the registration isn't this process's any more."""


class BrokerReplaced(NodeFailure):
    """Another process has registered with this node's id. The node ends: the controller refuses all that it asks for,
    and clients that still reach it would read what is out of date.
    """


class Lifecycle:
    """Registers this broker, then sends heartbeats until :meth:`shut_down`.

    A registration that is lost while the broker starts is made anew. It gets lost if a registration of an earlier
    process was under way for long, and reaches the controller behind this one. A process that was unfenced once
    registers again only if its log directories still hold its replicas, by the image: then no successor has taken over.
    Otherwise it ends (ADR 0019).
    """

    def __init__(self, composition: BrokerComposition) -> None:
        self.broker_epoch = -1
        self.fenced = True
        """Whether this broker is fenced, by the controller's last word."""
        self._ready = False
        """Whether the replicas are open, so that the controller may unfence this broker."""
        self._served = False
        """Whether this process was unfenced, or a later one with its id was. Then it may not register again."""
        self._shown_epoch = -1
        """The last of its broker epochs that this node's image has shown."""
        self.offline_dirs_told: tuple[bytes, ...] = ()
        """Ids of the offline log directories that the last answered heartbeat reported."""
        self._composition = composition
        self._runtime = composition.runtime
        self._events = composition.log("broker")
        self._timer: Timer | None = None
        self._beat_again = False
        self._beats = 0
        """Number of the last heartbeat. Only its answer orders the next one."""
        self._left = False
        """The shutdown is over: no heartbeat follows."""
        self._unfenced: Completion[None] | None = None
        self._known: Completion[None] | None = None
        """Ends with the answer to the heartbeat that tells the controller of open listeners."""
        self._leaving = False
        self._may_stop: Completion[None] | None = None

    async def register(self) -> None:
        """Register, and return when this node's image shows the registration. Heartbeats begin, and ask to stay fenced.

        Another process with this node's id is waited for: Kafka's broker does the same.

        :raises BrokerError: the registration was refused with another error that isn't retriable, or until
            ``initial.broker.registration.timeout.ms`` was over; DUPLICATE_BROKER_REGISTRATION: another process has
            taken this one's place, and serves
        """
        timeout_ms = self._composition.config.int("initial.broker.registration.timeout.ms")
        deadline_ms = self._runtime.monotonic_ms() + timeout_ms
        while self.broker_epoch < 0:
            try:
                await self._register_once(timeout_ms)
            except BrokerError as error:
                # The id's last process may have been killed: its session ends, or the controller finds it gone.
                duplicate = error.code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
                if not (error.retriable or duplicate) or self._runtime.monotonic_ms() >= deadline_ms:
                    raise
                await pause(self._runtime, RETRY_MS)
        self._timer = self._runtime.call_later(self._interval_ms(), self._beat)
        await self._in_image()

    async def _in_image(self) -> None:
        """Return when the image shows this registration: until then it may place replicas for an earlier process."""
        waited_ms = 0
        while not self._is_own(self._composition.metadata.image):
            self._look_for_successor(self._composition.metadata.image)
            await pause(self._runtime, RETRY_MS)
            waited_ms += RETRY_MS
            if waited_ms % WARN_MS == 0:
                self._events.warning("the image does not show this registration yet", waited_ms=waited_ms)
        self._shown_epoch = self.broker_epoch

    def _is_own(self, image: ClusterImage) -> bool:
        composition = self._composition
        own = image.brokers.get(composition.node_id)
        if own is None or own.epoch != self.broker_epoch:
            return False
        return own.incarnation_id == composition.incarnation_id

    async def unfence(self) -> None:
        """Ask to be unfenced, and return when the image shows it: all replicas are open.

        :raises BrokerError: DUPLICATE_BROKER_REGISTRATION: another process has taken this one's place, and serves
        :raises TimeoutError: not within ``initial.broker.registration.timeout.ms`` from now
        """
        self._look_for_successor(self._composition.metadata.image)
        timeout_ms = self._composition.config.int("initial.broker.registration.timeout.ms")
        self._ready = True
        self._unfenced = Completion()
        overdue = self._runtime.call_later(timeout_ms, self._give_up)
        self.beat_now()
        try:
            await self._unfenced
        finally:
            overdue.cancel()

    async def _register_once(self, timeout_ms: float) -> None:
        answer = await self._composition.metadata.submit(self._registration(), timeout_ms)
        assert isinstance(answer, BrokerRegistrationResponse)
        if answer.error_code:
            raise BrokerError(known_code(answer.error_code), self._why_refused(answer.error_code))
        self.broker_epoch = answer.broker_epoch

    def _why_refused(self, error_code: int) -> str:
        composition = self._composition
        if error_code != ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return "the controller refused to register this broker"
        other = composition.metadata.image.brokers.get(composition.node_id)
        at = "" if other is None else "".join(f", at {e.host}:{e.port}" for e in other.endpoints[:1])
        return (
            f"another process is node {composition.node_id}{at}, and did not end while this one waited: "
            "end it, or give this one another id (node.id)"
        )

    def _registration(self) -> BrokerRegistrationRequest:
        composition = self._composition
        storage = composition.storage
        kept = lasting(storage)
        ranges = dict(SUPPORTED_FEATURES)
        ranges.update({f.name: (f.min_level, f.max_level) for f in composition.features})
        return BrokerRegistrationRequest(
            broker_id=composition.node_id,
            cluster_id=composition.cluster_id,
            incarnation_id=composition.incarnation_id,
            listeners=[
                Listener(
                    name=listener.name,
                    host=listener.advertised_host or listener.host,
                    port=listener.advertised_port or listener.port,
                    security_protocol=SECURITY_PROTOCOLS.get(listener.security_protocol, 0),
                )
                for listener in composition.listeners
                if listener.kind == "broker"
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(ranges.items())
            ],
            rack=composition.rack,
            log_dirs=[info.directory_id for info in storage.log_dirs() if info.online],
            previous_broker_epoch=-1 if kept is None else kept.previous_broker_epoch(),
        )

    @property
    def session_timeout_ms(self) -> int:
        """``broker.session.timeout.ms``: the controller fences a broker after this time without a heartbeat."""
        return self._composition.config.int("broker.session.timeout.ms")

    def beat_now(self) -> None:
        """Send the next heartbeat at once, because it has urgent news (a failed log directory)."""
        if self.broker_epoch < 0 or self._leaving:
            return
        if self._timer is None:
            # A heartbeat is under way without the news: send another after its answer.
            self._beat_again = True
        else:
            self._timer.cancel()
            self._beat()

    async def listens(self) -> None:
        """Send a heartbeat, because the listeners are open now, and return with its answer, after ``LISTENS_MS`` at the
        latest. From then on the controller may take a port that refuses for a dead process (ADR 0033).
        """
        if self.broker_epoch < 0 or self._leaving:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._known = known = Completion[None]()
        limit = self._runtime.call_later(LISTENS_MS, self._listeners_known)
        self._beat()
        await known
        limit.cancel()
        self._known = None

    def _beat(self) -> None:
        self._timer = None
        self._beats = number = self._beats + 1
        storage = self._composition.storage
        offline = [
            d.directory_id for d in storage.log_dirs() if not d.online and not is_reserved(d.directory_id)
        ]
        request = BrokerHeartbeatRequest(
            broker_id=self._composition.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=max(self._shown_epoch, self._composition.metadata.applied_offset),
            want_fence=not self._ready or (self._leaving and self._alone()),
            want_shut_down=self._leaving,
            offline_log_dirs=offline,
        )
        answer = self._composition.metadata.submit(request, self.session_timeout_ms, wait_image=False)
        answer.when_done(lambda done: self._beaten(number, done, tuple(offline)))

    def _beaten(self, number: int, done: Completion[Message], offline: tuple[bytes, ...]) -> None:
        if self._left or number != self._beats:
            # The shutdown doesn't wait for a heartbeat that is under way, but sends the next one at once.
            return
        self._listeners_known()
        interval_ms = self._interval_ms()
        if done.error is not None:
            self._events.warning("heartbeat not answered", error=str(done.error))
            if self._may_stop is not None:
                self._stop_now()
                return
        else:
            answer = done.result()
            assert isinstance(answer, BrokerHeartbeatResponse)
            if answer.error_code and not is_retriable(answer.error_code):
                error = known_code(answer.error_code)
                if error != ErrorCode.STALE_BROKER_EPOCH or not self._is_own_later():
                    self._events.warning("heartbeat refused", error=error.name)
                if self._may_stop is not None:
                    self._stop_now()
                    return
                if not self._leaving and self._registration_lost(error):
                    return
            elif not answer.error_code:
                self.offline_dirs_told = offline
                self.fenced = answer.is_fenced
                self._served = self._served or not answer.is_fenced
                if answer.should_shut_down and self._may_stop is not None:
                    self._stop_now()
                    return
            if self._leaving:
                interval_ms = min(interval_ms, LEAVING_MS)
            elif self.fenced and self._ready:
                interval_ms = min(interval_ms, RETRY_MS)
        if self._beat_again:
            self._beat_again = False
            interval_ms = 0
        self._timer = self._runtime.call_later(interval_ms, self._beat)

    def _registration_lost(self, error: ErrorCode) -> bool:
        """Return whether the error says that another registration is in place of this one, and act on it."""
        if error == ErrorCode.STALE_BROKER_EPOCH and self._served:
            image = self._composition.metadata.image
            if not self._shows_later(image):
                self._timer = self._runtime.call_later(RETRY_MS, self._beat)  # the image is behind
            elif self._may_register_again(image):
                self._register_again()
            else:
                self._end()
            return True
        if error in REPLACED and not self._served:
            self._register_again()
            return True
        return False

    def _shows_later(self, image: ClusterImage) -> bool:
        """Whether the image shows a later registration than the one whose epoch this process has."""
        shown = image.brokers.get(self._composition.node_id)
        return shown is not None and shown.epoch > self.broker_epoch

    def _is_own_later(self) -> bool:
        """Whether the later registration that the image shows is this process's own: its answer got lost, or a
        ZooKeeper's next session has begun."""
        image, composition = self._composition.metadata.image, self._composition
        shown = image.brokers.get(composition.node_id)
        own = shown is not None and shown.incarnation_id == composition.incarnation_id
        return own and self._shows_later(image)

    def _may_register_again(self, image: ClusterImage) -> bool:
        """Whether no other process stands behind the later registration that the image shows.

        It is this process's own if an answer got lost. Otherwise it must be fenced, and every replica of this broker
        must lie in a directory of this process. A successor with other directories takes the replicas over; one with
        the same can't be there, because this process has their locks.
        """
        node_id = self._composition.node_id
        shown = image.brokers[node_id]
        if shown.incarnation_id == self._composition.incarnation_id:
            return True
        if not shown.fenced:
            return False
        own = {directory.directory_id for directory in self._composition.storage.log_dirs()}
        reported = {
            directory_of(partition, node_id)
            for topic in image.topics.values()
            for partition in topic.partitions.values()
            if node_id in partition.replicas
        }
        reported = {directory_id for directory_id in reported if not is_reserved(directory_id)}
        return bool(reported) and reported <= own

    def _end(self) -> None:
        self._runtime.spawn(_end_of(self._composition.node_id), "membership")

    def _register_again(self) -> None:
        """Register anew: another registration has taken the place of this process's. The controller refuses that if it
        hears from the other process: of two that start, one gets the id.
        """
        if self._is_own_later():
            self._events.info("this process is registered anew", broker_epoch=self.broker_epoch)
        else:
            self._events.warning("another registration took this one's place", broker_epoch=self.broker_epoch)
        number = self._beats
        sent = self._composition.metadata.submit(
            self._registration(), self.session_timeout_ms, wait_image=False
        )
        sent.when_done(lambda done: self._registered_again(number, done))

    def _registered_again(self, number: int, done: Completion[Message]) -> None:
        delay_ms: float = RETRY_MS
        if done.error is not None:
            self._events.warning("registration not answered", error=str(done.error))
        else:
            answer = done.result()
            assert isinstance(answer, BrokerRegistrationResponse)
            duplicate = answer.error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
            if duplicate and self._served and not self._leaving:
                self._end()  # the controller hears from the other process
                return
            if answer.error_code:
                self._events.warning("registration refused", error=known_code(answer.error_code).name)
            else:
                self.broker_epoch = answer.broker_epoch
                # At once: from this heartbeat on the controller refuses the registration of another process.
                delay_ms = 0
        if not self._leaving and number == self._beats:
            self._timer = self._runtime.call_later(delay_ms, self._beat)

    def _listeners_known(self) -> None:
        if self._known is not None and not self._known.done:
            self._known.complete(None)

    def _interval_ms(self) -> float:
        return self._composition.config.int("broker.heartbeat.interval.ms")

    def image_changed(self, image: ClusterImage, changed: Sequence[int] = ()) -> None:
        """Take the fenced state from the image: it is newer than the last heartbeat's answer. Call it when the delta
        is applied: a start that waits to be unfenced goes on then.

        A broker that begins its controlled shutdown may stop when all others have read that, by their heartbeats. So
        one is sent at once, where Kafka's brokers let it wait for their next one.

        :param changed: ids of the brokers that changed
        """
        if any(self._leaves(image.brokers.get(broker_id)) for broker_id in changed):
            self.beat_now()
        if not self._is_own(image):
            if self._composition.node_id in changed:
                self._not_shown(image)
            return
        self._shown_epoch = self.broker_epoch
        self.fenced = image.brokers[self._composition.node_id].fenced
        self._served = self._served or not self.fenced
        if not self.fenced and self._unfenced is not None and not self._unfenced.done:
            self._unfenced.complete(None)

    def _not_shown(self, image: ClusterImage) -> None:
        """The image shows another registration of this id, or none. It is an older one as long as the image is behind.

        A start needn't wait for its next heartbeat to hear of it from the controller.
        """
        if self._served:
            if self._shows_later(image):
                self.beat_now()  # the controller says whether it counts
            return
        try:
            self._look_for_successor(image)
        except BrokerError as error:
            if self._unfenced is not None and not self._unfenced.done:
                self._unfenced.fail(error)
            return
        own = image.brokers.get(self._composition.node_id)
        if own is None or own.epoch > self.broker_epoch:
            self.beat_now()

    def _look_for_successor(self, image: ClusterImage) -> None:
        """Give up for good if another process has registered behind this one and was unfenced: it is the successor.

        :raises BrokerError: DUPLICATE_BROKER_REGISTRATION
        """
        own = image.brokers.get(self._composition.node_id)
        if own is None or own.fenced or own.epoch <= self.broker_epoch:
            return
        if own.incarnation_id != self._composition.incarnation_id:
            self._served = True
            raise BrokerError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"another process with node id {own.broker_id} has registered behind this one, and serves",
            )

    def _leaves(self, broker: BrokerImage | None) -> bool:
        """Whether another broker is in its controlled shutdown."""
        if broker is None or broker.broker_id == self._composition.node_id:
            return False
        return broker.in_controlled_shutdown and not broker.fenced

    def _give_up(self) -> None:
        if self._unfenced is not None and not self._unfenced.done:
            self._unfenced.fail(TimeoutError("the controller did not unfence this broker in time"))

    async def shut_down(self) -> None:
        """Ask the controller to move leadership away (``controlled.shutdown.enable``).

        Returns when the controller allows the shutdown, when a heartbeat fails, or after ``broker.session.timeout.ms``.
        """
        if self.broker_epoch < 0 or self._leaving:
            return
        self._leaving = True
        if self._timer is not None:
            self._timer.cancel()
        if self._composition.config.bool("controlled.shutdown.enable"):
            self._may_stop = Completion()
            limit = self._runtime.call_later(self.session_timeout_ms, self._stop_now)
            self._beat()
            await self._may_stop
            limit.cancel()
        self._left = True
        if self._timer is not None:
            self._timer.cancel()

    def _alone(self) -> bool:
        """Whether no other broker could take over leadership. Then the last heartbeat asks to be fenced.

        A node that starts on this directory next (Apache Kafka, too) then needn't wait for the session to expire.
        """
        own = self._composition.node_id
        return all(b.fenced or b.broker_id == own for b in self._composition.metadata.image.brokers.values())

    def _stop_now(self) -> None:
        if self._may_stop is not None and not self._may_stop.done:
            self._may_stop.complete(None)


async def _end_of(node_id: int) -> None:
    raise BrokerReplaced(
        f"another process has registered with node id {node_id}, and this one can't serve any more"
    )

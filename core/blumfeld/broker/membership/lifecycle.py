"""A broker's membership: registration, heartbeats, and leaving (KIP-631, Kafka's ``BrokerLifecycleManager``).

It sends KRaft's messages, but only through ``ClusterMetadata.submit``. So a consensus that isn't KRaft can serve the
same commands.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blumfeld.metadata.partitions.directories import is_reserved
from blumfeld.spi.cluster import ClusterImage
from blumfeld.spi.completion import Completion
from blumfeld.spi.runtime import Timer
from blumfeld.spi.storage import lasting
from blumfeld.wire.errors import BrokerError, ErrorCode, is_retriable
from blumfeld.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from blumfeld.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from blumfeld.wire.schema import Message

if TYPE_CHECKING:
    from blumfeld.broker.ports import BrokerComposition

SUPPORTED_FEATURES = {"metadata.version": (30, 30)}
"""Feature levels of the core: name → (lowest, highest). Plug-ins bring others."""
SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
RETRY_MS = 200


class Lifecycle:
    """Registers this broker once, then sends heartbeats until :meth:`shut_down`."""

    def __init__(self, composition: BrokerComposition) -> None:
        self.broker_epoch = -1
        self.fenced = True
        """Whether this broker is fenced, by the controller's last word."""
        self.offline_dirs_told: tuple[bytes, ...] = ()
        """Ids of the offline log directories that the last answered heartbeat reported."""
        self._composition = composition
        self._runtime = composition.runtime
        self._events = composition.log("broker")
        self._timer: Timer | None = None
        self._beat_again = False
        self._unfenced: Completion[None] | None = None
        self._leaving = False
        self._may_stop: Completion[None] | None = None

    async def register(self) -> None:
        """Register, and wait until the controller has unfenced this broker.

        :raises BrokerError: the registration was refused with an error that isn't retriable, or until the time was up
        :raises TimeoutError: not unfenced within ``initial.broker.registration.timeout.ms``
        """
        timeout_ms = self._composition.config.int("initial.broker.registration.timeout.ms")
        deadline_ms = self._runtime.monotonic_ms() + timeout_ms
        while self.broker_epoch < 0:
            try:
                await self._register_once(timeout_ms)
            except BrokerError as error:
                if not error.retriable or self._runtime.monotonic_ms() >= deadline_ms:
                    raise
                await self._sleep(RETRY_MS)
        self._unfenced = Completion()
        overdue = self._runtime.call_later(deadline_ms - self._runtime.monotonic_ms(), self._give_up)
        self._beat()
        await self._unfenced
        overdue.cancel()

    async def _register_once(self, timeout_ms: float) -> None:
        answer = await self._composition.metadata.submit(self._registration(), timeout_ms)
        assert isinstance(answer, BrokerRegistrationResponse)
        if answer.error_code:
            raise BrokerError(ErrorCode(answer.error_code), "the controller refused to register this broker")
        self.broker_epoch = answer.broker_epoch

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

    def _beat(self) -> None:
        self._timer = None
        storage = self._composition.storage
        offline = [
            d.directory_id for d in storage.log_dirs() if not d.online and not is_reserved(d.directory_id)
        ]
        request = BrokerHeartbeatRequest(
            broker_id=self._composition.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._metadata_offset(),
            want_fence=self._leaving and self._alone(),
            want_shut_down=self._leaving,
            offline_log_dirs=offline,
        )
        answer = self._composition.metadata.submit(request, self.session_timeout_ms)
        answer.when_done(lambda done: self._beaten(done, tuple(offline)))

    def _metadata_offset(self) -> int:
        """Offset up to which this node's image is complete. It has our registration at least, because ``submit``
        answers only when its change is in the image."""
        quorum = self._composition.metadata.quorum()
        return self.broker_epoch if quorum is None else max(self.broker_epoch, quorum.high_watermark - 1)

    def _beaten(self, done: Completion[Message], offline: tuple[bytes, ...]) -> None:
        interval_ms: float = self._composition.config.int("broker.heartbeat.interval.ms")
        if done.error is not None:
            self._events.warning("heartbeat not answered", error=str(done.error))
            if self._may_stop is not None:
                self._stop_now()
                return
        else:
            answer = done.result()
            assert isinstance(answer, BrokerHeartbeatResponse)
            if answer.error_code and not is_retriable(answer.error_code):
                self._events.warning("heartbeat refused", error=ErrorCode(answer.error_code).name)
                if self._may_stop is not None:
                    self._stop_now()
                    return
            elif not answer.error_code:
                self.offline_dirs_told = offline
                self._heard(answer)
                if answer.should_shut_down and self._may_stop is not None:
                    self._stop_now()
                    return
            if self.fenced or self._leaving:
                interval_ms = min(interval_ms, RETRY_MS)
        if self._beat_again:
            self._beat_again = False
            interval_ms = 0
        self._timer = self._runtime.call_later(interval_ms, self._beat)

    def _heard(self, answer: BrokerHeartbeatResponse) -> None:
        self.fenced = answer.is_fenced
        if not self.fenced and self._unfenced is not None and not self._unfenced.done:
            self._unfenced.complete(None)

    def image_changed(self, image: ClusterImage) -> None:
        """Take the fenced state from the image: it is newer than the last heartbeat's answer."""
        own = image.brokers.get(self._composition.node_id)
        if own is not None and own.epoch == self.broker_epoch:
            self.fenced = own.fenced

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

    async def _sleep(self, delay_ms: float) -> None:
        over: Completion[None] = Completion()
        self._runtime.call_later(delay_ms, lambda: over.complete(None))
        await over

"""Commands that another node decides on: sent to the quorum's leader, again and again until the time is over (KIP-590).

A client's request travels in an Envelope, with the client's principal. The node's own requests go as they are.

The response names no offset of the log. So a command that waits for the image sends DescribeQuorum behind itself on
the same connection: its answer has a high watermark that contains the decision, at no further round trip.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from blumfeld.client.envelope import enveloped, inner_answer
from blumfeld.client.frames import api_key_of
from blumfeld.spi.completion import Completion
from blumfeld.spi.consensus import OnBehalf
from blumfeld.spi.internal_topics import CLUSTER_METADATA_TOPIC
from blumfeld.spi.peers import PeerChannel
from blumfeld.spi.runtime import Runtime, Timer
from blumfeld.wire.api import API_BY_KEY
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.first_error import first_error
from blumfeld.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    RequestPartitionData,
    RequestTopicData,
)
from blumfeld.wire.messages.envelope import EnvelopeResponse
from blumfeld.wire.primitives import DecodeError
from blumfeld.wire.schema import Message

RETRY_MS = 50
"""Pause before the leader is asked again that refused, or couldn't be reached."""


class ForwardedCommand(msgspec.Struct, eq=False):
    """A command that waits for the controller's answer."""

    command: Message
    deadline_ms: float
    on_behalf: OnBehalf | None
    wait_image: bool
    answer: Completion[Message]
    """Completes with the response, when the image may show it (``image_at_least``)."""
    timer: Timer
    """Fires when its time is over."""
    retry: Timer | None = None
    """Asks the leader again; ``None`` while an answer is awaited."""
    attempt: int = 0
    response: Message | None = None
    """The controller's answer, while the image doesn't show its outcome; ``None`` before there is one."""


class OwnController:
    """Stands for the channel to the leader when this node leads itself.

    :param submit: as ``ClusterMetadata.submit`` of a node that leads
    """

    def __init__(self, submit: Callable[..., Completion[Message]]) -> None:
        self._submit = submit

    def send(
        self,
        request: Message,
        timeout_ms: float,
        *,
        on_behalf: OnBehalf | None = None,
        wait_image: bool = False,
    ) -> Completion[Message]:
        """Have this node's controller decide. It waits for the image itself, if it has to."""
        return self._submit(request, timeout_ms, on_behalf=on_behalf, wait_image=wait_image)


class Forwarder:
    """Sends commands to the leader of the quorum.

    :param channel: the channel to the leader for forwarded requests; ``None`` while no leader is known
    :param when_shown: calls back when the image contains everything below an offset
    """

    def __init__(
        self,
        runtime: Runtime,
        channel: Callable[[], PeerChannel | OwnController | None],
        when_shown: Callable[[int, Callable[[], None]], None],
    ) -> None:
        self._runtime = runtime
        self._channel = channel
        self._when_shown = when_shown
        self._waiting: dict[ForwardedCommand, None] = {}
        self._correlation = 0

    def submit(
        self, command: Message, timeout_ms: float, on_behalf: OnBehalf | None, *, wait_image: bool
    ) -> Completion[Message]:
        """Send a command. Fails with BrokerError: REQUEST_TIMED_OUT, UNSUPPORTED_VERSION."""
        deadline_ms = self._runtime.monotonic_ms() + timeout_ms
        timer = self._runtime.call_later(timeout_ms, lambda: self._expire(forwarded_command))
        forwarded_command = ForwardedCommand(command, deadline_ms, on_behalf, wait_image, Completion(), timer)
        self._waiting[forwarded_command] = None
        self._try(forwarded_command)
        return forwarded_command.answer

    def leader_changed(self) -> None:
        """Another leader is known: ask it what the last one didn't answer.

        Also what is under way to that one: a process that is stopped, or cut off, keeps its connections. It may have
        decided, so a command can be decided twice, as in Kafka.
        """
        for forwarded_command in list(self._waiting):
            if forwarded_command.response is None:
                self._try(forwarded_command)
            else:
                self._ask_again(forwarded_command, forwarded_command.response)

    def stop(self, error: BrokerError) -> None:
        """Fail all that waits."""
        for forwarded_command in list(self._waiting):
            self._fail(forwarded_command, error)

    def _try(self, forwarded_command: ForwardedCommand) -> None:
        if forwarded_command.retry is not None:
            forwarded_command.retry.cancel()
            forwarded_command.retry = None
        channel = self._channel()
        if channel is None:
            self._later(forwarded_command)
            return
        left_ms = max(forwarded_command.deadline_ms - self._runtime.monotonic_ms(), 1.0)
        forwarded_command.attempt += 1
        waits, version = forwarded_command.wait_image, -1
        if isinstance(channel, OwnController):
            sent = channel.send(
                forwarded_command.command,
                left_ms,
                on_behalf=forwarded_command.on_behalf,
                wait_image=forwarded_command.wait_image,
            )
            waits = False
        elif forwarded_command.on_behalf is None:
            sent = channel.send(forwarded_command.command, left_ms)
        else:
            self._correlation += 1
            version = API_BY_KEY[api_key_of(forwarded_command.command)].max_version
            sent = channel.send(
                enveloped(forwarded_command.command, version, self._correlation, forwarded_command.on_behalf),
                left_ms,
            )
        high_watermark = self._asked_high_watermark(channel, left_ms) if waits else None
        attempt = forwarded_command.attempt
        sent.when_done(lambda done: self._answered(forwarded_command, attempt, done, version, high_watermark))

    def _asked_high_watermark(
        self, channel: PeerChannel | OwnController, timeout_ms: float
    ) -> Completion[int]:
        high_watermark: Completion[int] = Completion()
        topic = RequestTopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=[RequestPartitionData()])

        def done(answer: Completion[Message]) -> None:
            message = None if answer.error is not None else answer.result()
            offset = -1
            if isinstance(message, DescribeQuorumResponse) and message.topics:
                offset = message.topics[0].partitions[0].high_watermark
            high_watermark.complete(offset)

        channel.send(DescribeQuorumRequest(topics=[topic]), timeout_ms).when_done(done)
        return high_watermark

    def _answered(
        self,
        forwarded_command: ForwardedCommand,
        attempt: int,
        done: Completion[Message],
        version: int,
        shown: Completion[int] | None,
    ) -> None:
        if forwarded_command.answer.done or forwarded_command.response is not None:
            return
        is_last = (
            attempt == forwarded_command.attempt
        )  # else another leader has been asked, and only an answer counts
        try:
            message = done.result()
            if isinstance(message, EnvelopeResponse):
                message = inner_answer(message, api_key_of(forwarded_command.command), version)
        except (OSError, DecodeError):  # TimeoutError is an OSError
            if is_last:
                self._later(forwarded_command)
            return
        except BrokerError as error:
            if error.code != ErrorCode.NOT_CONTROLLER:
                self._fail(forwarded_command, error)
            elif is_last:
                self._later(forwarded_command)
            return
        if first_error(message) == ErrorCode.NOT_CONTROLLER:
            if is_last:
                self._later(forwarded_command)
        elif shown is None:
            self._succeed(forwarded_command, message)
        else:
            forwarded_command.response = message
            shown.when_done(lambda at: self._settle_when_shown(forwarded_command, message, at.result()))

    def _settle_when_shown(
        self, forwarded_command: ForwardedCommand, response: Message, high_watermark: int
    ) -> None:
        if forwarded_command.answer.done:
            return
        if high_watermark >= 0:
            self._when_shown(high_watermark, lambda: self._succeed(forwarded_command, response))
            return
        # The leader resigned, or was lost, behind its answer: the next one knows what is committed.
        self._runtime.call_later(RETRY_MS, lambda: self._ask_again(forwarded_command, response))

    def _ask_again(self, forwarded_command: ForwardedCommand, response: Message) -> None:
        channel = self._channel()
        if forwarded_command.answer.done or channel is None:
            self._settle_when_shown(forwarded_command, response, -1)
            return
        high_watermark = self._asked_high_watermark(
            channel, max(forwarded_command.deadline_ms - self._runtime.monotonic_ms(), 1.0)
        )
        high_watermark.when_done(lambda at: self._settle_when_shown(forwarded_command, response, at.result()))

    def _later(self, forwarded_command: ForwardedCommand) -> None:
        forwarded_command.retry = self._runtime.call_later(RETRY_MS, lambda: self._try(forwarded_command))

    def _expire(self, forwarded_command: ForwardedCommand) -> None:
        self._fail(
            forwarded_command, BrokerError(ErrorCode.REQUEST_TIMED_OUT, "no controller answered in time")
        )

    def _succeed(self, forwarded_command: ForwardedCommand, response: Message) -> None:
        self._forget(forwarded_command)
        if not forwarded_command.answer.done:
            forwarded_command.answer.complete(response)

    def _fail(self, forwarded_command: ForwardedCommand, error: BrokerError) -> None:
        self._forget(forwarded_command)
        if not forwarded_command.answer.done:
            forwarded_command.answer.fail(error)

    def _forget(self, forwarded_command: ForwardedCommand) -> None:
        self._waiting.pop(forwarded_command, None)
        forwarded_command.timer.cancel()
        if forwarded_command.retry is not None:
            forwarded_command.retry.cancel()

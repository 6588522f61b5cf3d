"""Envelope (key 58), v0: a request that another node forwards to the controller on behalf of a client (KIP-590).

It is served on controller listeners only. The outer principal needs ClusterAction; the inner request is authorized with
its own principal.
"""

from __future__ import annotations

from blumfeld.broker.handlers.controller_requests import check_controller, is_controller
from blumfeld.broker.ports import Ports
from blumfeld.client.envelope import Forwarded, inner_answer, read_envelope
from blumfeld.spi.completion import Completion
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.wire.errors import BrokerError, ErrorCode
from blumfeld.wire.first_error import first_error
from blumfeld.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from blumfeld.wire.schema import Message


def handlers(ports: Ports) -> list[ApiHandler]:
    """Returns the handler of Envelope."""
    handler = ApiHandler(
        key=58,
        min_version=0,
        max_version=0,
        listeners=("controller",),
        handle=Envelope(ports).handle,
        error_response=failed,
    )
    return [handler]


def failed(_request: EnvelopeRequest, code: int, _message: str | None) -> EnvelopeResponse:
    """Returns an Envelope with this error and without an answer."""
    return EnvelopeResponse(error_code=code)


class Envelope:
    """Serves the inner request, if this node is the controller."""

    def __init__(self, ports: Ports) -> None:
        self._ports = ports

    def handle(self, request: EnvelopeRequest, context: RequestContext) -> Completion[Message]:
        """Answer with the answer to the inner request.

        :raises BrokerError: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER (the other node looks for the controller and
            forwards again), and the errors of :func:`~blumfeld.client.envelope.read_envelope`
        """
        if not context.authorize("ClusterAction", "Cluster", "kafka-cluster"):
            raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        # First: a node that isn't the controller would put the inner request into another Envelope.
        check_controller(self._ports)
        forwarded = read_envelope(request)
        answered: Completion[Message] = Completion()

        def done(inner: Completion[bytes]) -> None:
            if inner.error is not None:
                answered.fail(inner.error)
                return
            answer = EnvelopeResponse(response_data=inner.result())
            if self._lost_control(forwarded, answer):
                answered.fail(BrokerError(ErrorCode.NOT_CONTROLLER))
            else:
                answered.complete(answer)

        self._ports.serve_inner(forwarded, context).when_done(done)
        return answered

    def _lost_control(self, forwarded: Forwarded, answer: EnvelopeResponse) -> bool:
        """Whether the answer says NOT_CONTROLLER. The other node forwards again then; its client must not see it."""
        if is_controller(self._ports):
            return False
        # A request that failed so has this error in every item, so the first tells.
        inner = inner_answer(answer, forwarded.api_key, forwarded.api_version)
        return first_error(inner) == ErrorCode.NOT_CONTROLLER

"""The document of a running node, over Kafka's protocol or from its metrics port."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Thread

from blumfeld.cli.plan.errors import NoPlanError
from blumfeld.client.asyncio_connection import AsyncioConnection, connect
from blumfeld.client.errors import NoCommonVersionError, NotSecuredError, NotServedError, RefusedError
from blumfeld.client.security.command_config import PLAINTEXT, ClientSecurity
from blumfeld.client.versions import SPOKEN
from blumfeld.config.addresses import address_text
from blumfeld.config.definitions import BUILD_KEY
from blumfeld.kernel.description.document import PlanDocument, decode_document
from blumfeld.spi.cluster import BROKER_RESOURCE
from blumfeld.wire.errors import ErrorCode
from blumfeld.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from blumfeld.wire.messages.metadata import MetadataRequest, MetadataResponse

CLIENT_ID = "blumfeld-plan"
ANSWER_S_MAX = 5.0
"""Longest wait for all answers of a node."""
PLAN_BYTES_MAX = 1 << 24
"""Largest document that is read: a zip may hold a small file that becomes a large one."""
_METRICS = "`--of http://HOST:PORT` asks the metrics port instead"


def plan_of_broker(host: str, port: int, security: ClientSecurity = PLAINTEXT) -> PlanDocument:
    """Returns the document of the broker that listens there.

    :raises NoPlanError: it can't be reached, doesn't answer, refuses, or is no Blumfeld
    """
    return asyncio.run(_within_time(host, port, security))


async def _within_time(host: str, port: int, security: ClientSecurity) -> PlanDocument:
    where = address_text(host, port)
    try:
        async with asyncio.timeout(ANSWER_S_MAX):
            try:
                connection = await connect(host, port, CLIENT_ID, security)
            except (NotSecuredError, NotServedError) as error:
                raise NoPlanError(where, error.reason) from None
            except OSError as error:
                raise NoPlanError(where, f"not reachable: {error.strerror or error}") from None
            try:
                return await _asked(connection, where)
            finally:
                connection.close()
    except TimeoutError:
        may_be = f"a broker that is stuck, another protocol, or a listener with TLS; {_METRICS}"
        raise NoPlanError(where, f"no answer within {ANSWER_S_MAX:g} s: {may_be}") from None


async def _asked(connection: AsyncioConnection, where: str) -> PlanDocument:
    try:
        await connection.negotiate(SPOKEN)
        known = await connection.ask(MetadataRequest(topics=[]), MetadataResponse)
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=BROKER_RESOURCE,
                    resource_name=str(broker.node_id),
                    configuration_keys=[BUILD_KEY],
                )
                for broker in known.brokers
            ]
        )
        answer = await connection.ask(request, DescribeConfigsResponse)
    except NotSecuredError as error:
        raise NoPlanError(where, error.reason) from None
    except NotServedError as error:
        raise NoPlanError(where, f"{error.reason} (--command-config FILE). Or {_METRICS}") from None
    except ConnectionError as error:
        may_be = f"a broker that stops, or a server of another protocol; {_METRICS}"
        raise NoPlanError(where, f"it hung up ({error}): {may_be}") from None
    except NoCommonVersionError:
        raise NoPlanError(
            where, f"no DescribeConfigs there: ask a listener of kind broker; {_METRICS}"
        ) from None
    except RefusedError as error:
        raise NoPlanError(where, f"no Kafka broker answers there: {error}") from None
    return _document(answer.results, where)


def _document(results: Sequence[DescribeConfigsResult], where: str) -> PlanDocument:
    """Returns the document in the answers. The broker answers for itself alone, and refuses the others' names."""
    described = [result for result in results if not result.error_code]
    if not described:
        codes = {result.error_code: result.error_message for result in results}
        if ErrorCode.CLUSTER_AUTHORIZATION_FAILED in codes:
            needed = "this client may not DescribeConfigs on the cluster"
            raise NoPlanError(where, f"not authorised: {needed}; {_METRICS}")
        raise NoPlanError(
            where, f"it doesn't describe itself: {'; '.join(map(str, codes.values())) or 'no broker'}"
        )
    values = [config.value for result in described for config in result.configs if _is_build(config)]
    if not values or values[0] is None:
        raise NoPlanError(
            where, f"a Kafka broker, but no Blumfeld that knows its build: it has no {BUILD_KEY}"
        )
    return decoded(values[0], where)


def _is_build(config: DescribeConfigsResourceResult) -> bool:
    return config.name == BUILD_KEY


def plan_of_url(url: str) -> PlanDocument:
    """Returns the document at ``/build`` of a metrics port.

    :param url: ``http://HOST:PORT``, with or without ``/build``
    :raises NoPlanError: it can't be reached, or what it answers is no document
    """
    address = url if url.rstrip("/").endswith("/build") else url.rstrip("/") + "/build"
    outcome: list[bytes | NoPlanError] = []
    # A server may send a byte now and then for ever, and urllib's time-out is for each of them.
    asking = Thread(target=lambda: outcome.append(_content(address)), daemon=True)
    asking.start()
    asking.join(ANSWER_S_MAX)
    if not outcome:
        raise NoPlanError(address, f"no whole answer within {ANSWER_S_MAX:g} s")
    if isinstance(outcome[0], NoPlanError):
        raise outcome[0]
    return decoded(outcome[0], address)


def _content(address: str) -> bytes | NoPlanError:
    from http.client import HTTPException
    from urllib.error import HTTPError, URLError
    from urllib.request import urlopen

    try:
        with urlopen(address, timeout=2 * ANSWER_S_MAX) as answer:
            return answer.read(PLAN_BYTES_MAX)  # type: ignore[no-any-return]
    except HTTPError as error:
        why = f"HTTP {error.code}: no metrics port of a Blumfeld that knows its build"
    except URLError as error:
        why = f"not reachable: {error.reason}"
    except HTTPException as error:
        why = f"no HTTP that can be read: {error!r}"
    except (OSError, ValueError) as error:
        why = f"not reachable: {error}"
    return NoPlanError(address, why)


def decoded(data: bytes | str, where: str) -> PlanDocument:
    """Returns the document in JSON.

    :raises NoPlanError: it is none
    """
    try:
        return decode_document(data)
    except ValueError as error:
        raise NoPlanError(where, str(error)) from None

"""Every failure of obstore becomes the StoreError that its caller can act on, in time, and shows no secret."""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any

import pytest

from blumfeld.spi.object_store import (
    ObjectExistsError,
    ObjectInfo,
    ObjectNotFoundError,
    ObjectStore,
    StoreDeniedError,
    StoreError,
    StoreMisconfiguredError,
    StoreUnavailableError,
)
from blumfeld_kit.fakes.real_time import RealTimeRuntime
from blumfeld_storage_tiered.stores.failures import is_behind_the_end, store_error
from blumfeld_storage_tiered.stores.opening import open_store
from blumfeld_storage_tiered.stores.options import RequestOptions, S3Options, StoreOptions
from tests.everyday import for_each
from tests.plugins.storage_tiered.stores.s3_answers import Answer, Answers, s3_answers

SECRET = "wJalrXUtnFEMIsecretK7MDENG"
QUICK = RequestOptions(connect_timeout_ms=500, request_timeout_ms=300, retries=1, retry_timeout_ms=400)


@pytest.fixture(scope="module")
def runtime() -> Iterator[RealTimeRuntime]:
    """A runtime on asyncio's loop."""
    runtime = RealTimeRuntime()
    yield runtime
    runtime.end()


@pytest.fixture(scope="module")
def server() -> Iterator[Answers]:
    """A server that says what a test wants."""
    with s3_answers() as answers:
        yield answers


@pytest.fixture(autouse=True)
def _credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAEXAMPLE")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setenv("AWS_SESSION_TOKEN", f"token-{SECRET}")


def s3(runtime: RealTimeRuntime, endpoint: str, requests: RequestOptions = QUICK) -> ObjectStore:
    return open_store(
        "s3://ticks/archive", runtime, StoreOptions(requests=requests, s3=S3Options(endpoint=endpoint)), {}
    )


async def listed(store: ObjectStore) -> list[ObjectInfo]:
    return [info async for info in store.list("a/")]


async def parts() -> AsyncIterator[bytes]:
    for _ in range(3):
        yield bytes(4 << 20)


CALLS = ("put", "put_if_absent", "put_parts", "get_range", "head", "list", "delete")


def call(store: ObjectStore, name: str) -> Coroutine[Any, Any, Any]:
    """The coroutine of one call."""
    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "put": lambda: store.put("a/b", b"x"),
        "put_if_absent": lambda: store.put("a/b", b"x", if_absent=True),
        "put_parts": lambda: store.put_parts("a/b", parts()),
        "get_range": lambda: store.get_range("a/b", 0, 5),
        "head": lambda: store.head("a/b"),
        "list": lambda: listed(store),
        "delete": lambda: store.delete("a/b"),
    }
    return calls[name]()


ANSWERS: list[tuple[Answer, type[StoreError], tuple[str, ...]]] = [
    (Answer(403, "AccessDenied"), StoreDeniedError, CALLS),
    (Answer(403, "InvalidAccessKeyId"), StoreDeniedError, CALLS),
    (Answer(403, "RequestTimeTooSkewed"), StoreDeniedError, CALLS),
    (Answer(401, "Unauthorized"), StoreDeniedError, CALLS),
    (Answer(400, "ExpiredToken"), StoreDeniedError, tuple(c for c in CALLS if c != "head")),
    (Answer(404, "NoSuchKey"), ObjectNotFoundError, ("get_range", "head")),
    (Answer(404, "NoSuchBucket"), StoreMisconfiguredError, tuple(c for c in CALLS if c != "head")),
    (Answer(301, "PermanentRedirect"), StoreMisconfiguredError, CALLS),
    (Answer(400, "InvalidRequest"), StoreMisconfiguredError, CALLS),
    (Answer(501, "NotImplemented"), StoreMisconfiguredError, ("put_if_absent",)),
    (Answer(412, "PreconditionFailed"), ObjectExistsError, ("put_if_absent",)),
    (Answer(409, "BlobAlreadyExists"), ObjectExistsError, ("put_if_absent",)),
    (Answer(409, "ConditionalRequestConflict"), StoreUnavailableError, ("put_if_absent",)),
    (Answer(503, "SlowDown"), StoreUnavailableError, CALLS),
    (Answer(429, "TooManyRequests"), StoreUnavailableError, CALLS),
    (Answer(500, "InternalError"), StoreUnavailableError, CALLS),
    (Answer(drops=True), StoreUnavailableError, CALLS),
]


@pytest.mark.parametrize(("answer", "kind", "calls"), ANSWERS, ids=lambda value: getattr(value, "code", None))
def test_an_answer_becomes_the_error_that_says_what_to_do(
    runtime: RealTimeRuntime, server: Answers, answer: Answer, kind: type[StoreError], calls: tuple[str, ...]
) -> None:
    server.answer = answer
    for name in calls:
        store = s3(runtime, server.endpoint)
        with pytest.raises(StoreError) as raised:
            runtime.run(call(store, name))
        assert type(raised.value) is kind, (name, raised.value)
        text = "".join(traceback.format_exception(raised.value))
        assert SECRET not in text
        assert '"s3://ticks/archive"' in str(raised.value)
        if answer.status not in (200, 301):
            assert f"status {answer.status}" in str(raised.value)
        assert kind.retriable is (kind in (StoreDeniedError, StoreUnavailableError))


def test_a_store_that_does_not_answer_is_given_up_in_time(runtime: RealTimeRuntime, server: Answers) -> None:
    server.answer = Answer(delay_s=0.6)
    store = s3(runtime, server.endpoint)
    for name in ("put", "get_range"):
        begun = time.monotonic()
        with pytest.raises(StoreUnavailableError):
            runtime.run(call(store, name))
        assert time.monotonic() - begun < QUICK.call_timeout_ms / 1000 + 0.5


def test_a_host_that_is_not_there_is_unavailable(runtime: RealTimeRuntime) -> None:
    with s3_answers() as gone:
        endpoint = gone.endpoint
    with pytest.raises(StoreUnavailableError):
        runtime.run(call(s3(runtime, endpoint), "put"))


def test_a_request_is_tried_again_as_often_as_the_options_say(
    runtime: RealTimeRuntime, server: Answers
) -> None:
    server.answer = Answer(503, "SlowDown")
    for retries in (0, 2):
        server.requests.clear()
        requests = RequestOptions(request_timeout_ms=2000, retries=retries, retry_timeout_ms=3000)
        with pytest.raises(StoreUnavailableError):
            runtime.run(call(s3(runtime, server.endpoint, requests), "get_range"))
        assert len(server.requests) == retries + 1


def test_without_credentials_the_error_says_where_they_come_from(
    runtime: RealTimeRuntime, server: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", server.endpoint)  # never ask the network of this machine
    server.answer = Answer(404)
    with pytest.raises(StoreDeniedError, match="no credentials were found: set them in the environment"):
        runtime.run(call(s3(runtime, server.endpoint), "put"))


def test_a_cancelled_call_ends_at_once_and_the_store_can_be_used_again(
    runtime: RealTimeRuntime, server: Answers
) -> None:
    server.answer = Answer(delay_s=0.25)
    store = s3(runtime, server.endpoint)

    async def cancelled() -> float:
        task = asyncio.ensure_future(call(store, "put"))
        await asyncio.sleep(0.05)
        begun = time.monotonic()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return time.monotonic() - begun

    assert runtime.run(cancelled()) < 0.15
    server.answer = Answer()
    runtime.run(call(store, "put"))


@for_each(
    [
        "Generic LocalFileSystem error: Unable to create file /x: Permission denied (os error 13)",
        "Generic LocalFileSystem error: Unable to create dir /x: Read-only file system (os error 30)",
    ]
)
def test_a_folder_that_may_not_be_changed_is_denied(text: str) -> None:
    assert type(store_error(OSError(text), "put", "a", "x")) is StoreDeniedError


def test_a_range_of_an_empty_object_is_empty_whatever_a_server_says_of_it() -> None:
    """Amazon answers 416; an emulator of Azure answers 206 with a range that is none."""
    emulator = 'Generic MicrosoftAzure error: Failed to parse value for CONTENT_RANGE header: "bytes 0--1/0"'
    for text in ("Server returned non-2xx status code: 416 Range Not Satisfiable", emulator):
        assert is_behind_the_end(OSError(text))
    assert not is_behind_the_end(OSError("Server returned non-2xx status code: 404 Not Found"))


def test_a_message_of_several_lines_is_told_by_its_first() -> None:
    text = "status code: 404 Not Found: <Code>ContainerNotFound</Code><Message>no container\nRequestId:1</Message>"
    error = store_error(FileNotFoundError(text), "put", "a", "x")
    assert type(error) is StoreMisconfiguredError
    assert str(error).startswith(
        "put a in x: status 404 ContainerNotFound (no container); the bucket must exist"
    )


def test_a_signature_in_a_url_is_left_out() -> None:
    url = f"https://a.blob.core.windows.net/c/k?sv=1&sig={SECRET}"
    text = f"Error performing GET {url} in 3s - connection error\n\nDebug source:\n{SECRET}"
    message = str(store_error(ValueError(text), "get", "k", "x"))
    assert SECRET not in message
    assert "connection error" in message

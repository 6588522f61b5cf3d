"""An HTTP server that answers as a test tells it to, in the place of S3."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec


class Answer(msgspec.Struct):
    """What the server says to every request. ``code`` is that of S3's error."""

    status: int = 200
    code: str = ""
    delay_s: float = 0.0
    drops: bool = False
    """The connection is closed without an answer."""


class Answers:
    """The server, and the requests that it got."""

    def __init__(self, port: int) -> None:
        self.endpoint = f"http://127.0.0.1:{port}"
        self.answer = Answer()
        self.requests: list[str] = []
        self.headers: list[dict[str, str]] = []


@contextmanager
def s3_answers() -> Iterator[Answers]:
    """A server on a free port, until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            answers.requests.append(f"{self.command} {self.path}")
            answers.headers.append(dict(self.headers))
            answer = answers.answer
            time.sleep(answer.delay_s)
            if answer.drops:
                self.close_connection = True
                return
            body = b""
            if answer.code and self.command != "HEAD":
                body = f"<Error><Code>{answer.code}</Code><Message>told so</Message></Error>".encode()
            self.send_response(answer.status)
            self.send_header("ETag", '"1"')
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    class Server(ThreadingHTTPServer):
        def handle_error(self, *_: object) -> None:
            """Say nothing: a client that gave up closes its connection."""

    for method in ("GET", "PUT", "POST", "DELETE", "HEAD"):
        setattr(Handler, f"do_{method}", Handler._serve)
    server = Server(("127.0.0.1", 0), Handler)
    answers = Answers(server.server_address[1])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield answers
    finally:
        server.shutdown()
        thread.join()
        server.server_close()

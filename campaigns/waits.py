"""Waits for something to become so, and questions that are asked until there is an answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from campaigns.raw_connection import ConnectionEnded

T = TypeVar("T")


class NoAnswerError(Exception):
    """A broker did not say what it was asked; the message says why."""


def await_true(done: Callable[[], bool], timeout_s: float, pause_s: float = 0.02) -> bool:
    """Wait until ``done()`` is true; return whether it was in time."""
    deadline = time.monotonic() + timeout_s
    while not done():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause_s)
    return True


def answer_of(ask: Callable[[], T], timeout_s: float = 60.0) -> T:
    """Ask until there is an answer: a broker may just have come back, and a coordinator may load.

    :raises NoAnswerError: there is none in time
    """
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return ask()
        except (NoAnswerError, OSError, ConnectionEnded) as error:
            if time.monotonic() > deadline:
                raise NoAnswerError(f"no answer for {timeout_s:.0f} s: {error!r}") from error
        time.sleep(0.02)

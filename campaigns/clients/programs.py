"""Programs of clients that a campaign starts as processes of their own: how they are run, or what is absent."""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path

from campaigns.clients.franz_go import FranzGo


class NoClientError(Exception):
    """A client can't be run here; the message says what is absent."""


def java_command(peer: Path | None, program: str) -> list[str]:
    """Return what runs a program of ``java_client/`` with Kafka's classes; the program's arguments follow it.

    :param peer: the script that runs Kafka's classes
    :raises NoClientError: it isn't given
    """
    if peer is None:
        raise NoClientError("the Java client needs --peer, the script that runs Kafka's classes")
    return [str(peer.resolve()), "tool", str(files("campaigns.clients") / "java_client" / program)]


def franz_go_command() -> list[str]:
    """Return what runs franz-go's program, which is built if it isn't there yet.

    :raises NoClientError: it can't be built
    """
    if absent := FranzGo.absent():
        raise NoClientError(f"franz-go: {absent}")
    return FranzGo.command()

"""What the tests of net_asyncio share."""

from __future__ import annotations

from typing import Any


class NoLog:
    """An ``EventLog`` that keeps (level, event)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []

    def debug(self, event: str, **values: Any) -> None:
        self.events.append(("debug", event))

    def info(self, event: str, **values: Any) -> None:
        self.events.append(("info", event))

    def warning(self, event: str, **values: Any) -> None:
        self.events.append(("warning", event))

    def error(self, event: str, **values: Any) -> None:
        self.events.append(("error", event))

"""The description of a defect for the log: the place in the code, and the command that met it, in a bounded line."""

from __future__ import annotations

from typing import Any

import msgspec

TEXT_MAX = 80
"""Characters of a string, bytes of a byte string, that are shown."""
DEPTH_MAX = 4
"""Structs within structs that are shown."""


def place_of(defect: BaseException) -> str:
    """``file:line`` where the exception was raised; the same defect gives the same place."""
    trace = defect.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return type(defect).__name__
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}"


def command_text(command: Any, depth: int = DEPTH_MAX) -> str:
    """A command with the first element of each array, and how many there are: enough to send it again.

    A request may have a million elements. ``repr`` of it would hold the loop for seconds.
    """
    if isinstance(command, msgspec.Struct):
        name = type(command).__name__
        if not depth:
            return f"{name}(…)"
        fields = (f"{f}={command_text(getattr(command, f), depth - 1)}" for f in command.__struct_fields__)
        return f"{name}({', '.join(fields)})"
    if isinstance(command, list | tuple):
        if not command:
            return "[]"
        first = command_text(command[0], depth)
        return f"[{first}]" if len(command) == 1 else f"[{first}, … {len(command)} in all]"
    if isinstance(command, str | bytes) and len(command) > TEXT_MAX:
        return f"{command[:TEXT_MAX]!r}… {len(command)} long"
    return repr(command) if isinstance(command, str | bytes | int | float | None) else type(command).__name__

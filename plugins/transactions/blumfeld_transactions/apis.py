"""The APIs of the plug-in as a table. The module of an API is imported with its first request."""

from __future__ import annotations

from importlib import import_module
from typing import Any, NamedTuple

from blumfeld.spi.completion import Steps
from blumfeld.spi.context import ApiHandler, RequestContext
from blumfeld.spi.runtime import Runtime
from blumfeld.spi.steps import error_steps
from blumfeld.spi.transactions import TransactionSurroundings
from blumfeld.wire.schema import Message


class ApiRow(NamedTuple):
    """An API with the module that serves it."""

    key: int
    min_version: int
    max_version: int
    module: str


API_TABLE = (
    ApiRow(24, 0, 5, "handlers"),
    ApiRow(25, 0, 4, "handlers"),
    ApiRow(26, 0, 5, "handlers"),
    ApiRow(65, 0, 0, "listing"),
    ApiRow(66, 0, 2, "listing"),
)
"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, DescribeTransactions, ListTransactions."""


class LazyApi:
    """Stands for the handler of one API. A module has ``handlers(surroundings, runtime)``, which returns those of its
    APIs."""

    def __init__(self, around: TransactionSurroundings, runtime: Runtime, row: ApiRow) -> None:
        self._around = around
        self._runtime = runtime
        self._row = row
        self._loaded: ApiHandler | None = None

    def handler(self) -> ApiHandler:
        """Returns the handler to register."""
        return ApiHandler(
            key=self._row.key,
            min_version=self._row.min_version,
            max_version=self._row.max_version,
            handle=self._handle,
            error_response=self._error_response,
            in_steps=self._in_steps,
            error_in_steps=self._error_in_steps,
        )

    def _load(self) -> ApiHandler:
        if self._loaded is None:
            module: Any = import_module(f"blumfeld_transactions.{self._row.module}")
            found: list[ApiHandler] = module.handlers(self._around, self._runtime)
            self._loaded = next(one for one in found if one.key == self._row.key)
        return self._loaded

    def _handle(self, request: Any, context: RequestContext) -> Any:
        return (self._loaded or self._load()).handle(request, context)

    def _in_steps(self, request: Any, context: RequestContext) -> Steps[Any] | None:
        in_steps = self._load().in_steps
        return None if in_steps is None else in_steps(request, context)

    def _error_response(self, request: Any, code: int, message: str | None) -> Message:
        return self._load().error_response(request, code, message)

    def _error_in_steps(self, request: Any, code: int, message: str | None) -> Steps[Message]:
        return error_steps(self._load(), request, code, message)

"""The error of a place that holds no plan."""

from __future__ import annotations


class NoPlanError(Exception):
    """No document can be had from this place.

    :param where: the file, the address or the URL
    :param why: what was found there, and what to do
    """

    def __init__(self, where: str, why: str) -> None:
        super().__init__(f"{where}: {why}")

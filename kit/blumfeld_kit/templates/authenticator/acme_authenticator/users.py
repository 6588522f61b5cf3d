"""The users and their passwords."""

from __future__ import annotations

import hmac
from collections.abc import Mapping


class Users:
    """Whether a password is right. Asked in worker threads, several at once. WRITE HERE: ask what knows your users."""

    def __init__(self, passwords: Mapping[str, str]) -> None:
        self._passwords = dict(passwords)

    def has(self, user: str, password: str) -> bool:
        """Return whether it is the user's. An unknown user must take as long as a wrong password."""
        right = self._passwords.get(user, "")
        return hmac.compare_digest(right.encode(), password.encode()) and user in self._passwords

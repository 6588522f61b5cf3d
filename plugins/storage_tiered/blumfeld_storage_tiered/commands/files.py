"""The files of a command. A node's are the kernel's, which a plug-in can't import."""

from __future__ import annotations

import os
import shutil


class CommandFiles:
    """As much of ``Files`` as commands need."""

    def read_bytes(self, path: str) -> bytes:
        """As ``Files.read_bytes``."""
        with open(path, "rb") as file:
            return file.read()

    def write_atomically(self, path: str, data: bytes) -> None:
        """As ``Files.write_atomically``."""
        temporary = f"{path}.tmp"
        with open(temporary, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.rename(temporary, path)
        self.sync_dir(os.path.dirname(path) or ".")

    def exists(self, path: str) -> bool:
        """As ``Files.exists``."""
        return os.path.exists(path)

    def is_dir(self, path: str) -> bool:
        """As ``Files.is_dir``."""
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        """As ``Files.list_dir``."""
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        """As ``Files.make_dirs``."""
        os.makedirs(path, exist_ok=True)

    def unlink(self, path: str) -> None:
        """As ``Files.unlink``."""
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        """As ``Files.remove_tree``."""
        shutil.rmtree(path)

    def sync_dir(self, path: str) -> None:
        """As ``Files.sync_dir``."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

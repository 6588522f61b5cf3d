"""The simplest storage plug-in: logs in memory. Read it as an example; fast tests run on it."""

from blumfeld_storage_memory.storage import MemoryLog, MemoryStorage, Plugin

__all__ = ["MemoryLog", "MemoryStorage", "Plugin"]

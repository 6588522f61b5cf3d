"""The logs of tiered topics: a local log, and what lies before it in the remote store."""

"""``storage_tiered`` with every topic tiered, for the suites of clients: a plug-in, and the settings of its nodes."""

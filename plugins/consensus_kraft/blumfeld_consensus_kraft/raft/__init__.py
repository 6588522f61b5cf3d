"""The raft of the metadata quorum (KIP-595, 631, 853, 996), pure: no clock, no I/O, no random number of its own."""

"""The migration of a cluster to KRaft (KIP-866), in the nodes of the quorum."""

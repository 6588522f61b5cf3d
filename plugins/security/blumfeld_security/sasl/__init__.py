"""SASL of a node: the gate in front of the broker, the mechanisms, and the node's own login at other nodes."""

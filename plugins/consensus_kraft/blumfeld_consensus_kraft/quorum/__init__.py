"""The driver of the raft state machine: its requests on the wire, its log, its timers, its parked fetches."""

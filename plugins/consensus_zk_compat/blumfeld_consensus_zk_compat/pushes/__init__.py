"""What a controller sends to brokers: LeaderAndIsr, UpdateMetadata and StopReplica, each on its own channel."""

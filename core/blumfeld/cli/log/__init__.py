"""``blumfeld log``: inspect a data directory, ours or Kafka's, for example after an incident."""

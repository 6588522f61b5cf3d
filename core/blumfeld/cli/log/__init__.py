"""``blumfeld log``: look into a data directory, ours or Kafka's, as one wants to after an incident."""

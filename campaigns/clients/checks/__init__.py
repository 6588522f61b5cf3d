"""The columns of the matrix: checks of a client, of groups and of Kafka's tools."""

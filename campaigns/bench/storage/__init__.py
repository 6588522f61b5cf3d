"""The log alone: appends and reads, and its cleaner beside Apache Kafka's."""

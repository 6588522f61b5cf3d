"""The coordinator runtime: shards on partitions of an internal topic, replayed and served."""

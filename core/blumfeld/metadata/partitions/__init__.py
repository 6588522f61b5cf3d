"""Commands on partitions: leaders, ISR, reassignments, log directories. Pure."""

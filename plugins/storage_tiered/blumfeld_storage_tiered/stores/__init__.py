"""Object stores: opened by URL, and checked before a node uses one."""

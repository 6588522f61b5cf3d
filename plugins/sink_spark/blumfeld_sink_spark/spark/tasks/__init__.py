"""The source, the task and the sink that Spark runs in Python processes of its own."""

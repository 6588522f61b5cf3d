"""The processes that Spark needs: a Java, a Python for the workers, the connector's jars, and the session itself."""

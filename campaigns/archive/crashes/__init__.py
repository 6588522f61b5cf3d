"""SIGKILL while an archive is written: of its driver, its workers, its JVM and the broker."""

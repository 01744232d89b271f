"""The command line, `kafka-drain`."""

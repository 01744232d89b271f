"""The commands of `kafka-drain`, one module each."""

"""The commands of `kafka-drain`, a module each; only the one that is run is imported."""

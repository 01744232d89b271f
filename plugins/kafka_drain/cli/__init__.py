"""`kafka-drain`: the command line."""

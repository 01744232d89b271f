"""The stack of docker-compose.yaml, built, started and used for real: `make test-compose`."""

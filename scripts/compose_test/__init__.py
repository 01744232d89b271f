"""Build, start and use the stack in docker-compose.yaml: `make test-compose`."""

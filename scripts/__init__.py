"""What the maintainer's verbs run: `make lock-jars`, `make audit`, `make licences`."""

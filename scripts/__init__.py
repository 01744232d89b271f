"""Scripts behind the maintainer's make targets: `lock-jars`, `audit`, `licences` and others."""

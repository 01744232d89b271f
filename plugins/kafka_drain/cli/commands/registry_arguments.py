"""Arguments of commands that need a Schema Registry."""

from __future__ import annotations

import argparse

from kafka_drain.cli.commands.arguments import json_file
from kafka_drain.errors import ConfigError
from kafka_drain.schemas.registry import SchemaRegistry


def add_registry(parser: argparse.ArgumentParser, which: str) -> None:
    """Add where a registry is.

    Args:
        parser: The command's parser.
        which: The registry, for its help.
    """
    parser.add_argument("--registry", metavar="URL", help=f"URL of {which}")
    parser.add_argument(
        "--registry-config",
        metavar="FILE",
        help="JSON file with the Schema Registry's URL and credentials",
    )


def required_registry(options: argparse.Namespace) -> SchemaRegistry:
    """Return the registry that the options name.

    Raises:
        ConfigError: When they name none.
    """
    settings = json_file(options.registry_config) if options.registry_config else {}
    if options.registry:
        settings |= {"url": options.registry}
    if not settings:
        raise ConfigError("no Schema Registry given; pass --registry or --registry-config")
    return SchemaRegistry(settings)

"""`kafka-drain evidence-key`: create a key pair that signs evidence."""

from __future__ import annotations

import argparse
from pathlib import Path

from kafka_drain.cli.console import answer, print_fields, say
from kafka_drain.cli.exit_codes import OK
from kafka_drain.clock import utc_now
from kafka_drain.errors import ConfigError
from kafka_drain.evidence.keys import SigningKey


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "file", help="the private key's file, which must not exist; FILE.pub gets the public key"
    )
    parser.add_argument(
        "--replaces",
        metavar="OLD",
        help="private key that the new one replaces: it signs FILE.rotation, which says so",
    )


def run(options: argparse.Namespace) -> int:
    """Create the files, and print the new key's id."""
    path = Path(options.file)
    rotation = path.with_name(f"{path.name}.rotation")
    old = SigningKey.read(options.replaces) if options.replaces else None
    if old is not None and rotation.exists():
        raise ConfigError(f"{rotation} exists and is never overwritten; name another file")
    key = SigningKey.create(path)
    created = {"key": key.public.id, "private_key": str(path), "public_key": f"{path}.pub"}
    if old is not None:
        rotation.write_bytes(old.rotate_to(key.public, utc_now()).to_bytes())
        created |= {"rotation": str(rotation), "replaces": old.public.id}
    say(
        f"give {path}.pub to whoever verifies evidence, over a channel that they trust; keep "
        f"{path} secret, and a copy of it in a safe place"
    )
    answer(options, created, print_fields(created))
    return OK

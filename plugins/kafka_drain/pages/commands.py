"""Commands on pages as they can be pasted: with the archive, and options to reach its services.

Opens nothing.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum


class _Needs(Enum):
    """The services that a command has to reach besides the archive."""

    KAFKA = "kafka"
    SPARK = "spark"
    REGISTRY = "registry"


#: The services that each command of a remedy has to reach.
_COMMANDS: Mapping[str, Sequence[_Needs]] = {
    "capture-schemas": (_Needs.REGISTRY,),
    "files": (),
    "repair": (_Needs.KAFKA, _Needs.SPARK),
    "reprocess": (_Needs.KAFKA, _Needs.SPARK),
    # Only to abandon a run, which happens in the archive.
    "republish": (),
    "roll": (_Needs.KAFKA,),
    # Java is needed only for very many files, but then on the same machine.
    "validate": (_Needs.KAFKA, _Needs.SPARK),
}
_COMMAND = re.compile(rf"`kafka-drain ({'|'.join(_COMMANDS)})( [^`]*)?`")
#: Kafka's own tools, with the rest of the command.
_KAFKAS = re.compile(r"`(kafka-[a-z]+\.sh)( [^`]*)?`")
#: The command line's default.
_MASTER = "local[*]"


@dataclass(frozen=True, slots=True)
class Reach:
    """Addresses for commands, of an archive and its services; shows no secrets.

    Attributes:
        archive: The archive's folder or URL.
        servers: Kafka's brokers, with commas; empty if they aren't known.
        kafka_config: Name of a file with Kafka's settings, if they include more than the brokers.
        master: The Spark master; empty if it isn't known.
        deploy_mode: Spark's deploy mode.
        registry: URL of the Schema Registry; empty if it isn't known, or has a login.
        notes: Requirements of a command besides its options, as sentences without their full stops.
    """

    archive: str
    servers: str = ""
    kafka_config: str = ""
    master: str = ""
    deploy_mode: str = "client"
    registry: str = ""
    notes: Sequence[str] = ()

    def _options(self, needs: _Needs) -> list[str]:
        if needs is _Needs.REGISTRY:
            return ["--registry", self.registry] if self.registry else []
        if needs is _Needs.SPARK:
            master = ["--master", self.master] if self.master not in ("", _MASTER) else []
            mode = self.deploy_mode
            return [*master, *(["--deploy-mode", mode] if mode != "client" else [])]
        file = ["--kafka-config", self.kafka_config] if self.kafka_config else []
        return [*file, *(["--bootstrap-servers", self.servers] if self.servers else [])]

    def options_of(self, command: str) -> list[str]:
        """Return the options with which a command reaches its services, each with a value."""
        return [word for needs in _COMMANDS[command] for word in self._options(needs)]


def pasteable(text: str, reach: Reach) -> str:
    """Return a text in which each command in backquotes can be pasted into a shell."""

    def whole(found: re.Match[str]) -> str:
        command, rest = found[1], found[2] or ""
        place = _word(reach.archive, "ARCHIVE")
        # What a task has said names the archive already, and may have its options.
        rest = rest if f"{rest} ".startswith(f" {place} ") else f" {place}{rest}"
        words = reach.options_of(command)
        options = "".join(
            f" {name} {_word(value, 'VALUE')}"
            for name, value in zip(words[::2], words[1::2], strict=True)
            if f" {name} " not in rest
        )
        return f"`kafka-drain {command}{rest}{options}`"

    def kafkas(found: re.Match[str]) -> str:
        servers = _word(reach.servers or "HOST:PORT", "HOST:PORT")
        return f"`{found[1]} --bootstrap-server {servers}{found[2] or ''}`"

    return _KAFKAS.sub(kafkas, _COMMAND.sub(whole, text))


def _word(value: str, instead: str) -> str:
    """Return a value as one word of a shell; another one if it would end the command's markup."""
    return shlex.quote(value) if "`" not in value else instead

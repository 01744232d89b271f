"""Schema maps: which id of a registry is which id of another one.

`schema-maps/<name>.json` of an archive; `restore-schemas` writes it, a republish reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from upath import UPath

from kafka_drain.archive.documents import SchemaMapDocument
from kafka_drain.errors import ConfigError
from kafka_drain.schemas.schema_ids import SchemaId, SchemaIds, context_of
from kafka_drain.storage.paths import quoted

FOLDER = "schema-maps"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


@dataclass(frozen=True)
class SchemaMap:
    """Maps schema ids from one registry to another.

    Attributes:
        name: The map's name.
        ids: The new id of each id.
        guids: The new GUID of each GUID.
        subjects: The subjects of each id.
    """

    name: str
    ids: Mapping[int, int] = field(default_factory=dict)
    guids: Mapping[str, str] = field(default_factory=dict)
    subjects: Mapping[int, frozenset[str]] = field(default_factory=dict)

    def only(self, seen: Iterable[SchemaId], kept: Iterable[str] = ()) -> SchemaIds:
        """Return the translation of some ids."""
        wanted = set(seen)
        return SchemaIds(
            {old: new for old, new in self.ids.items() if old in wanted},
            {old: new for old, new in self.guids.items() if old in wanted},
            frozenset(kept),
        )


def map_path(root: UPath, name: str) -> UPath:
    """Return the path of a map.

    Raises:
        ConfigError: When the name can't be a file's.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"a schema map can't be named {name!r}; expected letters, digits, dots, dashes and "
            "underscores, such as dr-site"
        )
    path: UPath = root / FOLDER / f"{name}.json"
    return path


def read_map(root: UPath, name: str) -> SchemaMap:
    """Read a map of an archive.

    Raises:
        ConfigError: When there is none of this name.
        ArchiveError: When it can't be read.
    """
    path = map_path(root, name)
    try:
        document = SchemaMapDocument.read(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise ConfigError(
            f"{root} has no schema map {name}; `kafka-drain restore-schemas {quoted(root)} --map "
            f"{name} --apply` makes one"
        ) from error
    # Records have ids of the default context, and another one may have the same ids.
    own = [row for row in document.schemas if not context_of(row.subject)]
    subjects: dict[int, set[str]] = {}
    for row in own:
        subjects.setdefault(row.id, set()).add(row.subject)
    return SchemaMap(
        name,
        {row.id: row.new_id for row in own},
        {row.guid: row.new_guid for row in document.schemas if row.guid and row.new_guid},
        {id_: frozenset(found) for id_, found in subjects.items()},
    )

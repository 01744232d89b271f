"""Plan the replacement of schema ids: read those that the records have, and look each one up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType

import pyarrow as pa
from upath import UPath

from kafka_drain.data_files.reader import read_records, topic_of
from kafka_drain.data_files.records import path_of
from kafka_drain.errors import DataFileError, SourceRecordError
from kafka_drain.offsets import TopicPartition
from kafka_drain.progress import Progress, Ticker
from kafka_drain.republish.planning.documents import CountedIdsJson, SchemaIdsJson
from kafka_drain.republish.planning.row_filter import wanted_rows
from kafka_drain.republish.planning.selection import Rows
from kafka_drain.republish.planning.shards import ShardFile
from kafka_drain.schemas.framing import Framed, count_framings
from kafka_drain.schemas.schema_ids import HEADERS, IdLocation, SchemaId, ids_kept
from kafka_drain.schemas.schema_map import SchemaMap
from kafka_drain.schemas.wire_format import count_ids

#: Approximate size of the records that are read at a time.

#: Number of ids that an error or a note names.
SHOWN = 10


def count_schema_ids(
    root: UPath,
    files: Iterable[tuple[ShardFile, Mapping[TopicPartition, Rows]]],
    kept: Sequence[str] = (),
    sent: Callable[[pa.RecordBatch, TopicPartition], pa.RecordBatch] = lambda batch, _: batch,
) -> tuple[Counter[IdLocation], Counter[Framed]]:
    """Count the schema ids of selected records, and what has another registry's framing.

    Reads all records, each file once.

    Args:
        files: Files, each with the rows that are sent, by partition.
        kept: Parts of topics to leave out, such as `orders:key`.
        sent: Returns what is sent of selected records.

    Raises:
        DataFileError: When a file can't be read; names its path.
    """
    listed = list(files)
    counts: Counter[IdLocation] = Counter()
    framed: Counter[Framed] = Counter()
    ticker = Ticker("read schema ids", Progress("files", len(listed)))
    for number, (file, selected) in enumerate(listed):
        in_topic_folder = topic_of(file.path) is not None
        try:
            path = path_of(str(root), file.path)
            for batch in read_records(path, file.file_format):
                for tp, rows in selected.items():
                    wanted = wanted_rows(batch, tp, rows, in_topic_folder=in_topic_folder)
                    parts = [part for part in HEADERS if f"{tp.topic}:{part}" not in kept]
                    changed = sent(wanted, tp)
                    counts += count_ids(changed, tp.topic, parts)
                    framed += count_framings(changed, tp.topic, parts)
        except DataFileError as error:
            raise DataFileError(f"{file.path}: {error}") from error
        ticker.at(number)
    return counts, framed


def plan_schema_ids(
    counts: Mapping[IdLocation, int],
    schema_map: SchemaMap,
    kept: Sequence[str] = (),
    framed: Mapping[Framed, int] = MappingProxyType({}),
) -> SchemaIdsJson:
    """Return the translation of the ids that records have.

    Args:
        counts: Number of occurrences of each id.
        schema_map: The ids of the other registry.
        kept: Parts of topics that stay as they are, and ids in others.
        framed: Number of occurrences of each framing of another registry.

    Raises:
        SourceRecordError: When an id has no translation, or keys have ids of values (or the other
            way round): these are hardly ids. Nothing was sent.
    """
    translation = schema_map.only((seen.id for seen in counts if seen.id is not None), kept)
    totals: dict[tuple[str, str], CountedIdsJson] = {}
    for (topic, part, id_), count in sorted(counts.items(), key=lambda item: str(item[0])):
        row: CountedIdsJson = {"topic": topic, "part": part, "translated": 0, "without": 0}
        total = totals.setdefault((topic, part), row)
        if id_ is not None and id_ in ids_kept(kept, topic, part):
            total["kept"] = total.get("kept", 0) + count
        elif id_ is None:
            total["without"] += count
        else:
            total["translated"] += count
    for (topic, part, framing), count in sorted(framed.items()):
        totals[topic, part].setdefault("framings", {})[framing] = count
    for topic, part in totals:
        stays = ids_kept(kept, topic, part)
        found = {
            seen.id: count
            for seen, count in counts.items()
            if (seen.topic, seen.part) == (topic, part)
            and seen.id is not None
            and seen.id not in stays
        }
        unknown = {id_: count for id_, count in found.items() if id_ not in translation}
        if unknown:
            raise SourceRecordError(
                f"{sum(unknown.values()):,} {part}s of {topic} have schema ids that the schema map "
                f"{schema_map.name} doesn't have: {_shown(unknown)}.{_framed(framed, topic, part)} "
                "Restore these schemas (kafka-drain restore-schemas), or keep the bytes as they "
                f"are with {_keeping(topic, part, unknown)} if they aren't ids of this registry "
                f"(--keep-ids {topic}:{part} keeps all). Nothing was sent"
            )
        strange = [id_ for id_ in found if _is_of_other_part(schema_map, id_, part)]
        if strange:
            raise SourceRecordError(
                f"{part}s of {topic} seem to have the schema ids {_shown(strange)}, whose subjects "
                f"are only for {_other(part)}s: these bytes are hardly ids. Keep them as they are "
                f"with --keep-ids {topic}:{part}. Nothing was sent"
            )
    written = translation.to_dict()
    return {
        "map": schema_map.name,
        "ids": written["ids"],
        "guids": written["guids"],
        "kept": written["kept"],
        "counts": [*totals.values()],
    }


def notes_of(schema_ids: SchemaIdsJson) -> list[str]:
    """Return notes for users about a translation."""
    notes = [
        f"schema ids of {row['topic']}: {row['translated']:,} {row['part']}s get new ones, "
        f"{row['without']:,} have none and stay as they are"
        + (f", {row['kept']:,} have ids that are kept" if row.get("kept") else "")
        for row in schema_ids["counts"]
    ]
    notes += [
        f"WARNING {count:,} {row['part']}s of {row['topic']} look like {framing}: they stay as "
        "they are, and their ids mean what they mean in that registry"
        for row in schema_ids["counts"]
        for framing, count in row.get("framings", {}).items()
    ]
    pairs = [f"{old} -> {new}" for old, new in schema_ids["ids"].items() if int(old) != new]
    if pairs:
        more = f" and {len(pairs) - SHOWN:,} more" if len(pairs) > SHOWN else ""
        notes.append(f"schema map {schema_ids['map']}: {', '.join(pairs[:SHOWN])}{more}")
    return notes


def _framed(framed: Mapping[Framed, int], topic: str, part: str) -> str:
    return "".join(
        f" {count:,} look like {seen.framing}."
        for seen, count in sorted(framed.items())
        if (seen.topic, seen.part) == (topic, part)
    )


def _keeping(topic: str, part: str, ids: Iterable[SchemaId]) -> str:
    names = sorted(map(str, ids), key=lambda name: (len(name), name))
    more = " …" if len(names) > SHOWN else ""
    return " ".join(f"--keep-ids {topic}:{part}:{name}" for name in names[:SHOWN]) + more


def _other(part: str) -> str:
    return "value" if part == "key" else "key"


def _is_of_other_part(schema_map: SchemaMap, id_: SchemaId, part: str) -> bool:
    """Return whether the naming of all of an id's subjects says that it is for the other part."""
    subjects = schema_map.subjects.get(id_, ()) if isinstance(id_, int) else ()
    return bool(subjects) and all(name.endswith(f"-{_other(part)}") for name in subjects)


def _shown(ids: Iterable[SchemaId]) -> str:
    names = sorted(map(str, ids), key=lambda name: (len(name), name))
    more = f" and {len(names) - SHOWN:,} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more

"""The archive on disk: which folder and document is where, and reading and opening them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from upath import UPath

from kafka_drain import checkpoint as checkpoint_files
from kafka_drain import manifest as manifest_files
from kafka_drain.checkpoint import Checkpoint
from kafka_drain.documents import read_document, write_document
from kafka_drain.errors import ArchiveError
from kafka_drain.findings import Finding, Reason
from kafka_drain.manifest import Manifest
from kafka_drain.offsets import TopicPartition, from_spark_json, to_spark_json

__all__ = ["Archive", "Generation"]

FORMAT_VERSION = 1


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


@dataclass(frozen=True, slots=True)
class Generation:
    """One run of a streaming query's life: a sink folder with its manifest and checkpoint."""

    root: UPath
    number: int

    @property
    def name(self) -> str:
        """Folder relative to the archive."""
        return f"generations/{self.number:04d}"

    @property
    def folder(self) -> UPath:
        """The generation's folder."""
        return self.root / self.name

    @property
    def data_name(self) -> str:
        """Data folder relative to the archive; `/`-separated, as it ends the manifest's paths."""
        return f"{self.name}/data"

    @property
    def data(self) -> UPath:
        """Folder that Spark's file sink writes to."""
        return self.folder / "data"

    @property
    def checkpoint(self) -> UPath:
        """Folder of Spark's checkpoint."""
        return self.folder / "checkpoint"

    def document(self) -> dict[str, Any]:
        """Read `generation.json`.

        Raises:
            ArchiveError: When it is missing or no JSON object.
        """
        try:
            return read_document(
                self.folder / "generation.json",
                *("opened_at", "reason", "format", "partition_by", "starting_offsets"),
            )
        except FileNotFoundError as error:
            raise ArchiveError(
                f"{self.folder} has no generation.json; restore it from a copy"
            ) from error

    def starting_offsets(self) -> dict[TopicPartition, int]:
        """Return the offsets that the generation starts at."""
        return from_spark_json(json.dumps(self.document()["starting_offsets"]))

    def write(
        self,
        *,
        starting_offsets: dict[TopicPartition, int],
        file_format: str,
        partition_by: list[str],
        reason: str,
    ) -> None:
        """Write `generation.json`: the starting offsets as numbers, and how files are written."""
        write_document(
            self.folder / "generation.json",
            {
                "format_version": FORMAT_VERSION,
                "generation": self.number,
                "opened_at": _now(),
                "reason": reason,
                "format": file_format,
                "partition_by": partition_by,
                "starting_offsets": json.loads(to_spark_json(starting_offsets)),
            },
        )

    def read_manifest(self) -> tuple[Manifest, list[Finding]]:
        """Read `_spark_metadata` and say what is wrong with it."""
        folder = self.data / "_spark_metadata"
        if not folder.is_dir():
            return Manifest(), []
        names, holes = manifest_files.logs_to_read(entry.name for entry in folder.iterdir())
        where = f"{self.data_name}/_spark_metadata"
        findings = [
            Finding(Reason.MANIFEST_HOLE, where, f"there is no file for batch {batch}")
            for batch in holes
        ]
        logs = []
        for name in names:
            log, found = manifest_files.parse_log(
                name, (folder / name).read_bytes(), self.data_name
            )
            findings += found
            batch, compacted = manifest_files.log_name(name) or (0, False)
            # A file that can't be parsed still is its batch's file.
            logs.append(log or manifest_files.ManifestLog(name, batch, compacted))
        manifest, found = manifest_files.assemble(logs, self.data_name)
        return manifest, findings + found

    def read_checkpoint(self) -> tuple[Checkpoint, list[Finding]]:
        """Read `offsets/` and `commits/` of the checkpoint and say what is wrong with them."""
        findings: list[Finding] = []
        ends: dict[int, dict[TopicPartition, int]] = {}
        commits: set[int] = set()
        offsets_name = f"{self.name}/checkpoint/offsets"
        commits_name = f"{self.name}/checkpoint/commits"
        for batch, content in self._batches("offsets"):
            end, found = checkpoint_files.parse_offsets(content, f"{offsets_name}/{batch}")
            findings += found
            # An unreadable file still says that its batch was planned.
            ends[batch] = end or {}
        ends, found = checkpoint_files.refuse_backward(ends, self.starting_offsets(), offsets_name)
        findings += found
        for batch, content in self._batches("commits"):
            findings += checkpoint_files.parse_commit(content, f"{commits_name}/{batch}")
            commits.add(batch)
        findings += checkpoint_files.find_holes(ends, offsets_name)
        findings += checkpoint_files.find_holes(commits, commits_name)
        return Checkpoint(ends, frozenset(commits)), findings

    def read_state(self) -> tuple[Manifest, Checkpoint, list[Finding]]:
        """Read manifest and checkpoint, and say what is wrong with each and between them."""
        manifest, findings = self.read_manifest()
        checkpoint, found = self.read_checkpoint()
        between = checkpoint_files.compare_with_manifest(
            checkpoint, manifest.last_batch, f"{self.name}/checkpoint"
        )
        return manifest, checkpoint, [*findings, *found, *between]

    def _batches(self, folder_name: str) -> Iterator[tuple[int, bytes]]:
        folder = self.checkpoint / folder_name
        if not folder.is_dir():
            return
        for entry in folder.iterdir():
            batch = checkpoint_files.batch_id(entry.name)
            if batch is not None:
                yield batch, entry.read_bytes()


@dataclass(frozen=True, slots=True)
class Archive:
    """The folder that holds one pipeline's files, manifest and checkpoint."""

    root: UPath

    @classmethod
    def at(cls, path: str | UPath) -> Archive:
        """Name an archive by its folder, which need not exist."""
        root = UPath(path)
        return cls(root.absolute() if root.protocol in ("", "file") else root)

    @property
    def exists(self) -> bool:
        """Whether the folder holds an `archive.json`."""
        return (self.root / "archive.json").is_file()

    def document(self) -> dict[str, Any]:
        """Read `archive.json`.

        Raises:
            ArchiveError: When the folder is no archive, or one of a newer format.
        """
        try:
            document = read_document(self.root / "archive.json")
        except FileNotFoundError as error:
            seen = "is a folder without archive.json" if self.root.is_dir() else "doesn't exist"
            raise ArchiveError(
                f"{self.root} {seen}, expected an archive that a drain made; check the path"
            ) from error
        except NotADirectoryError as error:
            raise ArchiveError(f"{self.root} isn't a folder; check the archive's path") from error
        if document.get("format_version") != FORMAT_VERSION:
            raise ArchiveError(
                f"{self.root} has archive format {document.get('format_version')!r}, this "
                f"kafka-drain reads format {FORMAT_VERSION}; use the release that wrote it"
            )
        # The version first: another format may have other keys.
        return read_document(
            self.root / "archive.json", "pipeline", "cluster_id", "topics", "source"
        )

    def create(
        self,
        *,
        pipeline: str,
        cluster_id: str,
        topic_ids: dict[str, str],
        source: dict[str, Any],
    ) -> None:
        """Write `archive.json`; also to add topics to it."""
        write_document(
            self.root / "archive.json",
            {
                "format_version": FORMAT_VERSION,
                "pipeline": pipeline,
                "cluster_id": cluster_id,
                "topics": dict(sorted(topic_ids.items())),
                "source": source,
            },
        )

    def generations(self) -> list[Generation]:
        """Return the generations, oldest first.

        Raises:
            ArchiveError: When the folder is no archive.
        """
        self.document()
        folder = self.root / "generations"
        if not folder.is_dir():
            return []
        numbers = sorted(int(e.name) for e in folder.iterdir() if e.name.isdigit() and e.is_dir())
        return [self.generation(number) for number in numbers]

    def generation(self, number: int) -> Generation:
        """Name a generation by its number; it need not exist."""
        return Generation(self.root, number)

    def open_generation(self) -> Generation | None:
        """Return the generation that drains append to; None when none was opened."""
        generations = self.generations()
        return generations[-1] if generations else None

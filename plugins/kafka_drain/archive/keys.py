"""An archive's data keys: which one new files are encrypted with, and a change of master key."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError
from upath import UPath

from kafka_drain.config.encryption import Encryption
from kafka_drain.encryption.data_keys import (
    FOLDER,
    file_name,
    list_keys,
    older_documents,
    open_key,
    read_key,
    read_keys,
    version_of,
    wrapped_document,
)
from kafka_drain.encryption.kms import KEY_BYTES
from kafka_drain.errors import KEY_ERRORS, ArchiveError, ConfigError
from kafka_drain.findings import Finding, Reason
from kafka_drain.storage.json_files import create_document


def is_encrypted(root: UPath) -> bool:
    """Return whether an archive has data keys: some of its files may be encrypted."""
    return bool(list_keys(root))


def encryption_of(root: UPath) -> Encryption | None:
    """Return the newest data key's master key; None if the archive has no data keys.

    Raises:
        ArchiveError: When a data key's document was changed, or a newer release wrote it.
    """
    documents = read_keys(root).values()
    if not documents:
        return None
    newest = max(documents, key=lambda document: document["created_at"])
    try:
        return Encryption.model_validate({"kms": newest["kms"], "key": newest["key"]})
    except ValidationError as error:
        raise ArchiveError(
            f"{root}/{FOLDER}/ has data key {newest['id']}, whose master key "
            f"{newest['key'][:80]!r} of {newest['kms'][:80]!r} this release doesn't know; use the "
            "release that wrote it"
        ) from error


def damaged_keys(root: UPath) -> list[Finding]:
    """Return a finding for each data key's document that can't be read, or is another key's.

    Which key opens a document isn't checked: that takes the master key.
    """
    found = []
    for path in list_keys(root).values():
        try:
            read_key(path)
        except FileNotFoundError:
            # A rewrap has replaced it since it was listed.
            continue
        except ArchiveError as error:
            detail = str(error).removeprefix(f"{path} ")
            found.append(Finding(Reason.KEY_UNAVAILABLE, f"{FOLDER}/{path.name}", detail))
    return found


def refuse_encrypted(root: UPath, what: str) -> None:
    """Refuse an archive with encrypted files.

    Raises:
        ConfigError: When the archive has data keys.
    """
    if is_encrypted(root):
        raise ConfigError(f"{root} has encrypted files, which {what}")


def choose_key(
    documents: Mapping[str, Mapping[str, str]], encryption: Encryption | None
) -> str | None:
    """Return the id of the data key for new files; None for a new one, if there is encryption.

    Args:
        documents: The archive's data keys, by id.
        encryption: The pipeline's.

    Raises:
        ConfigError: When the pipeline encrypts nothing, but the archive has data keys: what is
            encrypted must not be written again as it was.
    """
    if encryption is None:
        if documents:
            raise ConfigError(
                "the archive has encrypted files, but the pipeline has no `encryption`: new files, "
                "and compacted ones, would be readable by anybody. Set `encryption`, or use "
                "another archive"
            )
        return None
    fitting = [
        (document["created_at"], id_)
        for id_, document in documents.items()
        if (document["kms"], document["key"]) == (encryption.kms, encryption.key)
    ]
    return max(fitting)[1] if fitting else None


def keys_for_writing(root: UPath, encryption: Encryption | None) -> dict[str, Any] | None:
    """Return the keys for encryption; makes a data key if there is none for the master key.

    Args:
        encryption: The pipeline's.

    Returns:
        `current`, the id of the data key for new files, and `keys`, the documents of all data keys;
        None if nothing is encrypted. Neither is secret.

    Raises:
        ConfigError: When the archive is encrypted, but the pipeline isn't.
        KeyUnavailableError: When a master key can't be had; nothing was changed.
    """
    documents = read_keys(root)
    current = choose_key(documents, encryption)
    if encryption is None:
        return None
    if current is not None:
        # A job that can't encrypt fails here, not in a task.
        open_key(documents[current])
    else:
        current = secrets.token_hex(8)
        document = wrapped_document(
            current, secrets.token_bytes(KEY_BYTES), encryption.kms, encryption.key
        )
        document["created_at"] = _newest_time(document["created_at"], documents.values())
        path = root / FOLDER / file_name(current, 1)
        if not create_document(path, document):
            raise ArchiveError(f"{path} is there already; run this again")
        documents[current] = read_key(path)
    return {"current": current, "keys": [documents[id_] for id_ in sorted(documents)]}


def _newest_time(now: str, documents: Iterable[Mapping[str, str]]) -> str:
    """Return the time of a new data key, which is later than that of all others.

    They may be made within a millisecond, or by a clock that goes ahead.
    """
    last = max((document["created_at"] for document in documents), default="")
    if last < now:
        return now
    try:
        after = datetime.fromisoformat(last) + timedelta(milliseconds=1)
    except (ValueError, OverflowError):
        # Somebody has changed it.
        return now
    return after.isoformat(timespec="milliseconds")


@dataclass(frozen=True)
class Rewrap:
    """Data keys that get another master key.

    Attributes:
        encryption: The new master key.
        due: The path of the documents of these data keys, by id.
        kept: Number of data keys that have it already.
    """

    root: UPath
    encryption: Encryption
    due: Mapping[str, UPath]
    kept: int

    def apply(self) -> None:
        """Wrap each data key with the new master key, then remove the document with the old one.

        If killed, both documents are there, the newer one counts, and the next run removes the
        older one.

        Raises:
            KeyUnavailableError: When an old or the new master key can't be had, or doesn't open
                what names it already; no data key is lost.
        """
        for id_, path in self.due.items():
            old = read_key(path)
            new = wrapped_document(id_, self._open(path), self.encryption.kms, self.encryption.key)
            # The newest data key stays the newest.
            new["created_at"] = old["created_at"]
            target = self.root / FOLDER / file_name(id_, version_of(path) + 1)
            if not create_document(target, new):
                raise ArchiveError(f"{target} was written by somebody else; run this again")
        newest = list_keys(self.root)
        for path in older_documents(self.root):
            # Of what an earlier run wrote, only an older document may still hold the data key.
            if _id_of(path) not in self.due:
                self._open(newest[_id_of(path)])
            path.unlink(missing_ok=True)
        self.check_kept()

    def check_kept(self) -> None:
        """Refuse data keys that name the new master key already, unless it opens them.

        An alias may lead to another key since, and a key may have been made again under its name.

        Raises:
            KeyUnavailableError: When it doesn't, or can't be had.
        """
        for id_, path in list_keys(self.root).items():
            if id_ not in self.due:
                self._open(path)

    def _open(self, newest: UPath) -> bytes:
        """Return the data key of the document that counts.

        Raises:
            KeyUnavailableError: When its master key can't be had; names the older document that a
                killed run has left, if there is one.
        """
        try:
            return open_key(read_key(newest))
        except KEY_ERRORS as error:
            older = [each for each in older_documents(self.root) if _id_of(each) == _id_of(newest)]
            if not older:
                raise
            raise type(error)(
                f"{newest}, which an earlier run wrote, can't be opened: {error}. So {older[-1]}, "
                "which it replaced, was kept. If that master key can't be had again, remove "
                f"{newest}, and run this again, with the master key that {older[-1]} names"
            ) from error


def _id_of(path: UPath) -> str:
    return path.name.partition(".")[0]


def plan_rewrap(root: UPath, encryption: Encryption) -> Rewrap:
    """Return the data keys that have another master key; changes nothing.

    Raises:
        ConfigError: When the archive has no data keys.
    """
    found = list_keys(root)
    if not found:
        raise ConfigError(f"{root} has no data keys: none of its files is encrypted")
    due = {}
    for id_, path in found.items():
        document = read_key(path)
        if (document["kms"], document["key"]) != (encryption.kms, encryption.key):
            due[id_] = path
    return Rewrap(root, encryption, due, len(found) - len(due))

"""Chains of sealed documents on disk: each has a number and the hash of the one before.

`<name>/<number>.json` are the links, and `<name>.json`, the head, names the newest one, so that the
loss of the newest links is detected; receipts name the newest link at the time of sealing.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

from upath import UPath

from kafka_drain.archive.documents import ChainHeadDocument
from kafka_drain.archive.format import Link, Sealed
from kafka_drain.storage.json_files import create_text
from kafka_drain.storage.paths import list_folder, read_bytes, read_if_there
from kafka_drain.storage.sealed_json import SealedName

_FILE = re.compile(r"[0-9]{12}\.json")

#: If several runs append a link at the same time, one of them succeeds per attempt.
TRIES = 100


L = TypeVar("L", bound=Link)


@dataclass(frozen=True, slots=True)
class Damage:
    """The damage to a link, or to a file that it needs.

    Attributes:
        where: The damaged file, relative to the archive.
        detail: The observed damage.
        is_newest: Whether it is of the newest link.
    """

    where: str
    detail: str
    is_newest: bool = False


@dataclass(frozen=True)
class SealedChain(Generic[L]):
    """One kind of chain.

    Attributes:
        name: Its folder.
        parse: Parses the content of a file of this name, and verifies its own hash; raises
            ValueError.
        needs: Finds damage to what a link needs; None if nothing is wrong.
    """

    name: str
    parse: Callable[[bytes, str], L]
    needs: Callable[[UPath, L], Damage | None] = lambda root, link: None

    def where(self, number: int) -> str:
        """Return the file of a link, relative to the archive."""
        return f"{self.name}/{number:012d}.json"

    def read(self, root: UPath, number: int) -> L:
        """Read a link.

        Raises:
            FileNotFoundError: When it doesn't exist.
            ValueError: When it differs from what was sealed.
        """
        where = self.where(number)
        return self.parse(read_bytes(root / where), where)

    def newest(self, root: UPath) -> SealedName | None:
        """Return the name of the newest link; None if there is none.

        A link that a killed run wrote without renewing the head counts.
        """
        head = self._head(root)
        if head is None and (number := max(self._numbers(root), default=0)):
            head = SealedName(number, self._hash(self._content(root, number) or b""))
        while head and (content := self._content(root, head.number + 1)) is not None:
            head = SealedName(head.number + 1, self._hash(content))
        return head

    def links(self, root: UPath) -> Iterator[L]:
        """Yield the intact links, newest first; `check` says what is wrong with others."""
        newest = self.newest(root)
        expected = newest.sha256 if newest else None
        for number in range(newest.number if newest else 0, 0, -1):
            link, damage = self._look(root, number, expected)
            expected = link.previous if link else None
            if damage is None and link is not None:
                yield link

    def append(self, root: UPath, sealed: Sealed[L]) -> bool:
        """Write a link and renew the head; return False if another run has written this number.

        Raises:
            ArchiveError: When the archive can't be written.
        """
        link, path = sealed.value, root / f"{self.name}.json"
        head, before = self._head(root), link.number - 1
        if before > (head.number if head else 0) and link.previous is not None:
            # A run was killed before it renewed the head, which so never lags by more than one.
            ChainHeadDocument(number=before, sha256=link.previous).write(path)
        if not create_text(root / self.where(link.number), sealed.content.decode()):
            return False
        ChainHeadDocument(number=link.number, sha256=link.sha256).write(path)
        return True

    def check(
        self, root: UPath, named: Mapping[int, str], newest: SealedName | None, *, whole: bool
    ) -> list[Damage]:
        """Find links that are missing or were changed, newest first.

        Args:
            named: Hashes of links that receipts name, by number.
            newest: The newest link.
            whole: Whether to check all links; otherwise only the newest and those that are named.
        """
        numbers = set(named) | ({newest.number} if newest else set())
        last = max(numbers, default=0)
        if whole:
            numbers |= set(range(1, last + 1))
        expected = dict(named) | ({newest.number: newest.sha256} if newest else {})
        found: list[Damage] = []
        after: L | None = None
        for number in sorted(numbers, reverse=True):
            follows = after if after is not None and after.number == number + 1 else None
            sealed = expected.get(number) or (follows and follows.previous) or None
            after, damage = self._look(root, number, sealed)
            if damage is not None:
                found.append(Damage(damage.where, damage.detail, is_newest=number == last))
        return found

    def _look(
        self, root: UPath, number: int, expected: str | None
    ) -> tuple[L | None, Damage | None]:
        """Return the link of a number, unless it is damaged, and what is wrong."""
        where = self.where(number)
        try:
            link = self.read(root, number)
        except FileNotFoundError:
            return None, Damage(where, "is missing")
        except ValueError as error:
            return None, Damage(where, f"was changed: {error}")
        if (expected is not None and link.sha256 != expected) or link.number != number:
            detail = f"it is {link.sha256[:12]}, but {str(expected)[:12]} was sealed there"
            return None, Damage(where, f"was changed: {detail}")
        return link, self.needs(root, link)

    def _head(self, root: UPath) -> SealedName | None:
        head = ChainHeadDocument.read_note(root / f"{self.name}.json")
        return SealedName(head.number, head.sha256) if head is not None else None

    def _numbers(self, root: UPath) -> list[int]:
        names = list_folder(root / self.name)
        return [int(name.partition(".")[0]) for name in names if _FILE.fullmatch(name)]

    def _content(self, root: UPath, number: int) -> bytes | None:
        return read_if_there(root / self.where(number))

    def _hash(self, content: bytes) -> str:
        try:
            return self.parse(content, self.name).sha256
        except ValueError:
            return ""

"""Records to drop and fields to change, as users ask and as plans have it. Opens nothing."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from kafka_drain.errors import ConfigError
from kafka_drain.republish.changing.conditions import Condition, Filter
from kafka_drain.republish.changing.fields import KEY, Field, refuse_ends, refuse_overlaps
from kafka_drain.republish.changing.function_id import FunctionId, check_name
from kafka_drain.republish.changing.masks import MASKED, Mask, Pseudonym

Replace = Mask | Pseudonym


@dataclass(frozen=True)
class ChangeRequest:
    """The user's request.

    Attributes:
        filters: Conditions that records fulfil.
        mask: Fields that are masked.
        hashed: Fields that get pseudonyms.
        drop_headers: Names of headers that are left out.
        function: The user's function, as `module:function`; empty for none.
        mark: Whether a header says that a record was changed.
    """

    filters: tuple[str, ...] = field(default=(), repr=False)
    mask: tuple[str, ...] = ()
    hashed: tuple[str, ...] = ()
    drop_headers: tuple[str, ...] = ()
    function: str = ""
    mark: bool = False

    def __bool__(self) -> bool:
        return bool(self.filters or self.mask or self.hashed or self.drop_headers or self.function)

    def check(self) -> None:
        """Refuse a request that can't be carried out.

        Raises:
            ConfigError: Says what is accepted.
        """
        self.filter()
        self.replacements(b"")
        if self.function:
            check_name(self.function)
        if self.mark and not (self.mask or self.hashed or self.drop_headers or self.function):
            raise ConfigError("mark_changed has nothing to mark: nothing changes a record")

    def filter(self) -> Filter | None:
        """Return the filter; None to keep all records."""
        if not self.filters:
            return None
        # In the plan's order, so that sending decodes what planning has decoded.
        return Filter.of(Condition.of(text) for text in sorted(self.filters))

    def replacements(self, key: bytes) -> list[tuple[Field, Replace]]:
        """Return the replacement of each field.

        Args:
            key: The key of pseudonyms.

        Raises:
            ConfigError: When a field isn't acceptable, or two may be the same.
        """
        found: list[tuple[Field, Replace]] = []
        for text in self.mask:
            named, given = Field.of("mask", text)
            if named.part == KEY and named.steps is None:
                raise ConfigError(
                    "mask key would give all records the same key; hash it, or mask fields in it, "
                    "such as key:$.id"
                )
            found.append((named, Mask(MASKED if given is None else given)))
        for text in self.hashed:
            named, given = Field.of("hash", text)
            if given is not None:
                raise ConfigError(f"hash {named} takes no value; the key comes from a file")
            found.append((named, Pseudonym(key)))
        for named, how in found:
            if named.steps is not None:
                refuse_ends("hash" if isinstance(how, Pseudonym) else "mask", named)
        refuse_overlaps(named for named, _ in found)
        return found

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types: the part that must be the same in all attempts of a run."""
        return {
            "filter": sorted(self.filters),
            "mask": sorted(self.mask),
            "hash": sorted(self.hashed),
            "drop_headers": sorted(self.drop_headers),
            "function": self.function or None,
            "mark": self.mark,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ChangeRequest:
        """Parse a document from `to_dict`."""
        return cls(
            filters=tuple(document["filter"]),
            mask=tuple(document["mask"]),
            hashed=tuple(document["hash"]),
            drop_headers=tuple(document["drop_headers"]),
            function=document["function"] or "",
            mark=document["mark"],
        )


@dataclass(frozen=True)
class ChangeSpec:
    """The user's request, with the identity of its function and key.

    Attributes:
        function: The function; None without one.
        key_id: Id of the key of pseudonyms; empty without one.
    """

    wanted: ChangeRequest
    function: FunctionId | None = None
    key_id: str = ""

    @property
    def digest(self) -> str:
        """Hash of all of it, which a header may carry."""
        return hashlib.sha256(json.dumps(self.to_dict(), sort_keys=True).encode()).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return {
            **self.wanted.to_dict(),
            "function": None if self.function is None else self.function.to_dict(),
            "key_id": self.key_id or None,
        }

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> ChangeSpec:
        """Parse a document from `to_dict`; other keys are ignored."""
        function = document["function"]
        named = None if function is None else FunctionId.from_dict(function)
        wanted = ChangeRequest.from_dict({**document, "function": named.name if named else None})
        return cls(wanted, named, document["key_id"] or "")

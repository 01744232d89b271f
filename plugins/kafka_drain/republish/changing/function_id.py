"""The identity of a user's function in a plan. Opens nothing."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kafka_drain.errors import ConfigError

_NAME = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*")


@dataclass(frozen=True)
class FunctionId:
    """The identity of a function.

    Attributes:
        name: Its module and name, as `module:function`.
        sha256: SHA-256 of its module's source. What the module imports isn't in it.
        python: Version of Python, without the patch level.
    """

    name: str
    sha256: str
    python: str

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON types."""
        return dict(vars(self))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> FunctionId:
        """Parse a document from `to_dict`."""
        return cls(document["name"], document["sha256"], document["python"])

    def __str__(self) -> str:
        return f"{self.name} (module's SHA-256 {self.sha256[:12]}, Python {self.python})"


def check_name(name: str) -> None:
    """Refuse a name that isn't `module:function`.

    Raises:
        ConfigError: Says what is accepted.
    """
    if not _NAME.fullmatch(name):
        raise ConfigError(
            f"change = {name!r} is not acceptable; accepted: a function as module:function, such "
            "as masking.rules:for_tests"
        )


def other_function(planned: FunctionId, found: FunctionId) -> str:
    """Return the text of the error for another function than the planned one."""
    return (
        f"the plan has the function {planned}, here is {found}: what it makes of a record may be "
        "something else. Put the planned one back to resume, or start a new run into an empty topic"
    )

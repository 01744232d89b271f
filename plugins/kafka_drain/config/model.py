"""What users write in keys, and how they are told all that is wrong with it at once.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from typing_extensions import Self

from kafka_drain.config.checks import unknown
from kafka_drain.errors import ConfigError

__all__ = ["ConfigModel", "collected"]

T = TypeVar("T")


class ConfigModel(BaseModel):
    """A declaration of users'. Its errors are one ConfigError, with a suggestion for a misspelling.

    Raises:
        ConfigError: When a key is unknown or a value not acceptable; names key, value and what is
            accepted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: What it declares, for messages.
    declares: ClassVar[str]

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Turn pydantic's errors into one message, and unknown keys into a suggestion."""
        if isinstance(data, dict):
            for key, value in data.items():
                if key not in cls.model_fields:
                    raise unknown(key, value, cls.model_fields, f"key of a {cls.declares}")
        try:
            return handler(data)
        except ValidationError as error:
            raise ConfigError("; ".join(map(cls._problem, error.errors()))) from None

    @classmethod
    def _problem(cls, found: Any) -> str:
        if found["type"] == "missing":
            return f"{found['loc'][0]} is missing"
        if found["type"] == "value_error":
            return str(found["ctx"]["error"])
        where = ".".join(str(part) for part in found["loc"]) or cls.declares
        return f"{where} = {found['input']!r}: {found['msg']}"


def collected(check: Callable[[str, Any], T]) -> Callable[[Any, ValidationInfo], T]:
    """Make a field's validator of a check that takes the field's name and a value.

    What it refuses is told together with what is wrong with other fields.
    """

    def validate(value: Any, info: ValidationInfo) -> T:
        try:
            return check(str(info.field_name), value)
        except ConfigError as error:
            # pydantic goes on to the next field after a ValueError alone.
            raise ValueError(str(error)) from error

    return validate

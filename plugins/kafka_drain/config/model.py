"""The base of user-written configuration, which reports all errors at once.

Opens nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, TypeVar, get_args

from pydantic import (
    BaseModel,
    ConfigDict,
    ModelWrapValidatorHandler,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from typing_extensions import Self

from kafka_drain.config.checks import refuse, removed, unknown
from kafka_drain.errors import ConfigError

T = TypeVar("T")


class ConfigModel(BaseModel):
    """A user's declaration. Reports errors as one ConfigError that suggests fixes for typos.

    Raises:
        ConfigError: When a key is unknown or a value isn't acceptable; names the key, the value and
            what is accepted.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    #: Kind of declaration, for messages.
    declares: ClassVar[str]

    #: Replacements for keys that only earlier releases know.
    removed: ClassVar[dict[str, str]] = {}

    #: Accepted values in words, by key, where pydantic would show a regular expression.
    accepts: ClassVar[dict[str, str]] = {}

    @model_validator(mode="wrap")
    @classmethod
    def _explain(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        """Turn pydantic's errors into one message, and suggest the closest key for unknown ones."""
        try:
            if isinstance(data, dict):
                for key, value in data.items():
                    if key in cls.removed:
                        raise removed(key, value, cls.removed[key])
                    if key not in cls.model_fields:
                        raise unknown(key, value, cls.model_fields, f"key of a {cls.declares}")
                cls.check_given(data)
            made = handler(data)
            made.check_together()
            return made
        except ConfigError as error:
            raise ConfigError(cls.placed(data, str(error))) from error.__cause__
        except ValidationError as error:
            problem = "; ".join(map(cls._problem, error.errors()))
            raise ConfigError(cls.placed(data, problem)) from None

    # These two, and not pydantic's own validators: those run outside of `_explain`.
    @classmethod
    def check_given(cls, data: dict[str, Any]) -> None:
        """Check values as given, before they are converted; raises ConfigError."""

    def check_together(self) -> None:
        """Check values that depend on each other; raises ConfigError."""

    @classmethod
    def placed(cls, data: Any, problem: str) -> str:
        """Return a problem with its subject; a subclass adds the place."""
        return problem

    @classmethod
    def _problem(cls, found: Any) -> str:
        where = ".".join(str(part) for part in found["loc"]) or cls.declares
        if found["type"] == "missing":
            return f"{where} is missing"
        if found["type"] == "extra_forbidden" and len(found["loc"]) == 2:
            outer, key = found["loc"]
            what = f"key of a {cls.declares}'s {outer}"
            return str(unknown(str(key), found["input"], cls._keys(outer), what))
        if found["type"] == "value_error":
            return str(found["ctx"]["error"])
        if found["type"] == "string_pattern_mismatch" and where in cls.accepts:
            return str(refuse(where, found["input"], cls.accepts[where]))
        if where.endswith("conn_id") and isinstance(found["input"], Mapping):
            # Who gives a connection's settings instead of its id gives its secrets.
            return f"{where} is a dict; expected the id of an Airflow connection"
        return f"{where} = {found['input']!r}: {found['msg']}"

    @classmethod
    def _keys(cls, outer: str) -> list[str]:
        """Return the keys of a declaration within this one."""
        kinds = get_args(cls.model_fields[outer].annotation)
        models = (kind for kind in kinds if isinstance(kind, type) and issubclass(kind, BaseModel))
        return [key for model in models for key in model.model_fields]


def collected(check: Callable[[str, Any], T]) -> Callable[[Any, ValidationInfo], T]:
    """Turn a check that takes a name and a value into a field validator.

    Its errors are reported together with those of other fields.
    """

    def validate(value: Any, info: ValidationInfo) -> T:
        try:
            return check(str(info.field_name), value)
        except ConfigError as error:
            # pydantic continues with the next field only after a ValueError.
            raise ValueError(str(error)) from error

    return validate

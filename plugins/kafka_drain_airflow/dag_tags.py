"""Tags of the factories' DAGs, by which the pages find a pipeline's DAGs whatever their ids are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kafka_drain.errors import ConfigError

#: Tag of all DAGs of the factories.
TAG = "kafka-drain"


def kind_tag(kind: str) -> str:
    """Return the tag of the DAGs of a kind, such as `kafka-drain:republish`.

    It can't be mistaken for the tag of a pipeline named like a kind.
    """
    return f"{TAG}:{kind}"


def kind_of(tags: Iterable[str]) -> str | None:
    """Return the kind of a factory's DAG; None of any other."""
    prefix = kind_tag("")
    return next((tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)), None)


def own_tags(tags: Sequence[str]) -> Sequence[str]:
    """Return a user's tags.

    Raises:
        ConfigError: When they are a text, of which each character would be a tag.
    """
    if isinstance(tags, str):
        raise ConfigError(f"tags is {tags!r}, expected a list: [{tags!r}]")
    return tags


def tags_of(kind: str, names: Sequence[str]) -> list[str]:
    """Return the tags of a DAG.

    Args:
        names: Its pipeline's name, and the user's own tags.
    """
    return [TAG, kind_tag(kind), *names]

"""Which run is meant by who ends one that nobody goes on with: its files may go then."""

from __future__ import annotations

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ConfigError
from kafka_drain.republish.planning.follow import follower_key
from kafka_drain.republish.planning.runs import RepublishRun, list_runs, run_key

__all__ = ["unended_run"]


def unended_run(archive: Archive, name: str) -> RepublishRun:
    """Return a run without a receipt, whether it sent anything or not.

    Args:
        archive: Whose run.
        name: The run's name, the name of its folder, or a mirror's name.

    Raises:
        ConfigError: When there is no such run, or it has ended.
    """
    runs = {run.key: run for run in list_runs(archive.root)}
    mirror = [key for key in runs if key.rpartition(".")[0] == follower_key(name)]
    found = [runs[key] for key in (name, run_key(name), *mirror[-1:]) if key in runs]
    if not found:
        raise ConfigError(
            f"{archive.root} has no run {name!r}; accepted: the name that --run-name gave it, or "
            f"that of a folder in {archive.root / 'republish'}"
        )
    run = found[0]
    if run.has_ended:
        raise ConfigError(f"run {run.key} has ended, with a receipt; there is nothing to abandon")
    return run

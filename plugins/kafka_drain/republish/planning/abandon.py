"""Find the run to abandon: one that will never be resumed. Its files can be removed afterwards."""

from __future__ import annotations

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ConfigError
from kafka_drain.republish.planning.follow import follower_key
from kafka_drain.republish.planning.runs import RepublishRun, list_runs, run_key


def unfinished_run(archive: Archive, name: str) -> RepublishRun:
    """Return a run that has no receipt, whether it sent anything or not.

    Args:
        archive: The archive that the run belongs to.
        name: The run's name, the name of its folder, or a mirror's name.

    Raises:
        ConfigError: When there is no such run, or it has finished.
    """
    runs = {run.key: run for run in list_runs(archive.state)}
    mirror = [key for key in runs if key.rpartition(".")[0] == follower_key(name)]
    found = [runs[key] for key in (name, run_key(name), *mirror[-1:]) if key in runs]
    if not found:
        raise ConfigError(
            f"{archive.root} has no run {name!r}; expected the name given with --run-name, or the "
            f"name of a folder in {archive.state / 'republish'}"
        )
    run = found[0]
    if run.has_ended:
        raise ConfigError(f"run {run.key} has finished and has a receipt; nothing to abandon")
    return run

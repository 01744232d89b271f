"""Find the run to abandon: one that will never be resumed. Its files can be removed afterwards."""

from __future__ import annotations

from kafka_drain.archive.archive import Archive
from kafka_drain.errors import ConfigError
from kafka_drain.republish.planning.follow import follower_key, next_run
from kafka_drain.republish.planning.runs import RepublishRun, follower_of, list_runs, run_key


def unfinished_run(archive: Archive, name: str) -> RepublishRun:
    """Return a run that has no receipt, whether it sent anything or not.

    Of a mirror whose runs have all ended, that is its next one: it sends nothing more then, and
    maintenance doesn't wait for it any longer.

    Args:
        archive: The archive that the run belongs to.
        name: The run's name, the name of its folder, or a mirror's name.

    Raises:
        ConfigError: When there is no such run, or it has finished and isn't a mirror.
        ArchiveError: When the receipt of a mirror's last run was changed.
    """
    runs = {run.key: run for run in list_runs(archive.state)}
    # Maintenance names a mirror by what the folders of its runs begin with.
    mirror = [key for key in runs if follower_of(key) in (follower_key(name), name)]
    found = [runs[key] for key in (name, run_key(name), *mirror[-1:]) if key in runs]
    if not found:
        raise ConfigError(
            f"{archive.root} has no run {name!r}; expected the name given with --run-name, or the "
            f"name of a folder in {archive.state / 'republish'}"
        )
    run = next((each for each in found if not each.has_ended), found[0])
    if run.has_ended and mirror:
        return next_run(archive, mirror[-1].rpartition(".")[0])[0]
    if run.has_ended:
        raise ConfigError(f"run {run.key} has finished and has a receipt; nothing to abandon")
    return run

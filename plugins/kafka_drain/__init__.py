"""kafka-drain's core: archive, manifest, proof and republish. Knows neither Airflow nor Spark.

    from kafka_drain import ArchiveError, Pipeline

What is named here is loaded when it is asked for: executors, Airflow's DAG files and the command
line import this package too, and none of them needs all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "ArchiveError",
    "AuthenticationError",
    "AuthorizationError",
    "CheckpointError",
    "ConfigError",
    "DataFileError",
    "DataLossError",
    "DeliveryError",
    "GroupError",
    "GroupInUseError",
    "KafkaDrainError",
    "KafkaUnavailableError",
    "LockedError",
    "MachineError",
    "ManifestInvalidError",
    "NotSealedError",
    "OpenTransactionError",
    "Pipeline",
    "ProgressError",
    "RegistryUnavailableError",
    "SourceRecordError",
    "SparkJobError",
    "StoreUnavailableError",
    "SupersededError",
    "TerminalError",
    "TopicError",
    "TransientError",
    "VerifyError",
    "__version__",
]

if TYPE_CHECKING:
    from kafka_drain.config.pipeline import Pipeline
    from kafka_drain.errors import (
        ArchiveError,
        AuthenticationError,
        AuthorizationError,
        CheckpointError,
        ConfigError,
        DataFileError,
        DataLossError,
        DeliveryError,
        GroupError,
        GroupInUseError,
        KafkaDrainError,
        KafkaUnavailableError,
        LockedError,
        MachineError,
        ManifestInvalidError,
        NotSealedError,
        OpenTransactionError,
        ProgressError,
        RegistryUnavailableError,
        SourceRecordError,
        SparkJobError,
        StoreUnavailableError,
        SupersededError,
        TerminalError,
        TopicError,
        TransientError,
        VerifyError,
    )

    __version__: str
else:
    # Out of sight of type checkers, which would take any name for one that is here.
    def __getattr__(name: str) -> object:
        """Load what is asked for, and keep it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            value = _version()
        else:
            from importlib import import_module

            # By name, as the command line loads its commands: what executors and `--help` import
            # leads to no library.
            home = "config.pipeline" if name == "Pipeline" else "errors"
            value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List what is here, loaded or not."""
        return sorted({*globals(), *__all__})


def _version() -> str:
    """Return the installed distribution's version; `0+unknown` where only files were copied."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kafka-drain")
    except PackageNotFoundError:
        return "0+unknown"

"""kafka-drain's core: archive, manifest, proof and republish. Independent of Airflow and Spark.

    from kafka_drain import ArchiveError, Pipeline

Names are loaded on first use: executors, Airflow's DAG files and the command line import this
package too, and none of them needs all of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

__all__ = [
    "ArchiveError",
    "AuthenticationError",
    "AuthorizationError",
    "CheckpointError",
    "ConfigError",
    "CutOverError",
    "DataFileError",
    "DataLossError",
    "DeliveryError",
    "EvidenceError",
    "GroupError",
    "GroupInUseError",
    "KafkaDrainError",
    "KafkaUnavailableError",
    "KeyUnavailableError",
    "KmsUnavailableError",
    "LagError",
    "LockedError",
    "MachineError",
    "ManifestInvalidError",
    "NotSealedError",
    "NotWritableError",
    "OpenTransactionError",
    "Pipeline",
    "PlanChangedError",
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
        CutOverError,
        DataFileError,
        DataLossError,
        DeliveryError,
        EvidenceError,
        GroupError,
        GroupInUseError,
        KafkaDrainError,
        KafkaUnavailableError,
        KeyUnavailableError,
        KmsUnavailableError,
        LagError,
        LockedError,
        MachineError,
        ManifestInvalidError,
        NotSealedError,
        NotWritableError,
        OpenTransactionError,
        PlanChangedError,
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
    # Hidden from type checkers, which would otherwise accept any name.
    def __getattr__(name: str) -> object:
        """Load a name on first use and cache it."""
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        if name == "__version__":
            value = _version()
        else:
            from importlib import import_module

            # By name, like the command line's commands, so that the import pulls in no library on
            # executors or for `--help`.
            home = "config.pipeline" if name == "Pipeline" else "errors"
            value = getattr(import_module(f"{__name__}.{home}"), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List all names, loaded or not."""
        return sorted({*globals(), *__all__})


def _version() -> str:
    """Return the installed distribution's version; `0+unknown` if only files were copied."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kafka-drain")
    except PackageNotFoundError:
        return "0+unknown"

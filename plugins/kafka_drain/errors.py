"""Every error that kafka-drain raises on purpose.

    KafkaDrainError
    ├── TerminalError                 a retry can't help: something has to be changed first
    │   ├── ConfigError               a pipeline, option or argument is not acceptable
    │   ├── MachineError              Java, Python or a jar that has to be there is not
    │   ├── ArchiveError              the folder isn't an archive, is another's, or can't be written
    │   ├── CheckpointError           checkpoint, manifest and generation contradict each other
    │   ├── TopicError                a topic is missing, was made again, or can't take the records
    │   ├── DataLossError             Kafka no longer holds offsets that the drain still needs
    │   ├── ManifestInvalidError      validation found damage in an archive
    │   ├── DataFileError             a data file can't be read
    │   ├── SourceRecordError         a record can't be kept as it was sent, or be sent again
    │   ├── AuthenticationError       Kafka or the Schema Registry refuses the login
    │   ├── AuthorizationError        Kafka's ACLs don't allow it; names the one that is missing
    │   ├── ProgressError             a republish's progress in Kafka is gone, or another plan's
    │   ├── SupersededError           a later attempt of the same republish took over
    │   ├── GroupError                a consumer group isn't as it was, or can't be changed
    │   └── VerifyError               the target doesn't hold what a republish sent, once each
    └── TransientError                the same call may succeed later
        ├── KafkaUnavailableError     the brokers don't answer
        ├── StoreUnavailableError     the archive's object store doesn't answer
        ├── RegistryUnavailableError  the Schema Registry doesn't answer, and no schema is known
        ├── OpenTransactionError      an open transaction began before the cursor
        ├── LockedError               another drain holds the archive's lease
        ├── SparkJobError             spark-submit ended with an error that has no other name here
        ├── GroupInUseError           a consumer group has members
        ├── NotSealedError            files are committed that no validation has proven yet
        └── DeliveryError             Kafka didn't acknowledge every record that was sent

A message says what was seen, what was expected and what to do. All classes take the message
alone, so that they survive pickling between Airflow's processes.
"""

from __future__ import annotations

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
]


class KafkaDrainError(Exception):
    """Raised when kafka-drain refuses or fails; the message is meant for people."""


class TerminalError(KafkaDrainError):
    """Raised when a retry can't help."""


class TransientError(KafkaDrainError):
    """Raised when the same call may succeed later."""


class ConfigError(TerminalError):
    """Raised when a pipeline, an option or an argument is not acceptable."""


class MachineError(TerminalError):
    """Raised when Java, Python or a jar that has to be on the machine is missing."""


class ArchiveError(TerminalError):
    """Raised when a folder isn't an archive, belongs to another pipeline, or can't be written."""


class CheckpointError(TerminalError):
    """Raised when checkpoint, manifest and generation contradict each other."""


class TopicError(TerminalError):
    """Raised when a topic is missing, was made again, or can't take the records."""


class DataLossError(TerminalError):
    """Raised when Kafka no longer holds offsets that the drain still needs."""


class ManifestInvalidError(TerminalError):
    """Raised when validation found damage in an archive."""


class DataFileError(TerminalError):
    """Raised when a data file can't be read; the message says what is wrong with it."""


class SourceRecordError(TerminalError):
    """Raised when a record of the source can't be kept as it was sent, or can't be sent again."""


class AuthenticationError(TerminalError):
    """Raised when Kafka, or the Schema Registry, refuses the login."""


class AuthorizationError(TerminalError):
    """Raised when Kafka's ACLs don't allow something; the message names the one that is missing."""


class ProgressError(TerminalError):
    """Raised when a republish's progress in Kafka is gone, or belongs to another plan."""


class SupersededError(TerminalError):
    """Raised in an attempt of a republish whose successor took over."""


class GroupError(TerminalError):
    """Raised when a consumer group isn't as it was, or can't be changed."""


class VerifyError(TerminalError):
    """Raised when a target doesn't hold each record that was sent exactly once and in order."""


class KafkaUnavailableError(TransientError):
    """Raised when the Kafka brokers don't answer."""


class StoreUnavailableError(TransientError):
    """Raised when an archive's object store doesn't answer."""


class RegistryUnavailableError(TransientError):
    """Raised when the Schema Registry doesn't answer, and the archive knows no schema yet."""


class OpenTransactionError(TransientError):
    """Raised when the last stable offset is before the cursor: an open transaction is."""


class LockedError(TransientError):
    """Raised when another drain holds the archive's lease; the message says which one."""


class SparkJobError(TransientError):
    """Raised when spark-submit ended with an error that has no other name here."""


class GroupInUseError(TransientError):
    """Raised when a consumer group has members; its offsets can be changed when they have left."""


class NotSealedError(TransientError):
    """Raised when files are committed that no validation has proven yet."""


class DeliveryError(TransientError):
    """Raised when Kafka didn't acknowledge every record that was sent."""

"""All errors that kafka-drain raises deliberately.

    KafkaDrainError
    ├── TerminalError                 retrying won't help; something must be changed first
    │   ├── ConfigError               a pipeline, option or argument is invalid
    │   ├── MachineError              Java, Python or a required jar is missing on this machine
    │   ├── ArchiveError              not an archive, another pipeline's, or not writable
    │   │   └── NotWritableError      this user may only read it
    │   ├── CheckpointError           checkpoint, manifest and generation contradict each other
    │   ├── TopicError                a topic is missing, was recreated, or can't take the records
    │   ├── DataLossError             Kafka no longer has offsets that the drain still needs
    │   ├── ManifestInvalidError      validation found damage in an archive
    │   ├── DataFileError             a data file can't be read
    │   ├── KeyUnavailableError       a data file is encrypted, and its key isn't there
    │   ├── EvidenceError             signed evidence was changed, or isn't signed by a given key
    │   ├── SourceRecordError         a record can't be kept as it was sent, or can't be resent
    │   ├── AuthenticationError       Kafka or the Schema Registry rejects the credentials
    │   ├── AuthorizationError        a Kafka ACL is missing; the message names it
    │   ├── ProgressError             a republish's progress in Kafka is gone, or another plan's
    │   ├── SupersededError           a later attempt of the same republish took over
    │   ├── GroupError                a consumer group has changed, or can't be changed
    │   ├── PlanChangedError          a frozen plan has expired, or would do something else now
    │   ├── VerifyError               the target doesn't hold each republished record exactly once
    │   └── CutOverError              a step of a cut-over refuses: something isn't as it must be
    └── TransientError                the same call may succeed later
        ├── KafkaUnavailableError     the brokers don't respond
        ├── StoreUnavailableError     the archive's object store doesn't respond
        ├── KmsUnavailableError       the KMS with the master keys is silent, sealed or too busy
        ├── RegistryUnavailableError  the Schema Registry doesn't respond, and no schema is known
        ├── OpenTransactionError      an open transaction started before the cursor
        ├── LockedError               another drain holds the archive's lease
        ├── SparkJobError             spark-submit failed with an error not classified here
        ├── GroupInUseError           a consumer group has active members
        ├── NotSealedError            committed files haven't been proven by a validation yet
        ├── DeliveryError             Kafka didn't acknowledge every record that was sent
        └── LagError                  a mirror's target still lacks too many records

A message says what was seen, what was expected and what to do. Every class takes only the message,
so that errors survive pickling between Airflow's processes.
"""

from __future__ import annotations

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
]


class KafkaDrainError(Exception):
    """Raised when kafka-drain refuses an operation or fails; the message is for the user."""


class TerminalError(KafkaDrainError):
    """Raised when retrying can't help."""


class TransientError(KafkaDrainError):
    """Raised when the same call may succeed later."""


class ConfigError(TerminalError):
    """Raised when a pipeline, an option or an argument is invalid."""


class MachineError(TerminalError):
    """Raised when Java, Python or a required jar is missing on this machine."""


class ArchiveError(TerminalError):
    """Raised when a folder isn't an archive, belongs to another pipeline, or can't be written."""


class NotWritableError(ArchiveError):
    """Raised when a folder is read-only, or this user may only read it."""


class CheckpointError(TerminalError):
    """Raised when checkpoint, manifest and generation contradict each other."""


class TopicError(TerminalError):
    """Raised when a topic is missing, was recreated, or can't take the records."""


class DataLossError(TerminalError):
    """Raised when Kafka no longer has offsets that the drain still needs."""


class ManifestInvalidError(TerminalError):
    """Raised when validation found damage in an archive."""


class DataFileError(TerminalError):
    """Raised when a data file can't be read; the message says why."""


class KeyUnavailableError(TerminalError):
    """Raised when a data file is encrypted, and the key that opens it can't be had."""


class EvidenceError(TerminalError):
    """Raised when signed evidence was changed, or isn't signed by a given key."""


class SourceRecordError(TerminalError):
    """Raised when a source record can't be kept as it was sent, or can't be resent."""


class AuthenticationError(TerminalError):
    """Raised when Kafka or the Schema Registry rejects the credentials."""


class AuthorizationError(TerminalError):
    """Raised when a Kafka ACL is missing; the message names it."""


class ProgressError(TerminalError):
    """Raised when a republish's progress in Kafka is gone, or belongs to another plan."""


class SupersededError(TerminalError):
    """Raised in an attempt of a republish when a later attempt has taken over."""


class GroupError(TerminalError):
    """Raised when a consumer group has changed unexpectedly, or can't be changed."""


class PlanChangedError(TerminalError):
    """Raised when a frozen plan has expired, or would no longer do what was seen."""


class VerifyError(TerminalError):
    """Raised when a target doesn't hold every sent record exactly once and in order."""


class CutOverError(TerminalError):
    """Raised when a step of a cut-over refuses; the message says what to change."""


class KafkaUnavailableError(TransientError):
    """Raised when the Kafka brokers don't respond."""


class StoreUnavailableError(TransientError):
    """Raised when an archive's object store doesn't respond."""


class KmsUnavailableError(TransientError):
    """Raised when the KMS with the master keys doesn't answer, or is sealed or too busy now."""


class RegistryUnavailableError(TransientError):
    """Raised when the Schema Registry doesn't respond, and the archive has no schema yet."""


class OpenTransactionError(TransientError):
    """Raised when an open transaction holds the last stable offset before the cursor."""


class LockedError(TransientError):
    """Raised when another drain holds the archive's lease; the message names it."""


class SparkJobError(TransientError):
    """Raised when spark-submit failed with an error that isn't classified otherwise."""


class GroupInUseError(TransientError):
    """Raised when a consumer group has active members; stop them to change its offsets."""


class NotSealedError(TransientError):
    """Raised when committed files haven't been proven by a validation yet."""


class DeliveryError(TransientError):
    """Raised when Kafka didn't acknowledge every record that was sent."""


class LagError(TransientError):
    """Raised when a mirror's target still lacks too many records for the producers to stop."""


#: What keeps a validation from asking Kafka: it judges the files alone then.
KAFKA_ERRORS = (AuthenticationError, AuthorizationError, KafkaUnavailableError)
#: What keeps a validation from reading encrypted records: it tells so, and checks the rest.
KEY_ERRORS = (KeyUnavailableError, KmsUnavailableError)

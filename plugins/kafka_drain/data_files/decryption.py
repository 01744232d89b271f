"""The keys of encrypted Parquet files, as pyarrow asks for them.

Spark writes them with parquet-java's key tools; their key material is what pyarrow's are made for.
"""

from __future__ import annotations

from typing import Any

import pyarrow.parquet.encryption as pe

from kafka_drain.data_files.records import DataPath
from kafka_drain.encryption.data_keys import data_key, root_of
from kafka_drain.encryption.kms import KmsError, decrypt_locally
from kafka_drain.errors import KafkaDrainError, KeyUnavailableError


class Decryption:
    """The keys to read one file.

    Attributes:
        was_needed: Whether pyarrow has asked for a key: the file is encrypted.
    """

    def __init__(self, path: DataPath) -> None:
        self._path: Any = path
        self.was_needed = False

    def properties(self) -> Any:
        """Return pyarrow's properties for opening the file, which needn't be encrypted.

        Opening an encrypted file raises KeyUnavailableError if its key can't be had.
        """
        # Kept by the properties; a factory of its own, because factories cache clients.
        self._factory = pe.CryptoFactory(lambda _: _Client(self))
        return self._factory.file_decryption_properties(
            pe.KmsConnectionConfig(), pe.DecryptionConfiguration()
        )

    def unwrap(self, wrapped: bytes, id_: str) -> bytes:
        """Return the key of a footer or of columns; raises KeyUnavailableError."""
        self.was_needed = True
        try:
            key = data_key(root_of(self._path), id_)
        except (ImportError, KafkaDrainError, MemoryError):
            raise
        except Exception as error:
            # Whatever a KMS's package raises: it says nothing of the file, which isn't damaged.
            raise KeyUnavailableError(
                f"data key {id_} can't be had: {type(error).__name__}"
            ) from error
        try:
            return decrypt_locally(key, wrapped, id_)
        except KmsError as error:
            raise KeyUnavailableError(
                f"data key {id_} doesn't open {self._path}: {error}"
            ) from error


class _Client(pe.KmsClient):  # type: ignore[misc]
    """To pyarrow, a data key is the master key: it wraps the keys in the file."""

    def __init__(self, decryption: Decryption) -> None:
        super().__init__()
        self._decryption = decryption

    def wrap_key(self, key_bytes: bytes, master_key_identifier: str) -> bytes:
        """Refuse: only Spark writes data files."""
        raise NotImplementedError(master_key_identifier)

    def unwrap_key(self, wrapped_key: bytes, master_key_identifier: str) -> bytes:
        """Return the key of a footer or of columns."""
        return self._decryption.unwrap(wrapped_key, master_key_identifier)

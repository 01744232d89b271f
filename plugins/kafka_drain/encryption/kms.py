"""Master keys: a file of this machine, AWS KMS, or the transit engine of Vault.

A master key wraps an archive's data keys. It never leaves AWS KMS or Vault; where they are and how
to log in is what their libraries take from the environment.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import stat
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from kafka_drain.errors import MachineError
from kafka_drain.storage.outages import asks_for_later, code_of, is_later

#: Environment variable with the path of the file with master keys.
FILE_VARIABLE = "KAFKA_DRAIN_KEY_FILE"

#: Bytes of a data key and of a master key in a file: AES-256.
KEY_BYTES = 32
_NONCE = 12

#: Seconds to wait for a connection to a KMS, and for its answer, which takes milliseconds.
_CONNECT_SECONDS, _ANSWER_SECONDS = 5, 10
#: How often boto3 asks.
_ATTEMPTS = 3


class KmsError(Exception):
    """Raised when a master key isn't there, may not be used, or doesn't fit; the message says."""


class KmsSilentError(KmsError):
    """Raised when a KMS doesn't answer, or is sealed or too busy: it may answer later."""


class Kms(Protocol):
    """Wraps data keys with master keys."""

    def wrap(self, data_key: bytes, master: str, data_key_id: str) -> str:
        """Return a data key that only the master key and the id can open; raises KmsError."""

    def unwrap(self, wrapped: str, master: str, data_key_id: str) -> bytes:
        """Return the data key; raises KmsError."""


def open_kms(name: str) -> Kms:
    """Return the KMS of a name from `KMS_NAMES`; it is asked only later.

    Raises:
        KmsError: When what is needed to reach it isn't configured.
        MachineError: When its library isn't installed.
    """
    if name == "file":
        return KeyFile.open()
    if name == "aws":
        return AwsKms()
    if name == "vault":
        return VaultTransit()
    raise KmsError(f"{name!r} isn't a KMS that this release knows; use the release that wrote it")


def encrypt_locally(key: bytes, content: bytes, context: str) -> str:
    """Encrypt with AES-GCM, in the form of parquet-java: base64 of nonce, ciphertext and tag."""
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    nonce = os.urandom(_NONCE)
    return base64.b64encode(nonce + AESGCM(key).encrypt(nonce, content, context.encode())).decode()


def decrypt_locally(key: bytes, encrypted: str | bytes, context: str) -> bytes:
    """Decrypt bytes encrypted by `encrypt_locally`, or by parquet-java.

    Raises:
        KmsError: When the key or the context doesn't fit, or it was changed.
    """
    from cryptography.exceptions import InvalidTag
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    try:
        content = base64.b64decode(encrypted, validate=True)
        return AESGCM(key).decrypt(content[:_NONCE], content[_NONCE:], context.encode())
    except (InvalidTag, ValueError):
        raise KmsError("the key doesn't fit, or what it should open was changed") from None


class KeyFile:
    """Master keys in a JSON file, by name: 32 bytes each, in base64."""

    def __init__(self, path: Path, keys: dict[str, bytes]) -> None:
        self._path = path
        self._keys = keys

    @classmethod
    def open(cls) -> KeyFile:
        """Read the file that `$KAFKA_DRAIN_KEY_FILE` names.

        Raises:
            KmsError: When it isn't set, can't be read, others can read it, or it holds no keys.
        """
        if not os.environ.get(FILE_VARIABLE):
            raise KmsError(f"{FILE_VARIABLE} isn't set; it names the file with master keys")
        path = Path(os.environ[FILE_VARIABLE])
        try:
            mode = stat.S_IMODE(path.stat().st_mode)
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            what = getattr(error, "strerror", None) or type(error).__name__
            raise KmsError(f"{path}, which {FILE_VARIABLE} names, can't be read: {what}") from None
        if mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise KmsError(
                f"{path} has mode {mode:04o}, so that others can use its keys: chmod 600"
            )
        return cls(path, _parse(path, text))

    def wrap(self, data_key: bytes, master: str, data_key_id: str) -> str:
        """See `Kms`."""
        return encrypt_locally(self._key(master), data_key, data_key_id)

    def unwrap(self, wrapped: str, master: str, data_key_id: str) -> bytes:
        """See `Kms`."""
        return decrypt_locally(self._key(master), wrapped, data_key_id)

    def _key(self, name: str) -> bytes:
        if name not in self._keys:
            names = ", ".join(sorted(self._keys)) or "none"
            raise KmsError(f"{self._path} has no key {name!r}; it has {names}")
        return self._keys[name]


def _parse(path: Path, text: str) -> dict[str, bytes]:
    expected = f"expected a JSON object: names, each with {KEY_BYTES} bytes in base64"
    # No message and no cause shows what the file holds.
    try:
        found = json.loads(text)
    except ValueError:
        raise KmsError(f"{path} isn't JSON; {expected}") from None
    if not isinstance(found, dict):
        raise KmsError(f"{path} isn't a JSON object; {expected}")
    keys = {}
    for name, value in found.items():
        try:
            keys[name] = base64.b64decode(value, validate=True)
        except (TypeError, ValueError, binascii.Error):
            raise KmsError(f"{path}: key {name!r} isn't base64; {expected}") from None
        if len(keys[name]) != KEY_BYTES:
            raise KmsError(f"{path}: key {name!r} has {len(keys[name])} bytes; {expected}")
    return keys


class AwsKms:
    """AWS KMS, by boto3: region, credentials and address as the AWS libraries find them."""

    def __init__(self) -> None:
        try:
            import boto3
            from botocore import exceptions
            from botocore.config import Config
        except ImportError as error:
            raise MachineError("boto3 isn't installed; install kafka-drain[aws-kms]") from error
        self._errors = (exceptions.BotoCoreError, exceptions.ClientError)
        self._lost = (exceptions.ConnectionError, exceptions.HTTPClientError)
        self._untrusted = exceptions.SSLError
        patience = Config(
            connect_timeout=_CONNECT_SECONDS,
            read_timeout=_ANSWER_SECONDS,
            retries={"mode": "standard", "total_max_attempts": _ATTEMPTS},
        )
        try:
            self._client = boto3.client("kms", config=patience)
        except (*self._errors, ValueError) as error:
            # A ValueError: an endpoint that isn't one.
            raise KmsError(f"AWS KMS: {error}") from error

    def wrap(self, data_key: bytes, master: str, data_key_id: str) -> str:
        """See `Kms`."""
        answer = self._ask(
            "encrypt",
            KeyId=master,
            Plaintext=data_key,
            EncryptionContext={"kafka-drain": data_key_id},
        )
        return base64.b64encode(answer["CiphertextBlob"]).decode()

    def unwrap(self, wrapped: str, master: str, data_key_id: str) -> bytes:
        """See `Kms`."""
        try:
            content = base64.b64decode(wrapped, validate=True)
        except ValueError:
            raise KmsError("what it should open was changed: it isn't base64") from None
        answer = self._ask(
            "decrypt",
            KeyId=master,
            CiphertextBlob=content,
            EncryptionContext={"kafka-drain": data_key_id},
        )
        return bytes(answer["Plaintext"])

    def _ask(self, action: str, **arguments: Any) -> Any:
        try:
            return getattr(self._client, action)(**arguments)
        except self._errors as error:
            # Of the request, botocore's messages name the operation only.
            kind = KmsSilentError if self._is_silent(error) else KmsError
            raise kind(f"AWS KMS: {error}{_remedy(error, arguments['KeyId'])}") from error

    def _is_silent(self, error: Exception) -> bool:
        is_lost = isinstance(error, self._lost) and not isinstance(error, self._untrusted)
        return is_lost or asks_for_later(error)


def _remedy(error: Exception, master: str) -> str:
    """Return what to do about an alias that leads to another key than it did; empty otherwise."""
    if code_of(error) != "IncorrectKeyException" or "alias/" not in master:
        return ""
    return (
        f". {master} led to another key when this was wrapped: let it lead there again, wrap the "
        "data keys with the new key's id, by a rewrap, and only then let it lead to the new key"
    )


class VaultTransit:
    """Vault's transit engine: `VAULT_ADDR`, `VAULT_TOKEN`, and `VAULT_CACERT`, as Vault's CLI."""

    def __init__(self) -> None:
        self._address = os.environ.get("VAULT_ADDR", "").rstrip("/")
        self._token = os.environ.get("VAULT_TOKEN", "")
        if not self._address or not self._token:
            raise KmsError("VAULT_ADDR and VAULT_TOKEN aren't both set; they lead to Vault")

    def wrap(self, data_key: bytes, master: str, data_key_id: str) -> str:
        """See `Kms`."""
        sent = {"plaintext": _b64(data_key)}
        return self._ask("encrypt", master, sent, data_key_id, "ciphertext")

    def unwrap(self, wrapped: str, master: str, data_key_id: str) -> bytes:
        """See `Kms`."""
        answer = self._ask("decrypt", master, {"ciphertext": wrapped}, data_key_id, "plaintext")
        try:
            return base64.b64decode(answer, validate=True)
        except ValueError:
            raise KmsError(f"Vault at {self._address} answers no base64") from None

    def _ask(
        self, action: str, master: str, body: dict[str, str], data_key_id: str, wanted: str
    ) -> str:
        import requests

        try:
            answer = requests.post(
                f"{self._address}/v1/transit/{action}/{quote(master, safe='')}",
                json={**body, "associated_data": _b64(data_key_id.encode())},
                headers={"X-Vault-Token": self._token},
                verify=os.environ.get("VAULT_CACERT") or True,
                timeout=(_CONNECT_SECONDS, _ANSWER_SECONDS),
            )
        except (requests.RequestException, ValueError) as error:
            lost = isinstance(error, (requests.ConnectionError, requests.Timeout))
            is_silent = lost and not isinstance(error, requests.exceptions.SSLError)
            kind = KmsSilentError if is_silent else KmsError
            raise kind(f"Vault at {self._address}: {type(error).__name__}") from None
        except OSError:
            file = os.environ.get("VAULT_CACERT")
            raise KmsError(f"{file}, which VAULT_CACERT names, can't be read") from None
        try:
            document = answer.json()
        except ValueError:
            # A proxy's page.
            document = None
        if answer.status_code != requests.codes.ok:
            errors = document.get("errors") if isinstance(document, dict) else None
            said = "; ".join(map(str, errors)) if isinstance(errors, list) else ""
            kind = KmsSilentError if is_later(answer.status_code) else KmsError
            raise kind(
                f"Vault at {self._address} refuses ({answer.status_code}): {said or 'no reason'}"
            )
        data = document.get("data") if isinstance(document, dict) else None
        found = data.get(wanted) if isinstance(data, dict) else None
        if not isinstance(found, str):
            # A proxy, or another page; not shown, as it may hold a key.
            raise KmsError(f"what answers at {self._address} isn't Vault's transit engine")
        return found


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()

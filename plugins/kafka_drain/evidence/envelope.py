"""DSSE envelopes (https://github.com/secure-systems-lab/dsse, v1.0.2). Opens nothing.

An envelope is one line of JSON with the signed bytes in base64. DSSE lets readers accept other
spellings of the same JSON; we accept only the one that we write, so that any changed byte of a file
is found, even one that changes no meaning.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from kafka_drain.errors import EvidenceError

#: Media type of the signed bytes: a statement, see `statement.py`.
PAYLOAD_TYPE = "application/vnd.kafka-drain.evidence+json"

#: Takes a signature and the bytes that it must be of; returns whether it is.
Verifier = Callable[[bytes, bytes], bool]


def encode(payload_type: str, payload: bytes) -> bytes:
    """Return the bytes to sign: DSSE's pre-authentication encoding of type and content."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


@dataclass(frozen=True, slots=True)
class Envelope:
    """Signed bytes.

    Attributes:
        key_id: Id of the key that signed them.
        signature: The signature over `encode(PAYLOAD_TYPE, payload)`.
    """

    payload: bytes
    key_id: str
    signature: bytes

    @classmethod
    def parse(cls, content: bytes) -> Envelope:
        """Parse an envelope, without verifying its signature.

        Raises:
            EvidenceError: When it isn't one, byte for byte as we write it; the text follows the
                file's name.
        """
        try:
            document = json.loads(content)
            [signature] = document["signatures"]
            envelope = cls(
                base64.b64decode(document["payload"], validate=True),
                str(signature["keyid"]),
                base64.b64decode(signature["sig"], validate=True),
            )
        except (ValueError, KeyError, TypeError, RecursionError, binascii.Error) as error:
            raise EvidenceError(
                "isn't signed evidence, or was changed: expected a DSSE envelope with one signature"
            ) from error
        if envelope.to_bytes() != content:
            raise EvidenceError("was changed: it isn't byte for byte what was written")
        return envelope

    def to_bytes(self) -> bytes:
        """Return the envelope as it is written: one line."""
        document = {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [
                {"keyid": self.key_id, "sig": base64.b64encode(self.signature).decode()}
            ],
        }
        return json.dumps(document, separators=(",", ":")).encode() + b"\n"

    def verify(self, keys: Mapping[str, Verifier]) -> bytes:
        """Verify the signature and return the signed bytes.

        Args:
            keys: Trusted public keys, by id.

        Raises:
            EvidenceError: When none of the keys has signed, or the signature is wrong; the text
                follows the file's name.
        """
        key = keys.get(self.key_id)
        if key is None:
            raise EvidenceError(
                f"names key {self.key_id}, which isn't among the given ones "
                f"({', '.join(sorted(keys)) or 'none'}); nothing is proven"
            )
        if not key(self.signature, encode(PAYLOAD_TYPE, self.payload)):
            raise EvidenceError(
                f"was changed, or wasn't signed by key {self.key_id}: the signature is wrong"
            )
        return self.payload

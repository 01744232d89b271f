"""DSSE envelopes: what is signed, and that no byte of a file can change."""

from __future__ import annotations

import json

import pytest

from kafka_drain.errors import EvidenceError
from kafka_drain.evidence.envelope import PAYLOAD_TYPE, Envelope, encode

GOOD = Envelope(b'{"a":1}', "key-1", b"signature")


def signed(signature: bytes, message: bytes) -> bool:
    """Whether something is the signature of the one message that these tests know."""
    return signature == b"signature" and message == encode(PAYLOAD_TYPE, b'{"a":1}')


def test_encode_vector() -> None:
    """The signed bytes are those of the specification's test vector."""
    found = encode("http://example.com/HelloWorld", b"hello world")

    assert found == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"


def test_encode_counts_bytes() -> None:
    """Lengths are of bytes, not characters, so that nothing can move between type and content."""
    assert encode("é", "ü".encode()) == "DSSEv1 2 é 2 ü".encode()


def test_envelope_round_trip() -> None:
    """What was written is read, and its signature verified."""
    content = GOOD.to_bytes()

    assert Envelope.parse(content) == GOOD
    assert Envelope.parse(content).verify({"key-1": signed}) == b'{"a":1}'
    assert json.loads(content)["payloadType"] == "application/vnd.kafka-drain.evidence+json"


def test_envelope_each_byte_counts() -> None:
    """A file with any byte changed is refused, whatever it is changed to."""
    content = GOOD.to_bytes()
    for place in range(len(content)):
        for value in {0, 9, 10, 32, 65, 97, content[place] ^ 1, content[place] ^ 32}:
            if value == content[place]:
                continue
            changed = content[:place] + bytes([value]) + content[place + 1 :]
            with pytest.raises(EvidenceError):
                Envelope.parse(changed).verify({"key-1": signed})


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"null",
        b"[]",
        b"{}",
        b'{"payload":"","payloadType":"x","signatures":[]}\n',
        GOOD.to_bytes().strip(),
        GOOD.to_bytes() * 2,
        b" " + GOOD.to_bytes(),
        GOOD.to_bytes().replace(b'"sig"', b'"sig":"x","sig"'),
        GOOD.to_bytes().replace(b"evidence+json", b"other+json"),
    ],
)
def test_envelope_something_else(content: bytes) -> None:
    """A file that isn't an envelope, byte for byte as written, is refused."""
    with pytest.raises(
        EvidenceError, match=r"^(isn't signed evidence|was changed: it isn't byte for byte)"
    ):
        Envelope.parse(content)


def test_verify_unknown_key() -> None:
    """A key that isn't given proves nothing; both are named."""
    with pytest.raises(EvidenceError, match=r"names key key-1, which isn't among .*key-2"):
        GOOD.verify({"key-2": signed})


def test_verify_wrong_signature() -> None:
    """A signature of something else is refused."""
    with pytest.raises(EvidenceError, match="the signature is wrong"):
        Envelope(b'{"a":2}', "key-1", b"signature").verify({"key-1": signed})

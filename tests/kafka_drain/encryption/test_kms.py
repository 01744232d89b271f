"""Master keys: what they wrap only they open, and what goes wrong is said without showing a key."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import requests

from kafka_drain.encryption.kms import (
    FILE_VARIABLE,
    KmsError,
    KmsSilentError,
    decrypt_locally,
    encrypt_locally,
    open_kms,
)
from tests.s3_server import CREDENTIALS, VARIABLE, s3_server

KEY, DATA_KEY = bytes(range(32)), bytes(range(100, 132))


def test_decrypt_locally_round_trip() -> None:
    """What was encrypted is decrypted; each encryption has another nonce."""
    first, second = (encrypt_locally(KEY, DATA_KEY, "id") for _ in range(2))

    assert first != second
    assert decrypt_locally(KEY, first, "id") == decrypt_locally(KEY, second, "id") == DATA_KEY


@pytest.mark.parametrize(
    ("key", "change", "context"),
    [
        (bytes(32), lambda text: text, "id"),
        (KEY, lambda text: text, "another"),
        (KEY, lambda text: "A" * 8 + text[8:], "id"),
        (KEY, lambda text: text[:-8], "id"),
        (KEY, lambda text: "no base64!", "id"),
        # The same bytes, written otherwise.
        (KEY, lambda text: f"{text[:8]}!{text[8:]}", "id"),
        (KEY, lambda text: "", "id"),
    ],
)
def test_decrypt_locally_refused(key: bytes, change: Callable[[str], str], context: str) -> None:
    """Another key, another id and changed bytes are refused."""
    encrypted = encrypt_locally(KEY, DATA_KEY, "id")

    with pytest.raises(KmsError, match="doesn't fit"):
        decrypt_locally(key, change(encrypted), context)


def test_key_file_round_trip(masters: Callable[..., Path]) -> None:
    """The named master key opens what it wrapped; another one doesn't."""
    masters("old", "new")
    wrapped = open_kms("file").wrap(DATA_KEY, "old", "id")

    assert open_kms("file").unwrap(wrapped, "old", "id") == DATA_KEY
    with pytest.raises(KmsError, match="doesn't fit"):
        open_kms("file").unwrap(wrapped, "new", "id")
    masters("new")
    with pytest.raises(KmsError, match="has no key 'old'; it has new"):
        open_kms("file").unwrap(wrapped, "old", "id")


SHORT = base64.b64encode(b"sixteen bytes...").decode()


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        ("{}", 0o640, "has mode 0640"),
        ("{}", 0o604, "has mode 0604"),
        ("{}", 0o601, "has mode 0601"),
        ("\xffsecret", 0o600, "can't be read: UnicodeDecodeError"),
        ("not json", 0o600, "isn't JSON"),
        ("[]", 0o600, "isn't a JSON object"),
        ('{"a": 1}', 0o600, "key 'a' isn't base64"),
        ('{"a": "secret!"}', 0o600, "key 'a' isn't base64"),
        (json.dumps({"a": f"!{base64.b64encode(KEY).decode()}"}), 0o600, "key 'a' isn't base64"),
        (json.dumps({"a": SHORT}), 0o600, "key 'a' has 16 bytes"),
    ],
)
def test_key_file_refused(
    text: str, mode: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that others can read, or that holds no keys, is refused; nothing of it is shown."""
    path = tmp_path / "keys.json"
    path.write_bytes(text.encode("latin-1"))
    path.chmod(mode)
    monkeypatch.setenv(FILE_VARIABLE, str(path))

    with pytest.raises(KmsError, match=message) as refused:
        open_kms("file")
    assert "secret" not in str(refused.value)
    assert SHORT not in str(refused.value)
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("file", "KAFKA_DRAIN_KEY_FILE isn't set"),
        ("vault", "VAULT_ADDR and VAULT_TOKEN aren't both set"),
        ("gcp", "'gcp' isn't a KMS that this release knows"),
    ],
)
def test_open_kms_unconfigured(name: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing is named."""
    for variable in (FILE_VARIABLE, "VAULT_ADDR", "VAULT_TOKEN"):
        monkeypatch.delenv(variable, raising=False)

    with pytest.raises(KmsError, match=message):
        open_kms(name)


def test_key_file_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that isn't there is named."""
    monkeypatch.setenv(FILE_VARIABLE, "/nowhere/keys.json")

    with pytest.raises(KmsError, match=r"/nowhere/keys.json.*No such file"):
        open_kms("file")


class _Vault(BaseHTTPRequestHandler):
    """The transit engine's answers, for one key and token; the ciphertext is the request."""

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["X-Vault-Token"] != "the token":
            return self._answer(403, {"errors": ["permission denied"]})
        if self.path == "/v1/transit/encrypt/pay%2Fments":
            made = base64.b64encode(json.dumps(body).encode()).decode()
            return self._answer(200, {"data": {"ciphertext": f"vault:v1:{made}"}})
        if self.path == "/v1/transit/decrypt/pay%2Fments":
            held = json.loads(base64.b64decode(body["ciphertext"].removeprefix("vault:v1:")))
            if held["associated_data"] == body["associated_data"]:
                return self._answer(200, {"data": {"plaintext": held["plaintext"]}})
        return self._answer(400, {"errors": ["cipher: message authentication failed"]})

    def _answer(self, code: int, document: dict[str, Any]) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(json.dumps(document).encode())

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def vault(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server that answers as Vault's documentation says."""
    server = HTTPServer(("127.0.0.1", 0), _Vault)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("VAULT_ADDR", f"http://127.0.0.1:{server.server_port}/")
    monkeypatch.setenv("VAULT_TOKEN", "the token")
    yield
    server.shutdown()
    server.server_close()


@pytest.mark.usefixtures("vault")
def test_vault_round_trip(monkeypatch: pytest.MonkeyPatch) -> None:
    """A data key is wrapped and unwrapped for its own id; a refusal is shown without the token."""
    wrapped = open_kms("vault").wrap(DATA_KEY, "pay/ments", "id")

    assert open_kms("vault").unwrap(wrapped, "pay/ments", "id") == DATA_KEY
    with pytest.raises(KmsError, match=r"refuses \(400\): cipher: message"):
        open_kms("vault").unwrap(wrapped, "pay/ments", "another")
    monkeypatch.setenv("VAULT_TOKEN", "expired token")
    with pytest.raises(KmsError, match=r"refuses \(403\): permission denied") as refused:
        open_kms("vault").unwrap(wrapped, "pay/ments", "id")
    assert "expired" not in str(refused.value)


@pytest.mark.parametrize(
    ("code", "is_silent"), [(400, False), (403, False), (429, True), (502, True), (503, True)]
)
@pytest.mark.usefixtures("vault")
def test_vault_sealed(code: int, is_silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Vault that is sealed or busy, and a proxy without one, is told from one that refuses."""
    monkeypatch.setattr(_Vault, "do_POST", lambda self: self._answer(code, {"errors": ["sealed"]}))

    with pytest.raises(KmsError, match=rf"refuses \({code}\): sealed") as raised:
        open_kms("vault").wrap(DATA_KEY, "m", "id")

    assert isinstance(raised.value, KmsSilentError) is is_silent


@pytest.mark.usefixtures("vault")
def test_vault_proxy_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy's page, which isn't JSON, is no answer of Vault."""

    def page(self: _Vault) -> None:
        self.send_response(504)
        self.end_headers()
        self.wfile.write(b"<html>Gateway timeout</html>")

    monkeypatch.setattr(_Vault, "do_POST", page)

    with pytest.raises(KmsSilentError, match=r"refuses \(504\): no reason"):
        open_kms("vault").wrap(DATA_KEY, "m", "id")


@pytest.mark.parametrize(
    ("code", "document"),
    [
        (200, {}),
        (200, []),
        (200, {"data": None}),
        (200, {"data": {"plaintext": 1}}),
        (200, {"data": {"plaintext": "no base64!", "ciphertext": 1}}),
        (502, "Bad gateway"),
        (404, {"errors": None}),
    ],
)
@pytest.mark.usefixtures("vault")
def test_vault_other_answers(code: int, document: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What isn't Vault's answer, such as a proxy's, is told in words."""
    monkeypatch.setattr(_Vault, "do_POST", lambda self: self._answer(code, document))

    with pytest.raises(KmsError, match=r"http://127\.0\.0\.1:"):
        open_kms("vault").unwrap("vault:v1:AAAA", "m", "id")
    with pytest.raises(KmsError, match=r"http://127\.0\.0\.1:"):
        open_kms("vault").wrap(DATA_KEY, "m", "id")


def test_vault_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Vault that doesn't answer is named."""
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:9")
    monkeypatch.setenv("VAULT_TOKEN", "the token")

    with pytest.raises(KmsSilentError, match=r"Vault at http://127.0.0.1:9: ConnectionError"):
        open_kms("vault").wrap(DATA_KEY, "m", "id")


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (requests.ReadTimeout(), KmsSilentError),
        (requests.ConnectTimeout(), KmsSilentError),
        (requests.ConnectionError(), KmsSilentError),
        (requests.exceptions.SSLError(), KmsError),
        (requests.exceptions.InvalidURL(), KmsError),
    ],
)
def test_vault_silent(
    error: Exception, kind: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A Vault that is slow or can't be reached is waited for; what is set up wrongly isn't."""
    monkeypatch.setenv("VAULT_ADDR", "http://127.0.0.1:9")
    monkeypatch.setenv("VAULT_TOKEN", "the token")

    def post(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(requests, "post", post)

    with pytest.raises(KmsError, match=type(error).__name__) as raised:
        open_kms("vault").unwrap("vault:v1:AAAA", "m", "id")
    assert raised.type is kind


def test_vault_certificates_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file of certificates that isn't there is named, without a traceback."""
    monkeypatch.setenv("VAULT_ADDR", "https://127.0.0.1:9")
    monkeypatch.setenv("VAULT_TOKEN", "the token")
    monkeypatch.setenv("VAULT_CACERT", "/nowhere/ca.pem")

    with pytest.raises(KmsError, match=r"/nowhere/ca\.pem, which VAULT_CACERT names"):
        open_kms("vault").unwrap("vault:v1:AAAA", "m", "id")


def test_aws_no_endpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    """An endpoint that isn't a URL is named, without a traceback."""
    pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_KMS", "localhost:4566")

    with pytest.raises(KmsError, match="Invalid endpoint: localhost:4566"):
        open_kms("aws")


@pytest.fixture
def aws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Moto's server, as a process of its own, where boto3 finds it; a key's id."""
    boto3 = pytest.importorskip("boto3")
    # A gateway for S3 has no KMS.
    monkeypatch.delenv(VARIABLE, raising=False)
    with s3_server(tmp_path / "log") as url:
        monkeypatch.setenv("AWS_ENDPOINT_URL", url)
        monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
        for name, value in CREDENTIALS.items():
            monkeypatch.setenv(name, value)
        yield boto3.client("kms").create_key()["KeyMetadata"]["KeyId"]


def test_aws_round_trip(aws: str) -> None:
    """boto3's KMS wraps and unwraps a data key, for its own id and with its own key only."""
    wrapped = open_kms("aws").wrap(DATA_KEY, aws, "id")

    assert open_kms("aws").unwrap(wrapped, aws, "id") == DATA_KEY
    with pytest.raises(KmsError, match=r"AWS KMS: .*InvalidCiphertext"):
        open_kms("aws").unwrap(wrapped, aws, "another")
    with pytest.raises(KmsError, match=r"AWS KMS: .*NotFound"):
        open_kms("aws").wrap(DATA_KEY, "alias/nobody", "id")


@pytest.mark.parametrize("wrapped", ["A", "no base64!", "ä", "AAAA=A"])
def test_aws_wrapped_changed(wrapped: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data key's document that was changed is refused; nothing is asked."""
    pytest.importorskip("boto3")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")

    with pytest.raises(KmsError, match="what it should open was changed"):
        open_kms("aws").unwrap(wrapped, "alias/m", "id")


def test_aws_alias_moved(monkeypatch: pytest.MonkeyPatch) -> None:
    """An alias that leads to another key since, as AWS rotates by hand: the error says what to do.

    Nothing opens the data keys meanwhile.
    """
    boto3 = pytest.importorskip("boto3")
    from botocore.exceptions import ClientError

    class Client:
        def decrypt(self, **_: object) -> None:
            answer = {"Error": {"Code": "IncorrectKeyException", "Message": "another CMK"}}
            raise ClientError(answer, "Decrypt")  # type: ignore[arg-type]

    monkeypatch.setattr(boto3, "client", lambda name, **_: Client())

    with pytest.raises(KmsError, match="by a rewrap, and only then let it lead to the new key"):
        open_kms("aws").unwrap("AAAA", "alias/m", "id")
    with pytest.raises(KmsError) as said:
        open_kms("aws").unwrap("AAAA", "1234abcd", "id")
    assert "rewrap" not in str(said.value)


@pytest.mark.parametrize(
    ("code", "status", "is_silent"),
    [
        ("ThrottlingException", 400, True),
        ("KMSInternalException", 500, True),
        ("AccessDeniedException", 400, False),
        ("", 0, True),
    ],
)
def test_aws_busy(code: str, status: int, is_silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """An AWS KMS that asks for fewer requests, or doesn't answer, is told from one that refuses."""
    boto3 = pytest.importorskip("boto3")
    from botocore.exceptions import ClientError, EndpointConnectionError

    answer = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}

    class Client:
        def decrypt(self, **_: object) -> None:
            if not status:
                raise EndpointConnectionError(endpoint_url="https://kms.example.com")
            raise ClientError(answer, "Decrypt")  # type: ignore[arg-type]

    monkeypatch.setattr(boto3, "client", lambda name, **_: Client())

    with pytest.raises(KmsError) as raised:
        open_kms("aws").unwrap("AAAA", "alias/m", "id")
    assert isinstance(raised.value, KmsSilentError) is is_silent


@pytest.mark.parametrize("certificates", [None, "/ca.pem"])
def test_vault_request(certificates: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Vault that hangs is given up, and its certificate is verified, by whom the user names."""
    asked: list[dict[str, Any]] = []

    def post(url: str, **how: Any) -> Any:
        asked.append({"url": url, **how})
        document = {"data": {"ciphertext": "vault:v1:A"}}
        return SimpleNamespace(status_code=200, json=lambda: document)

    monkeypatch.setattr("requests.post", post)
    monkeypatch.setenv("VAULT_ADDR", "https://vault/")
    monkeypatch.setenv("VAULT_TOKEN", "the token")
    monkeypatch.delenv("VAULT_CACERT", raising=False)
    if certificates is not None:
        monkeypatch.setenv("VAULT_CACERT", certificates)

    assert open_kms("vault").wrap(DATA_KEY, "a/b", "id") == "vault:v1:A"

    [how] = asked
    assert (how["url"], how["timeout"]) == ("https://vault/v1/transit/encrypt/a%2Fb", (5, 10))
    assert how["verify"] == (certificates or True)
    assert how["headers"] == {"X-Vault-Token": "the token"}


@pytest.mark.parametrize(
    ("error", "is_silent"),
    [
        (requests.ConnectionError("the token"), True),
        (requests.ReadTimeout("the token"), True),
        (requests.exceptions.SSLError("the token"), False),
        (requests.exceptions.InvalidURL("the token"), False),
        (requests.TooManyRedirects("the token"), False),
        (ValueError("the token"), False),
    ],
)
def test_vault_lost(error: Exception, is_silent: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a Vault that is away may answer later; a wrong certificate or address stays wrong."""
    monkeypatch.setattr("requests.post", Mock(side_effect=error))
    monkeypatch.setenv("VAULT_ADDR", "https://vault")
    monkeypatch.setenv("VAULT_TOKEN", "the token")

    with pytest.raises(KmsError, match=f"Vault at https://vault: {type(error).__name__}$") as found:
        open_kms("vault").wrap(DATA_KEY, "m", "id")

    assert isinstance(found.value, KmsSilentError) is is_silent


@pytest.mark.parametrize(
    ("name", "given", "is_silent"),
    [
        ("ReadTimeoutError", {"endpoint_url": "https://kms"}, True),
        ("ConnectTimeoutError", {"endpoint_url": "https://kms"}, True),
        ("ConnectionClosedError", {"endpoint_url": "https://kms"}, True),
        ("SSLError", {"endpoint_url": "https://kms", "error": "expired"}, False),
        ("NoCredentialsError", {}, False),
    ],
)
def test_aws_lost(
    name: str, given: dict[str, str], is_silent: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An AWS KMS that is away may answer later, and is given up soon; others need somebody."""
    boto3 = pytest.importorskip("boto3")
    exceptions = pytest.importorskip("botocore.exceptions")
    error = getattr(exceptions, name)(**given)
    configs: list[Any] = []

    def client(_: str, *, config: Any) -> Any:
        configs.append(config)
        return SimpleNamespace(encrypt=Mock(side_effect=error))

    monkeypatch.setattr(boto3, "client", client)

    with pytest.raises(KmsError, match="AWS KMS: ") as found:
        open_kms("aws").wrap(DATA_KEY, "alias/m", "id")

    assert isinstance(found.value, KmsSilentError) is is_silent
    [config] = configs
    assert (config.connect_timeout, config.read_timeout) == (5, 10)
    assert config.retries == {"mode": "standard", "total_max_attempts": 3}


@pytest.mark.parametrize("id_", ["id", "another"])
def test_aws_context(id_: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """AWS KMS opens a data key for its id only, and with the named key only."""
    boto3 = pytest.importorskip("boto3")
    asked: list[dict[str, Any]] = []

    def answer(**given: Any) -> dict[str, bytes]:
        asked.append(given)
        return {"CiphertextBlob": b"wrapped", "Plaintext": DATA_KEY}

    monkeypatch.setattr(
        boto3, "client", lambda *_, **__: SimpleNamespace(encrypt=answer, decrypt=answer)
    )

    wrapped = open_kms("aws").wrap(DATA_KEY, "alias/m", id_)
    assert open_kms("aws").unwrap(wrapped, "alias/m", id_) == DATA_KEY

    which = {"KeyId": "alias/m", "EncryptionContext": {"kafka-drain": id_}}
    assert asked == [which | {"Plaintext": DATA_KEY}, which | {"CiphertextBlob": b"wrapped"}]

"""A client for a Schema Registry with Confluent's REST API, version 7.

Uses requests instead of confluent_kafka's own client, which accepts a bearer token only together
with a Confluent Cloud cluster, follows no redirects, and ignores REQUESTS_CA_BUNDLE.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from kafka_drain.config.checks import unknown
from kafka_drain.errors import AuthenticationError, ConfigError, RegistryUnavailableError
from kafka_drain.http_retries import UNWELL, bounded_retries
from kafka_drain.schemas.avro import AVRO, parse_schema, self_contained

#: The accepted settings, with the names that Confluent's own clients use.
_ACCEPTED = (
    "url",
    "basic.auth.user.info",
    "bearer.auth.token",
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
)
_SECONDS = 10.0
_TRIES = 3
#: Length to which the text of a refusal is cut.
_SHOWN = 500

#: What is read of an answer: the type of a value, those of an object's keys, or that of a list's
#: elements. A key with a question mark may be missing or null.
Shape = type | dict[str, Any] | list[Any]
REFERENCE: Shape = {"name": str, "subject": str, "version": int}
VERSION: Shape = {
    "version": int,
    "id": int,
    "schema": str,
    "schemaType?": str,
    "guid?": str,
    "references?": [REFERENCE],
}


class GoneError(ConfigError):
    """Raised when a registry has no such subject."""


class RefusedError(AuthenticationError):
    """Raised when a login lacks a right (403), which it may have on other subjects."""


class DeclinedError(ConfigError):
    """Raised when a registry refuses the content of a request (409, 422)."""


class AnswerError(RegistryUnavailableError):
    """Raised when a registry responds, but not to this request as it should, such as with 400."""


class UnwellError(RegistryUnavailableError):
    """Raised when a registry fails at a request (5xx), is too busy, or something else responds."""


#: What says nothing about other requests.
OF_ONE_REQUEST = (RefusedError, DeclinedError, AnswerError)


@dataclass(frozen=True)
class WriterSchema:
    """A schema that values were written with.

    Attributes:
        id: Its id, as encoded in the values.
        schema: The schema as JSON types, self-contained.
        subject: The registry's subject; None for a schema from a file.
        version: Its version in the subject; None for a schema from a file.
    """

    id: int
    schema: Any
    subject: str | None = None
    version: int | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the schema as JSON types."""
        return asdict(self)


@dataclass(frozen=True)
class SchemaRegistry:
    """A Schema Registry. Its `repr` shows no secrets.

    Args:
        settings: `url`, and settings for login and TLS: basic.auth.user.info (`user:password`),
            bearer.auth.token, ssl.ca.location, ssl.certificate.location, ssl.key.location.

    Raises:
        ConfigError: When a key isn't accepted, or the URL is missing or invalid.
    """

    settings: Mapping[str, Any] = field(repr=False)

    def __post_init__(self) -> None:
        for name in self.settings:
            if name not in _ACCEPTED:
                raise unknown(name, "hidden", _ACCEPTED, "setting of a Schema Registry")
        # As in a Kafka connection, null is as good as nothing.
        given = {name: value for name, value in self.settings.items() if value is not None}
        object.__setattr__(self, "settings", given)
        try:
            url = urlsplit(self.url)
            _ = url.port
        except ValueError:
            url = urlsplit("")
        if url.scheme not in ("http", "https") or not url.hostname:
            raise ConfigError(
                "the Schema Registry's connection has no valid url; set it in the connection's "
                'extra: {"url": "https://host:8081"}'
            )
        if url.username or url.password:
            raise ConfigError(
                "the Schema Registry's url contains a login; move it to basic.auth.user.info"
            )

    def __repr__(self) -> str:
        return f"SchemaRegistry({self.url})"

    @property
    def url(self) -> str:
        """The registry's URL."""
        return str(self.settings.get("url", "")).rstrip("/")

    def live_versions(self, subject: str) -> list[int]:
        """Return the versions of a subject that aren't deleted, oldest first."""
        return sorted(self._get(f"/subjects/{quote(subject, safe='')}/versions", [int]))

    def schemas(
        self, subject: str, known: Mapping[int, Collection[int]] | None = None
    ) -> tuple[list[WriterSchema], list[str]]:
        """Return the Avro schemas of a subject.

        Includes deleted ones, because Kafka may still hold their values.

        Args:
            known: Versions that needn't be fetched, with their ids. If the newest one that is there
                has another id, all are: it is another registry, or the subject was deleted for good
                and filled again.

        Returns:
            The schemas in order of version, and warnings about versions that aren't Avro.

        Raises:
            ConfigError: When there is no such subject, or the registry's certificate isn't trusted.
            AuthenticationError: When the registry rejects the login.
            RegistryUnavailableError: When it doesn't respond.
        """
        path = f"/subjects/{quote(subject, safe='')}/versions"
        found, warnings = [], []
        try:
            versions = sorted(self._get(path, [int], deleted=True))
        except ConfigError as error:
            raise GoneError(f"{error}") from error
        known = known or {}
        for version in [version for version in versions if version in known][-1:]:
            answer = self._get(f"{path}/{version}", VERSION, deleted=True)
            if int(answer["id"]) not in known[version]:
                known = {}
        for version in versions:
            if version in known:
                continue
            answer = self._get(f"{path}/{version}", VERSION, deleted=True)
            kind = answer.get("schemaType") or AVRO
            if kind != AVRO:
                warnings.append(f"version {version} of subject {subject} is {kind}, not Avro")
                continue
            schema = self._whole(answer)
            found.append(WriterSchema(int(answer["id"]), schema, subject, int(version)))
        return found, warnings

    def _whole(self, answer: Mapping[str, Any]) -> Any:
        """Return the schema in a response, with its references inlined."""
        schemas: dict[str, Any] = {}
        self._collect(answer.get("references") or (), schemas)
        return self_contained(self._parse(answer), schemas)

    def _collect(self, references: Collection[Mapping[str, Any]], into: dict[str, Any]) -> None:
        for reference in references:
            if reference["name"] in into:
                continue
            subject = quote(str(reference["subject"]), safe="")
            path = f"/subjects/{subject}/versions/{reference['version']}"
            answer = self._get(path, VERSION, deleted=True)
            into[reference["name"]] = self._parse(answer)
            self._collect(answer.get("references") or (), into)

    def _parse(self, answer: Mapping[str, Any]) -> Any:
        where = f"version {answer.get('version')} of subject {answer.get('subject')}"
        return parse_schema(answer["schema"], where)

    def _get(self, path: str, shape: Shape, *, deleted: bool = False) -> Any:
        answer = self.ask("GET", path, shape=shape, deleted=deleted)
        if answer is None:
            raise ConfigError(
                f"the Schema Registry {self.url} has no {path}; expected a registered "
                "schema: correct the url, or name the subjects in values.subjects"
            )
        return answer

    def ask(
        self,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        deleted: bool = False,
        shape: Shape = object,
    ) -> Any:
        """Send a request, and return the document in the response.

        Each request may be repeated: registering a schema again changes nothing.

        Args:
            method: HTTP's method.
            path: The path after the registry's URL.
            body: The document to send.
            deleted: Whether what was deleted, softly, counts too.
            shape: What has to be in the document.

        Returns:
            None if there is no such thing in the registry (404).

        Raises:
            AuthenticationError: When the registry rejects the login, or it lacks the right.
            ConfigError: When the registry refuses the request, or its certificate isn't trusted.
            RegistryUnavailableError: When it doesn't respond, or something else does.
        """
        import requests
        from requests.adapters import HTTPAdapter

        retries = bounded_retries(_TRIES, _SECONDS, allowed_methods=None)
        with requests.Session() as session:
            for scheme in ("https://", "http://"):
                session.mount(scheme, HTTPAdapter(max_retries=retries))
            try:
                answer = session.request(
                    method,
                    f"{self.url}{path}",
                    params={"deleted": "true"} if deleted else {},
                    json=body,
                    timeout=_SECONDS,
                    **self._access(),
                )
                status = answer.status_code
                if status in (401, 403):
                    kind = RefusedError if status == 403 else AuthenticationError
                    raise kind(
                        f"the Schema Registry {self.url} rejects the login ({status}); correct "
                        "basic.auth.user.info or bearer.auth.token in its connection"
                        + (", or grant the login the right" if status == 403 else "")
                    )
                if status == 404:
                    return None
                if status in (409, 422):
                    raise DeclinedError(
                        f"the Schema Registry {self.url} refuses {method} {path} ({status}): "
                        f"{_said(answer)}"
                    )
                if status in UNWELL:
                    raise UnwellError(
                        f"the Schema Registry {self.url} returned {status} for {path}; try again "
                        "later"
                    )
                if status != 200:
                    raise AnswerError(
                        f"the Schema Registry {self.url} returned {status} for {method} {path}: "
                        f"{_said(answer)}"
                    )
                document = answer.json()
            except requests.exceptions.SSLError as error:
                raise ConfigError(_of_tls(self.url, error)) from error
            except (requests.exceptions.RequestException, OSError) as error:
                raise RegistryUnavailableError(
                    f"the Schema Registry {self.url} doesn't respond ({type(error).__name__}); "
                    "try again later"
                ) from error
        if not _fits(document, shape):
            # A proxy, or another page.
            raise UnwellError(
                f"the answer of {self.url} to {method} {path} isn't a Schema Registry's; correct "
                "the url in its connection, or try again later"
            )
        return document

    def _access(self) -> dict[str, Any]:
        """Return the login and TLS settings as arguments for requests."""
        for name in ("ssl.ca.location", "ssl.certificate.location", "ssl.key.location"):
            if name in self.settings and not Path(self.settings[name]).is_file():
                raise ConfigError(
                    f"{name} = {self.settings[name]!r} isn't a file on this machine; correct the "
                    "path"
                )
        access: dict[str, Any] = {"verify": self.settings.get("ssl.ca.location", True)}
        if "basic.auth.user.info" in self.settings:
            user, _, password = str(self.settings["basic.auth.user.info"]).partition(":")
            access["auth"] = (user, password)
        elif "bearer.auth.token" in self.settings:
            access["headers"] = {"Authorization": f"Bearer {self.settings['bearer.auth.token']}"}
        if "ssl.certificate.location" in self.settings:
            certificate = self.settings["ssl.certificate.location"]
            access["cert"] = (certificate, self.settings.get("ssl.key.location", certificate))
        return access


def _fits(document: Any, shape: Shape) -> bool:
    if isinstance(shape, list):
        return isinstance(document, list) and all(_fits(each, shape[0]) for each in document)
    if isinstance(shape, dict):
        return isinstance(document, dict) and all(
            (name.endswith("?") and document.get(name[:-1]) is None)
            or _fits(document.get(name.removesuffix("?")), of)
            for name, of in shape.items()
        )
    return isinstance(document, shape) and not isinstance(document, bool)


def _said(answer: Any) -> str:
    """Return the text of a refusal."""
    try:
        return str(answer.json()["message"])[:_SHOWN]
    except (ValueError, KeyError, TypeError):
        return str(answer.text)[:_SHOWN]


def _of_tls(url: str, error: Exception) -> str:
    """Return why there is no TLS with a registry, in words of OpenSSL's, and the remedy."""
    said = str(error).upper()
    if "WRONG_VERSION_NUMBER" in said or "RECORD_LAYER_FAILURE" in said:
        return f"the Schema Registry {url} doesn't speak TLS; write http:// in its connection's url"
    # The text has the URL too, which may say anything.
    if "ALERT" in said and "VERIFY_FAILED" not in said:
        return (
            f"the Schema Registry {url} refuses this client in TLS ({error}); set "
            "ssl.certificate.location and ssl.key.location in its connection"
        )
    return (
        f"the certificate of the Schema Registry {url} isn't trusted ({error}); set "
        "ssl.ca.location in its connection"
    )

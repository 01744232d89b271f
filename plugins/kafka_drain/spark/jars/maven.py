"""Download jars from a Maven repository: Maven Central, or a mirror of it.

`KAFKA_DRAIN_MAVEN_URL` is the base URL of a mirror, as in Maven's own settings. Its login comes
from `~/.netrc` or the file that NETRC names, proxies from HTTPS_PROXY, HTTP_PROXY and NO_PROXY,
certificates from REQUESTS_CA_BUNDLE or SSL_CERT_FILE.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from kafka_drain.errors import ConfigError, MachineError
from kafka_drain.http_retries import bounded_retries
from kafka_drain.output import say
from kafka_drain.progress import Progress, Ticker
from kafka_drain.spark.jars.lock import LockedJar

if TYPE_CHECKING:
    from requests import Session

_VARIABLE = "KAFKA_DRAIN_MAVEN_URL"
_MAVEN_CENTRAL = "https://repo.maven.apache.org/maven2"

_TRIES = 3
_SECONDS = 30.0
_CHUNK_BYTES = 1 << 17


def repository_url() -> str:
    """Return the base URL of the repository.

    Raises:
        ConfigError: When the variable isn't a valid URL, or the URL contains a login.
    """
    url = os.environ.get(_VARIABLE) or _MAVEN_CENTRAL
    parts = urlsplit(url)
    if "@" in url:
        raise ConfigError(f"the URL in {_VARIABLE} contains a login; move it to ~/.netrc")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigError(
            f"{_VARIABLE} is {url!r}; expected the base URL of a Maven repository: "
            "https://host/path; correct or unset it"
        )
    return url.rstrip("/")


def download(jars: Sequence[LockedJar], into: Path, what: str) -> None:
    """Download jars. Each gets its final name once it has been verified against the lock.

    Args:
        into: A folder that no other process downloads to.
        what: Prefix of each progress line.

    Raises:
        ConfigError: See `repository_url`.
        MachineError: When the repository doesn't respond, rejects the login or lacks a jar, or when
            a jar doesn't match the lock; jars that match are kept.
        OSError: When the folder can't be written.
    """
    base = repository_url()
    progress = Progress("bytes", sum(jar.size for jar in jars))
    say(progress.line(what, 0))
    with _session() as session:
        repository = _Repository(base, session, Ticker(what, progress))
        problems = [
            f"  {jar.name} {problem}" for jar in jars if (problem := repository.bring(jar, into))
        ]
    if problems:
        raise MachineError(
            "\n".join([f"{base} doesn't have the jars that jars.lock names:", *problems])
            + "\nNone of these was kept. Have the mirror or proxy fixed, or set "
            f"{_VARIABLE} to another one, and run the command again."
        )
    say(progress.line(what, progress.total))


@dataclass
class _Repository:
    """A repository and the progress of downloads from it.

    Attributes:
        base: Its base URL.
        session: The HTTP session, which keeps connections open.
        ticker: Reports the number of downloaded bytes.
        done: Total size of the jars requested so far.
    """

    base: str
    session: Session
    ticker: Ticker
    done: int = 0

    def bring(self, jar: LockedJar, into: Path) -> str:
        """Download a jar; return an error text, or an empty string on success."""
        part = into / f"{jar.name}.part"
        try:
            problem = self._bring(jar, part)
            if not problem:
                part.replace(into / jar.name)
            return problem
        finally:
            part.unlink(missing_ok=True)
            self.done += jar.size

    def _bring(self, jar: LockedJar, part: Path) -> str:
        from requests.exceptions import RequestException
        from urllib3.exceptions import HTTPError

        tries_left = _TRIES
        while True:
            tries_left -= 1
            try:
                answer = self.session.get(f"{self.base}/{jar.path}", stream=True, timeout=_SECONDS)
            except (OSError, HTTPError) as error:
                raise MachineError(_no_answer(self.base, error)) from error
            with answer:
                if answer.status_code == 404:
                    return f"doesn't exist: 404 for {jar.path}"
                if answer.status_code != 200:
                    raise MachineError(_refusal(self.base, answer.status_code))
                try:
                    return self._write(answer.iter_content(_CHUNK_BYTES), jar, part)
                except RequestException as error:
                    # The session's own retries only cover the response headers.
                    if not tries_left:
                        raise MachineError(_no_answer(self.base, error)) from error

    def _write(self, chunks: Iterable[bytes], jar: LockedJar, part: Path) -> str:
        size, sha256 = 0, hashlib.sha256()
        with part.open("wb") as file:
            for chunk in chunks:
                size += len(chunk)
                if size > jar.size:
                    return f"has more bytes than the {jar.size} expected"
                sha256.update(chunk)
                file.write(chunk)
                self.ticker.at(self.done + size)
        seen = sha256.hexdigest()
        return "" if seen == jar.sha256 else f"has SHA-256 {seen}, expected {jar.sha256}"


def _no_answer(base: str, error: Exception) -> str:
    from requests.exceptions import SSLError

    if isinstance(error, SSLError):
        return (
            f"the certificate of {base} isn't trusted ({error}); set REQUESTS_CA_BUNDLE to a PEM "
            "file with the CA of your mirror or proxy"
        )
    # urllib3 itself rejects an invalid proxy URL, which may contain a password.
    seen = error if isinstance(error, OSError) else type(error).__name__
    return (
        f"{base} doesn't respond ({seen}); check the network and HTTPS_PROXY, or set {_VARIABLE} "
        "to your mirror of Maven Central. Then run the command again: completed jars are "
        "kept."
    )


def _refusal(base: str, status: int) -> str:
    if status in (401, 403):
        return (
            f"{base} rejects the login ({status}); put the credentials into ~/.netrc, mode 0600: "
            f"machine {urlsplit(base).hostname} login … password …"
        )
    return f"{base} returned {status}; try again later, or set {_VARIABLE} to another repository"


def _session() -> Session:
    from requests import Session
    from requests.adapters import HTTPAdapter

    retries = bounded_retries(_TRIES, _SECONDS)
    session = Session()
    for scheme in ("https://", "http://"):
        session.mount(scheme, HTTPAdapter(max_retries=retries))
    # Python's and uv's variable; REQUESTS_CA_BUNDLE, which requests reads itself, overrides it.
    session.verify = os.environ.get("SSL_CERT_FILE") or True
    # Jars are already compressed, and the hash is of the bytes on the server.
    session.headers["Accept-Encoding"] = "identity"
    return session

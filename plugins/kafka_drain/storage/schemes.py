"""Schemes of an archive's URL: which stores there are. Opens nothing."""

from __future__ import annotations

import difflib
import re

from kafka_drain.errors import ConfigError

#: Packages that provide the file systems for the stores: fsspec's, or what ours is built on.
PACKAGES = {
    "s3": "s3fs",
    "s3a": "s3fs",
    "gs": "gcsfs",
    "abfs": "adlfs",
    "abfss": "adlfs",
    "hdfs": "requests",
}

HDFS = "hdfs"

_OF_AWS = (
    "in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in a profile, or in the Airflow connection "
    "that archive_conn_id names"
)
_OF_GOOGLE = "in GOOGLE_APPLICATION_CREDENTIALS"
#: Stores whose URLs begin with a bucket: the scheme to write, and where their login is given. Of
#: those that aren't supported, messages mustn't repeat a login either.
_BUCKETS = {
    "s3": ("s3", _OF_AWS),
    "s3a": ("s3a", _OF_AWS),
    "s3n": ("s3", _OF_AWS),
    "gs": ("gs", _OF_GOOGLE),
    "gcs": ("gs", _OF_GOOGLE),
}

#: The beginning of a file's URL, before the path.
_FILE = re.compile(r"file:(//(localhost)?)?(?=/(?!/))")

#: Bytes of a folder's name, and of an archive's path: Linux takes 4096 with what lies in it.
_NAME_BYTES, _PATH_BYTES = 255, 3_500

#: Other ways to the same files: an archive has one URL, which Spark and Python both open.
ALIASES = {
    **dict.fromkeys(
        ("webhdfs", "swebhdfs"),
        "write hdfs:// and the address of Hadoop's own protocol (port 8020); where WebHDFS is, is "
        "found in Hadoop's configuration",
    ),
    "viewfs": "a mount table is each client's own; write the hdfs:// URL that it leads to",
}


def refuse_ambiguous(location: str) -> None:
    """Refuse an archive's path that Python, Java or a file system takes for another, or can't have.

    Args:
        location: The path or URL, as `normalised` has returned it.

    Raises:
        ConfigError: Names the character, or what is too long.
    """
    encoded = location.encode()
    if "\0" in location:
        raise ConfigError(f"{location!r} has the character '\\0', which ends a path; leave it out")
    is_url = "://" in location[:10] and not location.startswith("/")
    scheme, _, path = location.rpartition("://") if is_url else ("", "", location)
    names = path.split("/")
    if "://" in path or "://" in scheme:
        raise ConfigError(
            f"{location} has '://' in its path, which begins a URL elsewhere; write it with one "
            "slash"
        )
    if ".." in names:
        raise ConfigError(
            f"{location} has '..' in it, which leads elsewhere in Java than in Python behind a "
            "symbolic link; write the folder's own path"
        )
    if scheme and "" in names[1:]:
        raise ConfigError(
            f"{location} has '//' in its path, which Spark takes for '/': another folder; write '/'"
        )
    if "_spark_metadata" in names:
        raise ConfigError(
            f"{location} has '_spark_metadata' in it, Spark's own folder; rename the folder"
        )
    longest = max(names, key=lambda name: len(name.encode()))
    if len(longest.encode()) > _NAME_BYTES or len(encoded) > _PATH_BYTES:
        raise ConfigError(
            f"{location[:60]}… is too long: {len(encoded):,} bytes, the longest name "
            f"{len(longest.encode()):,}; accepted: names of {_NAME_BYTES} bytes, in all "
            f"{_PATH_BYTES:,}"
        )


def normalised(location: str) -> str:
    """Return an archive's path or URL as it is written everywhere: a file's URL as its path.

    A file's URL has no host, an empty one or `localhost` (RFC 8089).

    Raises:
        ConfigError: When it is empty, or the URL's store isn't supported.
    """
    if not location:
        raise ConfigError(
            "an archive's path is empty, such as of a variable that isn't set; expected an "
            "absolute path or a URL"
        )
    if (url := _FILE.match(location)) is not None:
        location = location[url.end() :]
    elif location.startswith("//"):
        # Java takes what follows for a host.
        location = "/" + location.lstrip("/")
    elif location.startswith("file:") and not location.startswith("file://"):
        raise ConfigError(f"{location} isn't absolute; accepted: an absolute path, file:///…")
    scheme, found, rest = location.partition("://")
    if found:
        refuse_login(location)
    if scheme == HDFS and found:
        _check_authority(location, rest.partition("/")[0])
    if not found or scheme in PACKAGES or location.startswith("/"):
        return location if location.endswith("://") else location.rstrip("/") or "/"
    if scheme in ALIASES:
        raise ConfigError(
            f"{_without_login(location)} can't be an archive's URL: {ALIASES[scheme]}"
        )
    near = difflib.get_close_matches(scheme, [*PACKAGES, "file"], n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}://?" if near else ""
    raise ConfigError(
        f"{_without_login(location)} is in no store that is supported{hint}; accepted: an "
        f"absolute path, file:///…, {', '.join(f'{name}://…' for name in PACKAGES)}"
    )


def refuse_login(location: str) -> None:
    """Refuse the URL of a bucket with a login in it, as older clients of Hadoop took it.

    Raises:
        ConfigError: Doesn't repeat the URL.
    """
    scheme, found, rest = location.partition("://")
    scheme, bucket = scheme.strip().lower(), rest.partition("/")[0]
    # A secret may have a slash. Only an ARN, of an access point, has a colon.
    is_login = "@" in bucket or (":" in bucket and not bucket.startswith("arn:"))
    if found and scheme in _BUCKETS and is_login:
        known, where = _BUCKETS[scheme]
        raise ConfigError(
            f"an archive's {scheme}:// URL has a login in it, which logs would show; write "
            f"{known}://bucket/folder, and give the login {where}"
        )


def _without_login(location: str) -> str:
    """Return a URL as messages may show it."""
    return re.sub(r"(?<=://)[^/]*@", "…@", location)


def _check_authority(location: str, authority: str) -> None:
    """Refuse a URL that leaves to each machine which HDFS it means, or has a user in it."""
    if not authority:
        raise ConfigError(
            f"{location} doesn't say which HDFS; write hdfs://namenode:8020/… or "
            "hdfs://nameservice/…, as other machines may have another default file system"
        )
    if "@" in authority:
        raise ConfigError(
            f"{_without_login(location)} has a user in it; set HADOOP_USER_NAME instead, which "
            "Spark reads too"
        )

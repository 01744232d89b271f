"""Read archives for the pages in Airflow's server: only known stores, and with a time limit."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from upath import UPath

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.documents import ReportDocument
from kafka_drain.archive.history import History
from kafka_drain.archive.receipts import ReceiptError
from kafka_drain.archive.status import read_overview
from kafka_drain.errors import KafkaDrainError, ManifestInvalidError
from kafka_drain.look import Look
from kafka_drain.looking import look_at
from kafka_drain.pages.placing import NOTHING, Placed, place_findings
from kafka_drain.pages.restores import Restore
from kafka_drain.republish.restores import Restores
from kafka_drain.storage.paths import is_local, locate, require_reachable
from kafka_drain.storage.typed_json import DocumentError, VersionError
from kafka_drain_airflow.pages.database import Place
from kafka_drain_airflow.store_connection import StoreAccess, store_access

# No http or similar schemes: the server would send requests to arbitrary addresses.
STORES = {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "hdfs"}
#: Time limit for a store's answer, in seconds.
PATIENCE = 10.0
#: Time for which a connection isn't read again, in seconds.
ACCESS_SECONDS = 300.0
#: Age of a look at an archive's files from which it is looked at again, in seconds: for the list,
#: and for its own page.
LIST_SECONDS, PAGE_SECONDS = 900.0, 60.0
#: Time for which a page waits for looks, in seconds: those that take longer are for the next one.
LOOK_PATIENCE = 3.0

_access: dict[str, tuple[float, StoreAccess]] = {}
_access_locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
_restores = Restores()
#: By connection and parent folder: archives that hang take no thread of those elsewhere.
_readers: defaultdict[tuple[str, str], ThreadPoolExecutor] = defaultdict(
    lambda: ThreadPoolExecutor(16, thread_name_prefix="kafka-drain-overview")
)


@dataclass(frozen=True, slots=True)
class _Held:
    """A look that is kept, or under way.

    Attributes:
        overview: Result of the newest validation when it began.
        looking: What was seen, and when it ended, by the monotonic clock.
    """

    overview: Mapping[str, Any] | None
    looking: Future[tuple[Look, float]]

    def is_of(self, overview: Mapping[str, Any] | None, seconds: float) -> bool:
        """Return whether it is still good: nothing was validated since, and it isn't too old."""
        # Not since it began: one that takes longer than that would never be shown.
        is_young = not self.looking.done() or time.monotonic() - self.looking.result()[1] <= seconds
        return self.overview == overview and is_young


_looks: dict[Place, _Held] = {}
_looks_lock = threading.Lock()
#: Threads of their own: looks that take long hold up no overview.
_lookers: defaultdict[tuple[str, str], ThreadPoolExecutor] = defaultdict(
    lambda: ThreadPoolExecutor(4, thread_name_prefix="kafka-drain-look")
)


@dataclass(frozen=True, kw_only=True)
class _Found:
    """The result of reading an archive.

    Attributes:
        problem: Why it can't be read; empty if it can.
        is_damaged: Whether that is because a document in it is damaged.
    """

    problem: str = ""
    is_damaged: bool = False


@dataclass(frozen=True)
class Found(_Found):
    """The overview of an archive's last validation, or the reason why it can't be read."""

    overview: dict[str, Any] | None = None


@dataclass(frozen=True)
class FoundRestores(_Found):
    """An archive's newest restores and the number of older ones, or why they can't be read."""

    restores: Sequence[Restore] = ()
    more: int = 0


@dataclass(frozen=True)
class FoundLook(_Found):
    """What was seen of an archive's files, or why it can't be read."""

    look: Look | None = None


@dataclass(frozen=True)
class FoundStart(_Found):
    """Whether an archive's first drain has begun; None and why, if the archive can't be read."""

    is_begun: bool | None = None


F = TypeVar("F", Found, FoundLook, FoundRestores, FoundStart)


def find_all(places: Sequence[Place]) -> list[Found]:
    """Read several archives in parallel, because stores are slow, and return what is known."""
    return _read_all(find, Found, places)


def looks_at(places: Sequence[Place], found: Sequence[Found], seconds: float) -> list[Look | None]:
    """Look at the files of several archives; None for one that takes longer than a page waits.

    Args:
        places: The archives.
        found: Their overviews; one that can't be read isn't looked at.
        seconds: Age from which a look is too old.
    """
    held: list[_Held | None] = []
    with _looks_lock:
        for place, of in zip(places, found, strict=True):
            look = None if of.problem else _looks.get(place)
            if not of.problem and (look is None or not look.is_of(of.overview, seconds)):
                looking = _of_store(_lookers, place).submit(_look, place)
                look = _looks[place] = _Held(of.overview, looking)
            held.append(look)
    wait([look.looking for look in held if look], timeout=LOOK_PATIENCE)
    return [look.looking.result()[0] if look and look.looking.done() else None for look in held]


def _look(place: Place) -> tuple[Look, float]:
    found = _if_readable(place, lambda root: _looked(Archive.at(root), place), FoundLook)
    look = found.look or Look(place.archive, found.problem, found.is_damaged)
    return look, time.monotonic()


def _looked(archive: Archive, place: Place) -> FoundLook:
    look = look_at(archive, place.archive)
    if look.is_damaged and not archive.exists and not archive.has_lost_document:
        return FoundLook(problem="nothing has been drained to it yet", is_damaged=True)
    return FoundLook(look=look)


def restores_of_all(places: Sequence[Place]) -> list[FoundRestores]:
    """Return the restores of several archives, which are read in parallel."""
    return _read_all(find_restores, FoundRestores, places)


def start_of(place: Place) -> FoundStart:
    """Return whether an archive's first drain has begun."""
    [found] = _read_all(find_start, FoundStart, [place])
    return found


def _read_all(
    read: Callable[[Place], F], kind: Callable[..., F], places: Sequence[Place]
) -> list[F]:
    reading = [_of_store(_readers, place).submit(read, place) for place in places]
    wait(reading, timeout=PATIENCE)
    return [_found(future, kind) for future in reading]


def _of_store(
    pools: Mapping[tuple[str, str], ThreadPoolExecutor], place: Place
) -> ThreadPoolExecutor:
    return pools[place.conn_id, place.archive.rpartition("/")[0]]


def _found(future: Future[F], kind: Callable[..., F]) -> F:
    if not future.done():
        future.cancel()
        return kind(problem=f"the store didn't respond within {PATIENCE:g} s")
    return future.result()


def opened(place: Place) -> UPath:
    """Return an archive's location, opened with its pipeline's connection.

    Raises:
        KafkaDrainError: When the connection gives no access.
    """
    return locate(place.archive, _options(place.conn_id) if place.conn_id else None)


def _options(conn_id: str) -> dict[str, Any]:
    """Return a connection's options for opening a store; read again every few minutes."""
    # A connection whose role takes long to assume holds up no other one.
    with _access_locks[conn_id]:
        at, access = _access.get(conn_id, (0.0, None))
        if access is None or time.monotonic() - at > ACCESS_SECONDS:
            access = store_access(conn_id)
            _access[conn_id] = (time.monotonic(), access)
    options: dict[str, Any] = access.options()
    return options


def find(place: Place) -> Found:
    """Return an archive's last overview, or why it can't be read, or is of another pipeline."""
    return _if_readable(place, lambda root: _own(place, read_overview(root)), Found)


def _own(place: Place, overview: dict[str, Any] | None) -> Found:
    if overview is not None and place.name and overview["pipeline"] != place.name:
        return Found(
            problem=f"{place.archive} was validated as the archive of pipeline "
            f"{overview['pipeline']!r}, not of {place.name!r}; give each pipeline an archive of "
            "its own, and validate it again"
        )
    return Found(overview)


def find_restores(place: Place) -> FoundRestores:
    """Return an archive's restores."""
    return _if_readable(place, lambda root: FoundRestores(*_restores.of(root)), FoundRestores)


def find_start(place: Place) -> FoundStart:
    """Return whether an archive has a generation, read from the archive."""
    return _if_readable(place, lambda root: FoundStart(_is_begun(Archive.at(root))), FoundStart)


def _is_begun(archive: Archive) -> bool:
    if not archive.exists:
        return archive.has_lost_document
    return archive.snapshot().open_generation is not None


def _if_readable(place: Place, read: Callable[[UPath], F], kind: Callable[..., F]) -> F:
    archive = place.archive
    try:
        root = opened(place)
        if not is_local(root) and root.protocol not in STORES:
            return kind(problem=f"{archive} isn't in a store that this server may access")
        require_reachable(root)
        return read(root)
    except (KafkaDrainError, OSError, ValueError, ImportError) as error:
        if is_damage(error):
            return kind(problem=str(error), is_damaged=True)
        # The worker may be able to read it: it is another machine with other credentials.
        return kind(problem=f"this server can't read {archive}: {error}")
    except Exception as error:
        # Whatever a secrets backend or a store's library raises is about this archive alone; its
        # text may have a secret.
        return kind(problem=f"this server can't read {archive}: {type(error).__name__}")


def is_damage(error: Exception) -> bool:
    """Return whether an error says that what was read is damaged, not that it can't be read."""
    causes: list[BaseException] = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    if any(isinstance(each, VersionError) for each in causes):
        return False
    if isinstance(error, (ReceiptError, ManifestInvalidError)):
        return True
    return any(isinstance(each, DocumentError) for each in causes)


def placed_findings(root: UPath, overview: Mapping[str, Any] | None, history: History) -> Placed:
    """Return the locations of the findings of an archive's last validation.

    Raises:
        ReceiptError: If a receipt is damaged.
    """
    if not overview or not overview["findings"]:
        return NOTHING
    name = str(overview.get("report"))
    try:
        # A path that doesn't name a report is ignored.
        found = page_beside(f"{root}/{name}", root) and ReportDocument.read(root / name).content()
    except (KafkaDrainError, OSError):
        found = None
    is_sound = overview["verdict"] == "complete"
    if not found:
        return Placed(is_complete=is_sound)
    archive = Archive.at(root)
    runs = () if is_sound else history.runs
    receipts = (archive.generation(r.generation).read_receipt(r.receipt) for r in runs)
    return place_findings(found, receipts)


def _path(path: str) -> UPath:
    # universal_pathlib's own paths on HDFS aren't those of archives.
    return locate(path) if path.startswith("hdfs://") else UPath(path)


def page_beside(path: object, root: UPath | None = None) -> UPath | None:
    """Return the page of a report; None unless it is `<archive>/reports/<name>.html`.

    The path may come from anyone who may write XComs, so no other file is ever served.

    Args:
        path: Path of the report's JSON document.
        root: An archive that was opened with a connection. A path outside of it is opened with the
            server's own access: whoever writes XComs chooses no connection.
    """
    if not isinstance(path, str) or not path.endswith(".json"):
        return None
    try:
        page = _path(path.removesuffix(".json") + ".html")
        if root is not None and not is_local(root) and path.startswith(f"{root}/"):
            page = root / path.removeprefix(f"{root}/")
            page = page.with_name(page.name.removesuffix(".json") + ".html")
        if is_local(page) and page.is_absolute():
            # Check the path after resolving links and dots.
            page = UPath(Path(page.path).resolve())
        elif page.protocol not in STORES or "::" in path or ".." in path.split("/"):
            return None
        if page.suffix != ".html" or page.parent.name != "reports":
            return None
        archive = page.parent.parent / "archive.json"
        return page if archive.is_file() and page.is_file() else None
    except (OSError, ValueError, ImportError):
        # The file doesn't exist, may not be read, or has an unknown file system.
        return None

"""A YARN ResourceManager's REST API: find applications by tag, ask for their state, end them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen
from xml.etree import ElementTree

from kafka_drain.errors import ConfigError
from kafka_drain.login_name import hadoop_user
from kafka_drain.spark.cluster_manager import NoAnswerError
from kafka_drain.spark.submit import IN_CLUSTER

T = TypeVar("T")

#: States of applications that haven't ended.
_ALIVE = ("NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED", "RUNNING")
_SECONDS = 10.0
_VARIABLES = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
#: The setting by which kafka-drain finds an application.
_TAGS = "spark.yarn.tags"


@dataclass(frozen=True)
class YarnApplication:
    """An application according to the ResourceManager.

    Attributes:
        id: Its id, `application_…`.
        state: Its state, for example `RUNNING`.
        final_status: `SUCCEEDED`, `FAILED` or `KILLED` when it has ended.
        diagnostics: Why it failed, if YARN knows.
    """

    id: str
    state: str
    final_status: str = "UNDEFINED"
    diagnostics: str = ""
    tags: frozenset[str] = frozenset()

    @property
    def is_alive(self) -> bool:
        """Whether it hasn't ended."""
        return self.state in _ALIVE

    @property
    def has_succeeded(self) -> bool:
        """Whether it has ended without an error."""
        return self.state == "FINISHED" and self.final_status == "SUCCEEDED"

    @property
    def waits_for(self) -> str:
        """That it hasn't started; YARN's diagnostics change with each heartbeat of its nodes."""
        is_early = self.is_alive and self.state != "RUNNING"
        return "YARN hasn't started it; its queue may be full" if is_early else ""

    @property
    def outcome(self) -> str:
        """Its final status and diagnostics."""
        return f"{self.final_status} {self.diagnostics[:500].strip()!r}"

    @property
    def kill_command(self) -> str:
        """The command that ends it."""
        return f"yarn application -kill {self.id}"

    @property
    def log_command(self) -> str:
        """The command that shows its log."""
        return f"yarn logs -applicationId {self.id}"

    @classmethod
    def from_dict(cls, answer: Mapping[str, Any]) -> YarnApplication:
        """Return the application of an answer in JSON."""
        return cls(
            id=answer["id"],
            state=answer["state"],
            final_status=answer.get("finalStatus", "UNDEFINED"),
            diagnostics=answer.get("diagnostics") or "",
            tags=frozenset(filter(None, (answer.get("applicationTags") or "").split(","))),
        )


@dataclass(frozen=True)
class ResourceManager:
    """A ResourceManager, or several of which one is active.

    Attributes:
        addresses: The URLs of their web servers.
        conf: Spark's configuration.
    """

    addresses: Sequence[str]
    conf: Mapping[str, str] = field(default_factory=dict)
    name: ClassVar[str] = "YARN"
    #: The working directory of its container.
    secrets_folder: ClassVar[str] = ""

    @classmethod
    def of(
        cls, environment: Mapping[str, str], conf: Mapping[str, str] | None = None
    ) -> ResourceManager:
        """Return the one that spark-submit uses: of the folder `$HADOOP_CONF_DIR`.

        Args:
            environment: Names the folder.
            conf: Spark's configuration.

        Raises:
            ConfigError: When the variable isn't set, or the folder has no `yarn-site.xml`.
        """
        folder = next((environment[name] for name in _VARIABLES if environment.get(name)), None)
        if folder is None:
            raise ConfigError(
                "the master is yarn, but HADOOP_CONF_DIR isn't set; set it to the folder of the "
                "cluster's yarn-site.xml and core-site.xml"
            )
        path = Path(folder) / "yarn-site.xml"
        try:
            return cls(addresses_in(path.read_bytes()), conf or {})
        except (OSError, ElementTree.ParseError) as error:
            raise ConfigError(
                f"{path} can't be read: {error}; HADOOP_CONF_DIR has to name the folder of the "
                "cluster's configuration"
            ) from error

    def tagged(self, tag: str, *, alive: bool = True) -> list[YarnApplication]:
        """Return the applications with a tag: those that haven't ended, or all that it remembers.

        Raises:
            NoAnswerError: When no ResourceManager answers.
            ConfigError: When it requires a login.
        """
        states = f"&states={','.join(_ALIVE)}" if alive else ""
        return self._ask(
            f"apps?applicationTags={quote(tag)}{states}",
            lambda answer: [
                YarnApplication.from_dict(one) for one in (answer["apps"] or {}).get("app", [])
            ],
        )

    def application(self, application_id: str) -> YarnApplication:
        """Return an application.

        Raises:
            NoAnswerError: When no ResourceManager answers, or it doesn't know the application.
            ConfigError: When it requires a login.
        """
        return self._ask(
            f"apps/{quote(application_id)}", lambda answer: YarnApplication.from_dict(answer["app"])
        )

    def kill(self, application_id: str) -> None:
        """End an application.

        Raises:
            NoAnswerError: When no ResourceManager answers.
            ConfigError: When it requires a login.
        """
        # YARN's own idea of a user, where it doesn't ask for Kerberos.
        path = f"apps/{quote(application_id)}/state?user.name={quote(hadoop_user())}"
        self._ask(path, lambda answer: answer, {"state": "KILLED"})

    def options(
        self, run: str, tags: Sequence[str], secrets: Mapping[str, Path], code: str
    ) -> list[str]:
        """Return the options that tag an application, and send it its secrets as files.

        They go to the application's staging folder, which YARN lets only its user read.

        Raises:
            ConfigError: When the configuration has a setting that is kafka-drain's.
        """
        # Of two values on spark-submit's command line, the configuration's would be the last.
        ours = [name for name, value in IN_CLUSTER.items() if self.conf.get(name, value) != value]
        if taken := [*(name for name in (_TAGS,) if name in self.conf), *ours]:
            raise ConfigError(
                f"leave out {taken[0]} in deploy mode cluster: kafka-drain sets it, to find the "
                "driver, which starts once"
            )
        files = [f"{path}#{name}" for name, path in secrets.items()]
        return [
            *("--conf", f"{_TAGS}={','.join(tags)}"),
            *(("--files", ",".join(files)) if files else ()),
        ]

    def hand_over(self, application_id: str, secrets: Mapping[str, Path]) -> None:
        """Do nothing: spark-submit has sent them."""

    def clean_up(self, application_id: str) -> None:
        """Do nothing: Spark removes the staging folder."""

    def _ask(
        self, path: str, read: Callable[[Any], T], content: Mapping[str, str] | None = None
    ) -> T:
        """Ask the ResourceManagers in turn.

        Args:
            read: Reads an answer in JSON.
            content: What to send; None to ask only.
        """
        errors = []
        for address in self.addresses:
            request = Request(
                f"{address}/ws/v1/cluster/{path}",
                data=None if content is None else json.dumps(content).encode(),
                headers={"Accept": "application/json", "Content-Type": "application/json"},
                method="GET" if content is None else "PUT",
            )
            try:
                with urlopen(request, timeout=_SECONDS) as response:
                    answer = json.load(response)
            except HTTPError as error:
                with error:
                    if error.code in (401, 403):
                        raise ConfigError(
                            f"the ResourceManager at {address} answers {error.code} "
                            f"{error.reason}: its REST API requires a login that kafka-drain "
                            "doesn't have (SPNEGO, for example); use deploy mode client"
                        ) from error
                errors.append(f"{address}: {error}")
            except (URLError, OSError, ValueError, HTTPException) as error:
                # The last is for one that broke off, or isn't HTTP.
                errors.append(f"{address}: {error or type(error).__name__}")
            else:
                try:
                    return read(answer)
                except (AttributeError, KeyError, TypeError):
                    # A proxy, or another page.
                    errors.append(f"{address}: its answer isn't a ResourceManager's")
        raise NoAnswerError(f"no ResourceManager answers: {'; '.join(errors)}")


def addresses_in(yarn_site: str | bytes) -> list[str]:
    """Return the URLs of the ResourceManagers' web servers, from a `yarn-site.xml`.

    Raises:
        ElementTree.ParseError: When it isn't XML.
    """
    found = {
        each.findtext("name", "").strip(): each.findtext("value", "").strip()
        for each in ElementTree.fromstring(yarn_site).iter("property")
    }

    def value(name: str, otherwise: str = "") -> str:
        text = found.get(name, otherwise)
        return re.sub(r"\$\{([^}]+)\}", lambda match: found.get(match[1], match[0]), text)

    is_secure = value("yarn.http.policy") == "HTTPS_ONLY"
    scheme, kind, port = ("https", "webapp.https", 8090) if is_secure else ("http", "webapp", 8088)
    ids = value("yarn.resourcemanager.ha.rm-ids").split(",")
    several = value("yarn.resourcemanager.ha.enabled") == "true"
    suffixes = [f".{one.strip()}" for one in ids if one.strip()] if several else [""]
    return [
        f"{scheme}://"
        + value(
            f"yarn.resourcemanager.{kind}.address{suffix}",
            f"{value(f'yarn.resourcemanager.hostname{suffix}', 'localhost')}:{port}",
        )
        for suffix in suffixes
    ]

"""The part of Airflow's REST API that triggers DAG runs and reports their state."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from scripts.compose_test.errors import ApiError, DagRunError
from scripts.compose_test.steps import say

__all__ = ["Airflow", "log_in"]

_POLL_SECONDS = 1.0
_LOG_LINES = 25
_ENDED = ("success", "failed")


@dataclass(frozen=True, slots=True)
class Airflow:
    """An authenticated client of Airflow's REST API.

    Attributes:
        url: URL of the API server.
        token: Token that authorizes requests.
    """

    url: str
    token: str

    def __repr__(self) -> str:
        return f"Airflow({self.url!r})"

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Send a request to `/api/v2/<path>` and return the response.

        Raises:
            ApiError: If Airflow refuses the request.
        """
        headers = {"Authorization": f"Bearer {self.token}"}
        return _ask(method, f"{self.url}/api/v2/{path}", body, headers)

    def unpause(self, dag: str) -> None:
        """Unpause a DAG, so that its runs start, including scheduled ones."""
        self.request("PATCH", f"dags/{dag}", {"is_paused": False})

    def trigger(self, dag: str, conf: Mapping[str, Any]) -> str:
        """Trigger a run and return its id."""
        answer = self.request("POST", f"dags/{dag}/dagRuns", {"logical_date": None, "conf": conf})
        run_id: str = answer["dag_run_id"]
        return run_id

    def wait_for_runs(self, dag: str, seconds: float) -> dict[str, str]:
        """Wait until all of a DAG's runs have succeeded, and print the progress of their tasks.

        Returns:
            The state of each run by its id.

        Raises:
            DagRunError: If a run failed, with its tasks' last log lines, or didn't end in time.
        """
        limit = time.monotonic() + seconds
        told: dict[tuple[str, str], str] = {}
        earlier: set[str] | None = None
        while True:
            answer = self.request("GET", f"dags/{dag}/dagRuns")
            states = {run["dag_run_id"]: run["state"] for run in answer["dag_runs"]}
            if earlier is None:
                earlier = {run for run in states if states[run] == "success"}
            for run in states.keys() - earlier:
                self._tell_tasks(dag, run, told)
                if states[run] == "failed":
                    raise DagRunError(f"Run {run} of {dag} failed.\n{self._failed_logs(dag, run)}")
            if all(state in _ENDED for state in states.values()):
                return states
            if time.monotonic() > limit:
                raise DagRunError(f"The runs of {dag} didn't end within {seconds:g} s: {states}")
            time.sleep(_POLL_SECONDS)

    def _tasks(self, dag: str, run: str) -> list[dict[str, Any]]:
        answer = self.request("GET", f"dags/{dag}/dagRuns/{run}/taskInstances")
        tasks: list[dict[str, Any]] = answer["task_instances"]
        return tasks

    def _tell_tasks(self, dag: str, run: str, told: dict[tuple[str, str], str]) -> None:
        for task in self._tasks(dag, run):
            key = (run, task["task_id"])
            state = task["state"] or "waiting"
            if told.get(key, "waiting") != state:
                told[key] = state
                say(f"  {task['task_id']}: {state} ({run})")

    def _failed_logs(self, dag: str, run: str) -> str:
        lines = []
        for task in self._tasks(dag, run):
            if task["state"] == "failed":
                path = f"dags/{dag}/dagRuns/{run}/taskInstances/{task['task_id']}"
                log = self.request("GET", f"{path}/logs/{task['try_number']}?full_content=true")
                lines.append(f"{task['task_id']}, try {task['try_number']}:")
                events = [event["event"] for event in log["content"]]
                lines += [f"  {event}" for event in events[-_LOG_LINES:]]
        return "\n".join(lines)


def log_in(url: str, user: str, password: str) -> Airflow:
    """Log in as a user.

    Raises:
        ApiError: If Airflow refuses the login.
    """
    answer = _ask("POST", f"{url}/auth/token", {"username": user, "password": password}, {})
    return Airflow(url, answer["access_token"])


def _ask(method: str, url: str, body: Mapping[str, Any] | None, headers: Mapping[str, str]) -> Any:
    data = None if body is None else json.dumps(body).encode()
    sent = {"Content-Type": "application/json", "Accept": "application/json", **headers}
    try:
        with urlopen(Request(url, data, sent, method=method), timeout=30) as answer:
            return json.load(answer)
    except HTTPError as error:
        # The request's body isn't in the message, as it may contain a password.
        with error:
            said = error.read(2000).decode(errors="replace")
        raise ApiError(f"{method} {url} returned {error.code}: {said}") from error
    except OSError as error:
        raise ApiError(f"{method} {url} failed: {error}") from error

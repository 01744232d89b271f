"""The API of a running Airflow, used as its UI does: unpause, trigger, and answer questions."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.parse import unquote
from urllib.request import Request, urlopen

import sqlalchemy

from demo.local_airflow import LocalAirflow
from tests.faults.injection import wait_for

__all__ = ["AirflowApi", "rows_of"]

ENDED = ("success", "failed")


@dataclass(frozen=True)
class AirflowApi:
    """Airflow's API after a login.

    Attributes:
        airflow: The Airflow, which is running.
        token: What its login gave.
    """

    airflow: LocalAirflow
    token: str = ""

    @classmethod
    def login(cls, airflow: LocalAirflow) -> AirflowApi:
        """Log in as the user that Airflow has made for its home."""
        user, password = airflow.login()
        given = {"username": user, "password": password}
        return cls(airflow, cls(airflow)._send("POST", "/auth/token", given)["access_token"])

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """Return the answer; fail with it if it isn't a success."""
        return self._send(method, f"/api/v2{path}", body)

    def page(self, path: str) -> str:
        """Return a page of kafka-drain's, as a browser that is logged in gets it."""
        login = {"Cookie": f"_token={self.token}"}
        with urlopen(Request(self.airflow.url + path, headers=login), timeout=60) as answer:
            return str(answer.read().decode())

    def unpause(self, dag_id: str) -> None:
        """Let a DAG's runs start, also those of its schedule."""
        self.ask("PATCH", f"/dags/{dag_id}", {"is_paused": False})

    def trigger(self, dag_id: str, run_id: str, **conf: Any) -> None:
        """Start a run, as the form does."""
        body = {"dag_run_id": run_id, "logical_date": None, "conf": conf}
        self.ask("POST", f"/dags/{dag_id}/dagRuns", body)

    def states(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Return the states of a run's tasks."""
        tasks = self.ask("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances")["task_instances"]
        return {task["task_id"]: task["state"] for task in tasks}

    def ended(self, dag_id: str, run_id: str) -> dict[str, str]:
        """Wait for a run's end; return the states of its tasks."""
        run = f"/dags/{dag_id}/dagRuns/{run_id}"
        wait_for(
            lambda: self.ask("GET", run)["state"] in ENDED, f"{run} ends", patience=240, pause=0.5
        )
        return self.states(dag_id, run_id)

    def question(self, dag_id: str, run_id: str) -> dict[str, Any]:
        """Wait until the task `approve` of a run waits for an answer; return its question."""
        self._await_question(dag_id, run_id, "approve")
        [found] = self.ask("GET", f"/dags/{dag_id}/dagRuns/{run_id}/hitlDetails")["hitl_details"]
        return dict(found)

    def answer(self, dag_id: str, run_id: str, option: str) -> dict[str, str]:
        """Answer the question of a run; return the states of its tasks, once it has ended."""
        self._answer(dag_id, run_id, "approve", option)
        return self.ended(dag_id, run_id)

    def answer_when_asked(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        """Wait until a task of a run asks, and answer."""
        self._await_question(dag_id, run_id, task_id)
        self._answer(dag_id, run_id, task_id, option)

    def _await_question(self, dag_id: str, run_id: str, task_id: str) -> None:
        # Airflow fails a task that is answered before its scheduler has heard that it waits.
        heard = "Received executor event with state success for task instance TaskInstanceKey"
        task = f"dag_id='{dag_id}', task_id='{task_id}', run_id='{unquote(run_id)}'"

        def waits() -> bool:
            log = (self.airflow.logs / "standalone.log").read_text()
            states = self.states(dag_id, run_id)
            assert "failed" not in states.values(), states
            is_heard = f"{heard}({task}" in log
            return is_heard and states.get(task_id) in ("awaiting_input", "deferred")

        wait_for(waits, f"{task_id} of {dag_id} {run_id} asks", patience=120, pause=0.5)

    def _answer(self, dag_id: str, run_id: str, task_id: str, option: str) -> None:
        said = {"chosen_options": [option], "params_input": {}}
        tasks = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances"
        self.ask("PATCH", f"{tasks}/{task_id}/-1/hitlDetails", said)

    def _send(self, method: str, path: str, body: Any) -> Any:
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {self.token}"}
        content = None if body is None else json.dumps(body).encode()
        request = Request(self.airflow.url + path, content, headers, method=method)
        try:
            with urlopen(request, timeout=60) as answer:
                # What is deleted answers nothing.
                return json.loads(answer.read() or "null")
        except HTTPError as error:
            raise AssertionError(f"{method} {path}: {error.code} {error.read()!r}") from error


def rows_of(airflow: LocalAirflow, query: str) -> list[tuple[Any, ...]]:
    """Return a query's rows from an Airflow's database."""
    engine = sqlalchemy.create_engine(airflow.database)
    with engine.connect() as connection:
        rows = [tuple(row) for row in connection.execute(sqlalchemy.text(query))]
    engine.dispose()
    return rows

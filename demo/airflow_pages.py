"""Request the plugin's pages from Airflow's own server, with its database and login.

For Airflow 3 this is the application that the API server mounts, for Airflow 2 the whole webserver.
Both need a process of their own with `AIRFLOW_HOME` set; `ask` starts one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
import warnings
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

__all__ = [
    "AUDITOR",
    "BROWSER",
    "FORGER",
    "LOOKER",
    "NOBODY",
    "VIEWER",
    "PageAnswer",
    "Scene",
    "XCom",
    "ask",
    "open_pages",
]

ROOT = Path(__file__).resolve().parents[1]
_SECONDS = 180
_BEGAN = datetime(2026, 1, 1, tzinfo=timezone.utc)

#: Users in addition to ROLES: one who may view everything, one with a forged login, one without.
VIEWER, FORGER, NOBODY = "viewer", "forger", "nobody"
#: One who may see records.
AUDITOR = "auditor"
#: One without a login who asks as a browser does, and one with too few rights.
BROWSER, LOOKER = "browser", "looker"
#: Users with fewer rights (named as in Airflow 2), by name; for Airflow 3, see `airflow_auth`.
ROLES = {
    "stranger": [("can_read", "Website"), ("menu_access", "Browse")],
    "homeless": [],
    "guest": [
        ("can_read", "Website"),
        ("can_read", "DAG:drain_a"),
        ("can_read", "DAG Runs"),
        ("can_read", "Task Instances"),
        ("can_read", "XComs"),
    ],
    "without_xcoms": [
        ("can_read", "Website"),
        ("can_read", "DAGs"),
        ("can_read", "DAG Runs"),
        ("can_read", "Task Instances"),
    ],
    "without_runs": [
        ("can_read", "Website"),
        ("can_read", "DAGs"),
        ("can_read", "Task Instances"),
        ("can_read", "XComs"),
    ],
    "without_group": [
        ("can_read", "Website"),
        ("can_read", "DAG:drain_a"),
        ("can_read", "DAG:drain_b"),
        ("can_read", "DAG Runs"),
        ("can_read", "Task Instances"),
        ("can_read", "XComs"),
    ],
}


class XCom(TypedDict):
    """An XCom of a task, stored in the database as JSON.

    Attributes:
        dag_id: Id of the DAG.
        run_id: Id of one of the scene's runs.
        task_id: Id of the task, which is in state running.
        key: Name of the XCom.
        value: Any JSON value.
    """

    dag_id: str
    run_id: str
    task_id: str
    key: str
    value: Any


class Scene(TypedDict, total=False):
    """The content of Airflow's database.

    Attributes:
        dag_files: Folder of DAG files, which are parsed as Airflow parses them.
        dags: URIs of archives by further DAGs, whose task `validate` has the archive as outlet.
        extras: Extra of the archives' assets, by DAG, as `archive_asset` makes it.
        groups: The DAGs among these that a group's DAG drains for, by the group's DAG.
        runs: States of runs, by DAG and run, oldest first.
        times: Start and end of runs (ISO 8601), by DAG and run; other runs have neither.
        xcoms: XComs of tasks.
        tasks: States of tasks, by DAG, run and task; other tasks with XComs are running.
    """

    dag_files: str
    dags: Mapping[str, str]
    extras: Mapping[str, Mapping[str, Any]]
    groups: Mapping[str, list[str]]
    runs: Mapping[str, Mapping[str, str]]
    times: Mapping[str, Mapping[str, tuple[str, str]]]
    xcoms: list[XCom]
    tasks: list[tuple[str, str, str, str]]


class PageAnswer(NamedTuple):
    """A server's response; header names are in lower case."""

    status: int
    text: str
    headers: dict[str, str]


def ask(
    folder: Path,
    scene: Scene,
    requests: Mapping[str, tuple[str, ...]],
    environment: Mapping[str, str] | None = None,
) -> dict[str, PageAnswer]:
    """Return the responses of an Airflow with its home in a folder, by the requests' names.

    Args:
        folder: Folder for Airflow's home.
        scene: Content of its database.
        requests: User and URL, and what is posted if it isn't read, by the request's name.
        environment: Additional environment variables.

    Raises:
        RuntimeError: If it failed; with the end of its output.
    """
    ended = subprocess.run(
        [sys.executable, "-m", "demo.airflow_pages"],
        check=False,
        input=json.dumps([scene, requests]),
        env={
            **os.environ,
            "AIRFLOW_HOME": str(folder / "airflow"),
            "AIRFLOW__CORE__PLUGINS_FOLDER": str(ROOT / "plugins"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "false",
            "PYTHONPATH": os.pathsep.join(map(str, (ROOT, ROOT / "plugins", ROOT / "spark_jobs"))),
            **(environment or {}),
        },
        capture_output=True,
        text=True,
        timeout=_SECONDS,
    )
    if ended.returncode:
        raise RuntimeError(ended.stderr[-2000:])
    answers = json.loads(ended.stdout.splitlines()[-1])
    return {name: PageAnswer(*answer) for name, answer in answers.items()}


def open_pages(scene: Scene) -> Callable[..., PageAnswer]:
    """Return a function that requests a URL as a user from Airflow's server in this process.

    In Airflow 3, it posts what it is given besides these.
    """
    from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS

    get = _open_fastapi() if AIRFLOW_V_3_0_PLUS else _open_flask()
    if "dag_files" in scene:
        _read_dags(scene["dag_files"])
    _fill(scene)
    return get


def _open_fastapi() -> Callable[..., PageAnswer]:
    from airflow import settings
    from airflow.api_fastapi.app import init_auth_manager
    from airflow.api_fastapi.auth.managers.simple.user import SimpleAuthManagerUser
    from airflow.models import import_all_models
    from airflow.models.base import Base
    from fastapi import FastAPI
    from fastapi.testclient import TestClient

    from demo.airflow_auth import RIGHTS
    from kafka_drain_plugin import KafkaDrainPlugin

    os.environ["AIRFLOW__CORE__AUTH_MANAGER"] = "demo.airflow_auth.GuestAuthManager"
    # Airflow 3.0 writes a file of passwords there.
    Path(os.environ["AIRFLOW_HOME"]).mkdir(parents=True, exist_ok=True)
    auth: Any = init_auth_manager()
    models: Callable[[], None] = import_all_models
    models()
    Base.metadata.create_all(settings.engine)
    server = FastAPI()
    for mounted in KafkaDrainPlugin().fastapi_apps:
        server.mount(mounted["url_prefix"], mounted["app"])
    tokens = {
        VIEWER: auth.generate_jwt(SimpleAuthManagerUser(username=VIEWER, role="VIEWER")),
        "stranger": auth.generate_jwt(SimpleAuthManagerUser(username="stranger", role=None)),
        AUDITOR: auth.generate_jwt(SimpleAuthManagerUser(username=AUDITOR, role="OP")),
        FORGER: "not.a.token",
    }
    for name in RIGHTS:
        tokens[name] = auth.generate_jwt(SimpleAuthManagerUser(username=name, role="VIEWER"))
    clients = {user: TestClient(server, cookies={"_token": tokens[user]}) for user in tokens}
    clients[NOBODY] = TestClient(server)
    asks = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    clients[BROWSER] = TestClient(server, headers=asks)
    clients[LOOKER] = TestClient(server, headers=asks, cookies={"_token": tokens["stranger"]})

    def get(user: str, url: str, posted: str | None = None) -> PageAnswer:
        method = "GET" if posted is None else "POST"
        answer = clients[user].request(method, url, content=posted, follow_redirects=False)
        return PageAnswer(answer.status_code, answer.text, dict(answer.headers))

    return get


def _open_flask() -> Callable[[str, str], PageAnswer]:
    from airflow.configuration import conf
    from airflow.utils import db
    from airflow.www import app as webserver

    make_database: Callable[..., None] = db.initdb
    make_database(load_connections=False)
    create_app: Callable[..., Any] = webserver.create_app
    app = create_app({"WTF_CSRF_ENABLED": False, "AUTH_RATE_LIMITED": False})
    security = app.appbuilder.sm
    with app.app_context():
        for name, rights in ROLES.items():
            role = security.add_role(name)
            for right in rights:
                security.add_permission_to_role(role, security.create_permission(*right))
            _add_user(security, name, role)
        _add_user(security, VIEWER, security.find_role("Viewer"))
    clients = {user: app.test_client() for user in (VIEWER, FORGER, NOBODY, BROWSER, *ROLES)}
    clients[FORGER].set_cookie("session", "not.a.token")
    base = conf.get("webserver", "base_url").partition("//")[2].partition("/")[2]
    login = f"/{base}/login/" if base else "/login/"
    for user in (VIEWER, *ROLES):
        answer = clients[user].post(login, data={"username": user, "password": user})
        if answer.status_code != 302 or "login" in answer.headers["Location"]:
            raise RuntimeError(f"{user} can't log in: {answer.status_code} {answer.headers}")

    clients[LOOKER] = clients["stranger"]

    def get(user: str, url: str) -> PageAnswer:
        answer = clients[user].get(url)
        headers = {name.lower(): value for name, value in answer.headers.items()}
        return PageAnswer(answer.status_code, answer.get_data(as_text=True), headers)

    return get


def _add_user(security: Any, name: str, role: Any) -> None:
    if not security.add_user(name, name, name, f"{name}@example.org", role, password=name):
        raise RuntimeError(f"Airflow refuses the user {name}")


def _read_dags(folder: str) -> None:
    from airflow.models import dagbag
    from airflow.utils.session import create_session

    bag: Any = dagbag.DagBag(folder, include_examples=False)
    if bag.import_errors or not bag.dags:
        raise RuntimeError(f"{folder} has no DAGs: {bag.import_errors}")
    with create_session() as session:
        bag.sync_to_db(session=session)


def _fill(scene: Scene) -> None:
    """Write only the rows that a scene describes into Airflow's database."""
    import sqlalchemy
    from airflow.models.dag import DagModel, DagTag
    from airflow.models.dagrun import DagRun
    from airflow.models.taskinstance import TaskInstance
    from airflow.providers.common.compat.version_compat import AIRFLOW_V_3_0_PLUS
    from airflow.utils.session import create_session
    from sqlalchemy import insert, text

    from kafka_drain_airflow.pages.database import AssetModel, TaskOutletAssetReference, XComModel

    with create_session() as session:

        def add(model: Any, **values: Any) -> None:
            # Columns that this Airflow doesn't have are left out.
            known = {name: values[name] for name in values if name in model.__table__.columns}
            session.execute(insert(model.__table__).values(known))

        # The parent rows, such as those of tasks, don't exist.
        session.execute(text("PRAGMA foreign_keys=OFF"))
        if AIRFLOW_V_3_0_PLUS:
            from airflow.models.dagbundle import DagBundleModel

            add(DagBundleModel, name="dags-folder")
        groups = scene.get("groups", {})
        for dag_id in (*scene.get("dags", {}), *groups):
            add(
                DagModel,
                dag_id=dag_id,
                bundle_name="dags-folder",
                max_active_tasks=1,
                max_consecutive_failed_dag_runs=0,
                has_task_concurrency_limits=False,
            )
            add(DagTag, name="kafka-drain", dag_id=dag_id)
        for number, (dag_id, uri) in enumerate(scene.get("dags", {}).items(), start=1):
            more = {"extra": scene["extras"][dag_id]} if dag_id in scene.get("extras", {}) else {}
            add(AssetModel, id=number, name=uri, uri=uri, group="asset", **more)
            outlet = {"asset_id": number, "dataset_id": number}
            add(TaskOutletAssetReference, dag_id=dag_id, task_id="validate", **outlet)
        numbers = {dag_id: n for n, dag_id in enumerate(scene.get("dags", {}), start=1)}
        for group, dag_ids in groups.items():
            for dag_id in dag_ids:
                outlet = {"asset_id": numbers[dag_id], "dataset_id": numbers[dag_id]}
                task_id = f"validate_{dag_id.removeprefix('drain_')}"
                add(TaskOutletAssetReference, dag_id=group, task_id=task_id, **outlet)
        ids: dict[tuple[str, str], int] = {}
        for dag_id, runs in scene.get("runs", {}).items():
            for hours, (run_id, state) in enumerate(runs.items()):
                at = _BEGAN + timedelta(hours=hours)
                ids[dag_id, run_id] = number = len(ids) + 1
                run = {"dag_id": dag_id, "run_id": run_id, "run_type": "scheduled", "state": state}
                times = scene.get("times", {}).get(dag_id, {}).get(run_id, ())
                began, ended = map(datetime.fromisoformat, times) if times else (None, None)
                dates = {"run_after": at, "execution_date": at}
                add(DagRun, id=number, start_date=began, end_date=ended, **dates, **run)
        tasks: dict[tuple[str, str, str], str] = {}
        for xcom in scene.get("xcoms", []):
            said = json.dumps(xcom["value"])
            value = said if AIRFLOW_V_3_0_PLUS else said.encode()
            number = ids[xcom["dag_id"], xcom["run_id"]]
            add(XComModel, dag_run_id=number, map_index=-1, **{**xcom, "value": value})
            tasks[xcom["dag_id"], xcom["run_id"], xcom["task_id"]] = "running"
        for dag_id, run_id, task_id, state in scene.get("tasks", []):
            tasks[dag_id, run_id, task_id] = state
        # Until Airflow requires SQLAlchemy 2, a task instance's id is a text.
        kind = getattr(sqlalchemy, "Uuid", None)
        has_uuid = kind is not None and isinstance(TaskInstance.__table__.c.id.type, kind)
        for number, key in enumerate(sorted(tasks), start=1):
            of_task = uuid.UUID(int=number)
            task = dict(zip(("dag_id", "run_id", "task_id"), key, strict=True))
            add(
                TaskInstance,
                id=of_task if has_uuid else str(of_task),
                state=tasks[key],
                map_index=-1,
                pool="default_pool",
                pool_slots=1,
                try_number=1,
                **task,
            )


def main() -> None:
    """Read a scene and requests as JSON, and print the responses as one line of JSON."""
    warnings.simplefilter("ignore")
    scene, requests = json.load(sys.stdin)
    get = open_pages(scene)
    sys.stdout.write(json.dumps({name: get(*request) for name, request in requests.items()}))


if __name__ == "__main__":
    main()

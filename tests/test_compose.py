"""The Docker image and the stack: checks that need no engine."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from kafka_drain.cli.main import parser

CHECKOUT = Path(__file__).resolve().parents[1]
COMPOSE_FILE = CHECKOUT / "docker-compose.yaml"
STACK: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = STACK["services"]
# Joins continued lines, without the comments between them.
DOCKERFILE = re.sub(
    r"\\\n",
    " ",
    re.sub(r"(?m)^\s*#.*\n", "", (CHECKOUT / "Dockerfile").read_text(encoding="utf-8")),
)
# The stages of the Dockerfile by name; the last one is the default build.
STAGES = dict(re.findall(r"(?ms)^FROM \S+ AS (\S+)\n(.*?)(?=^FROM |\Z)", DOCKERFILE))
USERS = {"kafka-drain": "kafka-drain", "postgres": "postgres"}

_SECRET = re.compile(
    r"password|passwd|passphrase|secret|token|credential|fernet|(api|access|private)_?-?key", re.I
)
_SECRET_ASSIGNED = re.compile(rf"({_SECRET.pattern})[\w.-]*[\"']?\s*[=:]|://[^/\s]*:[^/\s]*@", re.I)


def secrets(node: Any, path: str = "") -> Iterator[str]:
    """Yield secrets: keys with such names, and texts that assign one or log in with one."""
    if isinstance(node, dict):
        for key, value in node.items():
            if _SECRET.search(str(key)):
                yield f"{path}.{key}"
            yield from secrets(value, f"{path}.{key}")
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from secrets(value, f"{path}[{number}]")
    elif _SECRET_ASSIGNED.search(str(node)):
        yield path


def stage_of(service: str) -> str:
    """Return the name of the stage that a service's image is built from."""
    image = SERVICES[service]["image"]
    [builds] = [
        settings["build"]
        for settings in SERVICES.values()
        if settings["image"] == image and "build" in settings
    ]
    return str(builds["target"]) if isinstance(builds, dict) else list(STAGES)[-1]


def copies() -> list[tuple[list[str], str]]:
    """Return the sources and the target of each COPY."""
    found = [line.split()[1:] for line in DOCKERFILE.splitlines() if line.startswith("COPY ")]
    return [(words[:-1], words[-1]) for words in found]


def compose_command() -> list[str] | None:
    for command in (["docker", "compose"], ["docker-compose"]):
        if shutil.which(command[0]) is None:
            continue
        if subprocess.run([*command, "version"], capture_output=True, check=False).returncode == 0:
            return command
    return None


def test_compose_config_valid() -> None:
    """Docker Compose itself accepts the file."""
    command = compose_command()
    if command is None:
        pytest.skip("neither `docker compose version` nor `docker-compose version` works here")

    run = subprocess.run(
        [*command, "--file", str(COMPOSE_FILE), "config", "--quiet"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert run.returncode == 0, run.stderr


def test_stack_services() -> None:
    """The stack is a broker, Spark, and Airflow with its database; Spark Connect on demand."""
    profiles = {name: settings.get("profiles") for name, settings in SERVICES.items()}

    assert profiles.pop("spark-connect") == ["connect"]
    assert profiles == dict.fromkeys(
        ["broker", "spark-master", "spark-worker", "postgres", "airflow"]
    )
    assert "version" not in STACK


def test_stack_spark_connect() -> None:
    """The Spark Connect server's options are accepted, and Airflow's connection leads to it."""
    program, command, *options = SERVICES["spark-connect"]["command"]
    parsed = parser().parse_args([command, *options])
    connection = json.loads(SERVICES["airflow"]["environment"]["AIRFLOW_CONN_SPARK_CONNECT"])

    assert (program, parsed.port, parsed.host) == ("kafka-drain", connection["port"], "0.0.0.0")
    assert connection["conn_type"] == "spark_connect"
    assert connection["host"] == "spark-connect"
    assert SERVICES["spark-connect"]["ports"] == [f"127.0.0.1:{parsed.port}:{parsed.port}"]
    assert set(SERVICES["spark-connect"]["volumes"]) <= set(SERVICES["airflow"]["volumes"])


def test_image_connect_client() -> None:
    """The image has what pyspark's client of a Spark Connect server imports."""
    lock = (CHECKOUT / "requirements-docker.lock").read_text(encoding="utf-8")

    for name in ("grpcio", "grpcio-status", "googleapis-common-protos", "pandas", "pyarrow"):
        assert re.search(rf"(?m)^{name}==", lock), name


def test_stack_database() -> None:
    """Airflow's database is PostgreSQL, on a network that connects only the two."""
    settings = SERVICES["airflow"]["environment"]
    joined = {name for name in SERVICES if "database" in SERVICES[name].get("networks", [])}

    assert settings["AIRFLOW__CORE__EXECUTOR"] == "LocalExecutor"
    assert settings["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"].startswith("postgresql+psycopg2://")
    assert joined == {"airflow", "postgres"}
    assert list(SERVICES["postgres"]["networks"]) == ["database"]
    assert "ports" not in SERVICES["postgres"]
    assert STACK["networks"]["database"] == {"internal": True}


def test_stack_spark_driver_address() -> None:
    """Executors reach Spark's drivers by a name that resolves to one network only."""
    airflow = SERVICES["airflow"]
    name = airflow["environment"]["SPARK_LOCAL_HOSTNAME"]

    assert airflow["networks"] == {"default": {"aliases": [name]}, "database": None}
    assert name not in SERVICES


@pytest.mark.parametrize("service", SERVICES)
def test_service_health_checked(service: str) -> None:
    """Every service has a health check, and its Python compiles."""
    command, *arguments = SERVICES[service]["healthcheck"]["test"]

    assert command == "CMD"
    if arguments[0].startswith("python"):
        compile(arguments[-1], service, "exec")


@pytest.mark.parametrize("service", SERVICES)
def test_service_depends_on_healthy(service: str) -> None:
    """The services that a service depends on exist, and it waits until they are healthy."""
    needs = SERVICES[service].get("depends_on", {})

    assert set(needs) <= set(SERVICES)
    assert all(need == {"condition": "service_healthy"} for need in needs.values())


@pytest.mark.parametrize("service", SERVICES)
def test_service_ports_loopback(service: str) -> None:
    """A published port can be reached only from this machine."""
    for port in SERVICES[service].get("ports", []):
        assert re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port), port
    assert "network_mode" not in SERVICES[service]


@pytest.mark.parametrize("service", SERVICES)
def test_service_unprivileged(service: str) -> None:
    """A service has no privileges beyond its user's, who isn't root."""
    settings = SERVICES[service]

    assert not {"privileged", "cap_add", "devices", "pid", "user"} & set(settings)
    assert settings["cap_drop"] == ["ALL"]
    stage = stage_of(service)
    assert re.findall(r"(?m)^USER (\S+)", STAGES[stage]) == [USERS[stage]]
    assert re.search(rf"useradd --uid \d{{5}} [^&]*{USERS[stage]}", STAGES[stage])


@pytest.mark.parametrize("service", SERVICES)
def test_service_volumes_declared(service: str) -> None:
    """A service mounts only declared volumes, on folders that the image creates for its user."""
    stage = stage_of(service)
    for volume in SERVICES[service].get("volumes", []):
        name, target = volume.split(":")
        made = rf"install -d -o {USERS[stage]} [^&]*{target}(\s|$)"
        assert name in STACK["volumes"], volume
        assert re.search(made, STAGES[stage], flags=re.M), target


def test_images_pinned() -> None:
    """Every image has a tag, and none is `latest`."""
    images = [settings["image"] for settings in SERVICES.values()]
    images += re.findall(r"(?m)^FROM (\S+)", DOCKERFILE)

    for image in images:
        assert re.fullmatch(r"[a-z0-9./-]+:(?!latest$)[\w.-]+", image), image


def test_stack_without_secrets() -> None:
    """The file holds no password, secret or token."""
    assert list(secrets(STACK)) == []


@pytest.mark.parametrize(
    "setting",
    [
        {"POSTGRES_PASSWORD": "x"},
        ["AIRFLOW__API__SECRET_KEY=x"],
        {"AIRFLOW_CONN_KAFKA_DEFAULT": '{"extra": {"sasl.password": "x"}}'},
        {"AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": "postgresql://airflow:x@postgres/airflow"},
    ],
)
def test_secrets_found(setting: Any) -> None:
    """The check for secrets finds one by its key, in a text, in JSON and in a URL."""
    assert list(secrets({"environment": setting}))


def test_dockerfile_sources_exist() -> None:
    """The files that the Dockerfile copies exist and aren't excluded by .dockerignore."""
    let_in = {
        line[1:]
        for line in (CHECKOUT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    sources = [source for group, _ in copies() for source in group]

    assert sources
    for source in sources:
        assert (CHECKOUT / source).exists(), source
        assert Path(source).parts[0] in let_in, source
    assert let_in == {Path(source).parts[0] for source in sources}


def test_dockerfile_jars_layer_complete(tmp_path: Path) -> None:
    """The few files that are copied for the download suffice for it."""
    for sources, target in copies():
        if target.startswith("fetch/"):
            package = tmp_path / Path(target).relative_to("fetch")
            package.mkdir(parents=True)
            for source in (CHECKOUT / name for name in sources):
                for file in source.iterdir() if source.is_dir() else [source]:
                    if file.is_file():
                        shutil.copy(file, package)

    run = subprocess.run(
        [
            sys.executable,
            "-c",
            "from kafka_drain.spark.jars import fetch; fetch.verified(fetch.BROKER)",
        ],
        env={**os.environ, "PYTHONPATH": str(tmp_path), "KAFKA_DRAIN_CACHE": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    # It got as far as the cache, which is empty.
    assert "MachineError: the broker jars are incomplete" in run.stderr


def test_dockerfile_uv_same_as_setup() -> None:
    """Image and checkout are installed with the same uv."""
    setup = (CHECKOUT / "scripts" / "setup.sh").read_text(encoding="utf-8")

    assert re.findall(r"uv==([\d.]+)", DOCKERFILE) == re.findall(r"uv_version=([\d.]+)", setup)


def test_image_as_tested() -> None:
    """The image installs pins of the tests' lock file, without those that only tests need."""
    pin = re.compile(r"(?m)^([\w.-]+)==(\S+)")
    in_image, in_tests = (
        set(pin.findall((CHECKOUT / name).read_text(encoding="utf-8")))
        for name in ("requirements-docker.lock", "requirements.lock")
    )

    assert "--require-hashes -r requirements-docker.lock" in STAGES["kafka-drain"]
    assert in_image < in_tests
    names = {name for name, _ in in_image}
    assert names >= {"apache-airflow", "asyncpg", "psycopg2-binary", "s3fs"}
    assert not names & {"hypothesis", "moto", "mypy", "pytest", "ruff"}


def test_image_class_archive_after_jars() -> None:
    """Jar timestamps are whole seconds when the CDS archive is created, as in pulled images."""
    stage = STAGES["kafka-drain"]
    made = stage.index("RUN kafka-drain class-archive")

    for folder in ("venv", "cache"):
        assert stage.index(f"find {folder} -name '*.jar' -exec touch --date=") < made


@pytest.mark.parametrize("script", ["docker/broker.sh", "docker/postgres.sh"])
def test_script_runs_as_command(script: str) -> None:
    """A service's script is executable, valid shell, and run by the service."""
    commands = [" ".join(settings.get("command", [])) for settings in SERVICES.values()]
    commands += re.findall(r"(?m)^CMD (.*)", DOCKERFILE)

    assert any(Path(script).name in command for command in commands)
    script = str(CHECKOUT / script)
    assert os.access(script, os.X_OK)
    run = subprocess.run(["sh", "-n", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr


def test_broker_listeners_published() -> None:
    """Containers and this machine each get an advertised broker address that they can reach."""
    lines = (CHECKOUT / "docker" / "broker.properties").read_text(encoding="utf-8").splitlines()
    properties = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    mapped = {port.rsplit(":", 1)[0] for port in SERVICES["broker"]["ports"]}

    assert properties["advertised.listeners"] == "PLAINTEXT://broker:9092,HOST://127.0.0.1:29092"
    assert mapped == {"127.0.0.1:29092"}
    assert "broker:9092" in SERVICES["airflow"]["environment"]["AIRFLOW_CONN_KAFKA_DEFAULT"]
    assert properties["log.dirs"].startswith("/var/lib/kafka/")


def test_documented_down_reaches_all_profiles() -> None:
    """What stops the stack stops services of profiles, too."""
    page = (CHECKOUT / "docs" / "docker.md").read_text(encoding="utf-8")
    profiles = {name for s in SERVICES.values() for name in s.get("profiles", [])}
    lines = re.findall(r"(?m)^docker compose .*\bdown\b.*$", page)

    assert lines
    assert all(f"--profile {name} " in line for line in lines for name in profiles), lines


@pytest.mark.parametrize(
    ("stage", "copied"),
    [("postgres", "/usr/local/bin/postgres.sh"), ("kafka-drain", "dags docker plugins spark_jobs")],
)
def test_image_files_readable(stage: str, copied: str) -> None:
    """The image's user can read what was copied, whatever the umask of the checkout."""
    before, _, _ = STAGES[stage].partition("\nUSER ")

    assert f"RUN chmod -R u=rwX,go=rX {copied}" in before

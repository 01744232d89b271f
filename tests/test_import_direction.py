"""Who may import whom: read from the sources with `ast`, nothing is executed."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROOTS = {
    "kafka_drain": ROOT / "plugins",
    "kafka_drain_airflow": ROOT / "plugins",
    "kafka_drain_spark": ROOT / "spark_jobs",
}
# Our packages from the ground up: a module may import what stands above it here, never what stands
# below. Names with a dot are inner rooms of a package; what isn't in one comes after them.
FLOORS = {
    "kafka_drain": (
        "errors offsets findings gaps output progress intervals clock user_code background outages "
        "child_process http_retries login_name",
        "storage",
        "config",
        "metadata_log",
        "encryption",
        "data_files",
        "kafka",
        "archive",
        "reading iceberg sizing look looking",
        "cursor",
        "pages",
        "evidence",
        "spark",
        "proof",
        "schemas",
        "drain",
        "republish.changing",
        "republish.planning",
        "republish.sending",
        "republish.verifying",
        "republish.engines",
        "republish.groups",
        "republish",
        "find",
        "drills",
        "windows",
        "maintenance",
        "recovery",
        "cut_over",
        "events",
        "cli",
    ),
    "kafka_drain_airflow": (
        "addresses dag_tags connections command_reach erase_connection evidence_connection "
        "kafka_connection run_conf store_connection",
        "data_intervals timetables declared",
        "observability",
        "pages forms triggers",
        "operators",
        "factory_arguments task_group cut_over_dag",
        "dag_factory dags_backfill",
        "watch_dag",
    ),
}

# What a module that reads no file and asks nobody says of itself.
PURE = "opens nothing"

# What Spark's executors and the processes of a republish import to read an archive's records.
EXECUTOR_SIDE = """
    republish.sending.shard_reader republish.sending.arrow_records
    republish.planning.row_filter republish.planning.placement
""".split()

# Loaded when a path on HDFS is opened, by its URL.
HDFS_LATER = {"fsspec", "requests", "requests_kerberos"}
# Loaded when an Avro file, an encrypted file or a URL is read, a file read again, or a Bloom filter
# looked up, and not before.
EXECUTOR_SIDE_LATER = {
    *HDFS_LATER,
    "boto3",
    "botocore",
    "cryptography",
    "fastavro",
    "upath",
    "xxhash",
}
# Loaded to read the Protobuf that a condition of a republish looks into.
PROTOBUF_LATER = {"google", "grpc_tools"}
# Loaded to send to a managed cluster that wants their tokens.
TOKENS_LATER = {"aws_msk_iam_sasl_signer", "google"}
# For a lease or a run folder: azure comes with adlfs.
DOCUMENTS_LATER = {"azure", *HDFS_LATER}

# py4j comes with pyspark, which raises its errors.
SPARK_SIDE = {"pyspark", "py4j", "kafka_drain", "kafka_drain_spark"}

# The second comes with the first, which takes its types.
PYDANTIC = {"pydantic", "pydantic_core"}

# The jobs whose tasks run our own code on executors: they read files, one sends to Kafka as well.
# A driver in the cluster reads and writes the documents of run folders.
ON_EXECUTORS = {
    "kafka_drain_spark.application": SPARK_SIDE | {*PYDANTIC, "upath"},
    "kafka_drain_spark.driver": SPARK_SIDE | {*PYDANTIC, "upath"},
    "kafka_drain_spark.executors": SPARK_SIDE | {"pyarrow"},
    "kafka_drain_spark.send": SPARK_SIDE | {"pyarrow", "confluent_kafka"},
    "kafka_drain_spark.validate": SPARK_SIDE | {"pyarrow", "xxhash"},
}
# The jobs that write files: to encrypt them, their drivers open keys, by what the worker has.
WRITES = {f"kafka_drain_spark.{name}" for name in "compact drain encryption warm_up window".split()}
KEYS_LATER = {"boto3", "botocore", "cryptography", "upath", *HDFS_LATER}
# For notebooks; no job leads to it.
READER = "kafka_drain_spark.reader"


@dataclass
class Imports:
    """The modules that a source imports.

    Attributes:
        at_import: When it is imported.
        later: Inside functions.
        by_name: By `import_module`; all modules that fit an f-string, if its start is a literal.
        for_types: Under `if TYPE_CHECKING:`.
    """

    at_import: set[str] = field(default_factory=set)
    later: set[str] = field(default_factory=set)
    by_name: set[str] = field(default_factory=set)
    for_types: set[str] = field(default_factory=set)

    @property
    def when_run(self) -> set[str]:
        return self.at_import | self.later

    @property
    def all(self) -> set[str]:
        return self.when_run | self.by_name | self.for_types


@cache
def path_of(module: str) -> Path | None:
    """Return the source of one of our modules; None for any other name."""
    top = module.partition(".")[0]
    if top not in ROOTS:
        return None
    base = ROOTS[top].joinpath(*module.split("."))
    for path in (base / "__init__.py", base.with_suffix(".py")):
        if path.is_file():
            return path
    return None


def targets(node: ast.Import | ast.ImportFrom) -> Iterator[str]:
    """Yield what an import statement imports: names of modules, ours as deep as they go."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            yield alias.name
        return
    assert not node.level, "relative import"
    assert node.module is not None
    below = {alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    for name in below.values():
        yield name if path_of(name) else node.module


def named(node: ast.AST) -> Iterator[str]:
    """Yield the modules that a call of `import_module` may import."""
    match node:
        case ast.Call(func=ast.Name("import_module"), args=[ast.Constant(str(name)), *_]):
            yield name
        case ast.Call(
            func=ast.Name("import_module"),
            args=[ast.JoinedStr([ast.Constant(str(start)), *_]), *_],
        ):
            for package in ROOTS:
                yield from (name for name in modules_of(package) if name.startswith(start))


def is_type_checking(node: ast.stmt) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)


def collect(nodes: list[ast.stmt], into: Imports, where: str) -> None:
    for node in nodes:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            getattr(into, where).update(targets(node))
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            collect(node.body, into, "later" if where == "at_import" else where)
        elif is_type_checking(node):
            assert isinstance(node, ast.If)
            collect(node.body, into, "for_types")
            collect(node.orelse, into, where)
        else:
            inner = [child for child in ast.walk(node) if child is not node]
            bodies = [
                getattr(child, name, None)
                for child in (node, *(c for c in inner if isinstance(c, ast.excepthandler)))
                for name in ("body", "orelse", "finalbody")
            ]
            for body in bodies:
                if isinstance(body, list):
                    collect(body, into, where)


@cache
def imports_of(path: Path) -> Imports:
    found = Imports()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    collect(tree.body, found, "at_import")
    found.by_name = {name for node in ast.walk(tree) for name in named(node)}
    return found


@cache
def modules_of(package: str) -> dict[str, Path]:
    """Return a package's modules by name."""
    modules: dict[str, Path] = {}
    for path in sorted((ROOTS[package] / package).rglob("*.py")):
        parts = path.relative_to(ROOTS[package]).with_suffix("").parts
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return modules


def packages_above(module: str) -> Iterator[str]:
    """Yield a module's packages: importing `a.b.c` runs `a` and `a.b` as well."""
    parts = module.split(".")
    for length in range(1, len(parts)):
        yield ".".join(parts[:length])


def reached(start: set[str], *, later: bool, packages: bool = True) -> set[str]:
    """Return everything that importing some modules leads to, ours followed module by module.

    Args:
        start: The modules.
        later: Whether what is imported inside functions counts as well.
        packages: Whether a module's packages count, which run before it.
    """
    seen: set[str] = set()
    waiting = set(start)
    while waiting:
        module = waiting.pop()
        seen.add(module)
        path = path_of(module)
        if path is not None:
            found = imports_of(path)
            waiting |= found.when_run if later else found.at_import
            if packages:
                waiting |= set(packages_above(module))
        waiting -= seen
    return seen


def tops(modules: set[str]) -> set[str]:
    """Return top-level names that aren't the standard library's."""
    return {module.partition(".")[0] for module in modules} - sys.stdlib_module_names


def offences(packages: Iterable[str], found_in: Callable[[str, Imports], set[str]]) -> list[str]:
    """Return what a rule finds in each module of packages, as lines of `module: what`."""
    modules = {name: path for package in packages for name, path in modules_of(package).items()}
    return [
        f"{name}: {found}"
        for name, path in modules.items()
        for found in sorted(found_in(name, imports_of(path)))
    ]


def test_modules_found() -> None:
    """The rules below hold for the sources that are there, not for nothing."""
    for package, expected in {
        "kafka_drain": "kafka_drain.data_files.parquet",
        "kafka_drain_airflow": "kafka_drain_airflow.operators.drain",
        "kafka_drain_spark": "kafka_drain_spark.drain",
    }.items():
        assert expected in modules_of(package)
        assert package in modules_of(package)
    assert "kafka_drain.offsets" in reached({"kafka_drain.proof.validation"}, later=False)
    assert "kafka_drain.data_files.avro" in reached({"kafka_drain.proof.rereading"}, later=False)
    assert "confluent_kafka" in reached({"kafka_drain.proof.gap_probe"}, later=False)


@pytest.mark.parametrize(
    ("source", "at_import", "later", "for_types"),
    [
        ("import a.b, c", {"a.b", "c"}, set(), set()),
        ("from a import b", {"a"}, set(), set()),
        ("from kafka_drain import offsets", {"kafka_drain.offsets"}, set(), set()),
        ("def f():\n    import a\n    def g():\n        import b", set(), {"a", "b"}, set()),
        ("class A:\n    import a\n    def f(self):\n        import b", {"a"}, {"b"}, set()),
        ("if TYPE_CHECKING:\n    import a\nelse:\n    import b", {"b"}, set(), {"a"}),
        (
            "try:\n    import a\nexcept E:\n    import b\nfinally:\n    import c",
            {*"abc"},
            set(),
            set(),
        ),
        ("def f():\n    with x:\n        if y:\n            import a", set(), {"a"}, set()),
        ("def f():\n    try:\n        x\n    except E:\n        import a", set(), {"a"}, set()),
        ("if x:\n    pass\nelif y:\n    import a", {"a"}, set(), set()),
    ],
)
def test_collect(source: str, at_import: set[str], later: set[str], for_types: set[str]) -> None:
    """An import is found wherever it stands, and told by when it happens."""
    found = Imports()
    collect(ast.parse(source).body, found, "at_import")

    assert Imports(at_import, later, for_types=for_types) == found


def missing(_: str, imports: Imports) -> set[str]:
    ours = {
        name for name in imports.when_run | imports.for_types if name.partition(".")[0] in ROOTS
    }
    return {name for name in ours if path_of(name) is None}


def test_imports_absolute() -> None:
    """What a module imports of ours exists, and no import is relative."""
    assert offences(ROOTS, missing) == []


def around_the_core(_: str, imports: Imports) -> set[str]:
    forbidden = {"airflow", "pyspark", "kafka_drain_airflow", "kafka_drain_spark"}
    return tops(imports.when_run | imports.for_types) & forbidden


def test_core_knows_neither_airflow_nor_spark() -> None:
    """The core imports neither Airflow nor Spark, nor our packages around it."""
    assert offences(["kafka_drain"], around_the_core) == []


def beside_pyspark(module: str, _: Imports) -> set[str]:
    allowed = ON_EXECUTORS.get(module, SPARK_SIDE)
    later = EXECUTOR_SIDE_LATER if module in ON_EXECUTORS else set()
    later = later | (KEYS_LATER if module in WRITES else set())
    later |= TOKENS_LATER | PROTOBUF_LATER if "confluent_kafka" in allowed else set()
    later |= DOCUMENTS_LATER if "upath" in allowed else set()
    found = tops(reached({module}, later=False)) - allowed
    if module == READER:
        return found
    return found | tops(reached({module}, later=True)) - allowed - later


def test_spark_side_plain() -> None:
    """The Spark side needs pyspark alone, also through what it imports of the core.

    Only the reader, once it is called, needs what the core itself does; and what reads files on
    executors needs pyarrow, or the Kafka client too, and more only for Avro files and URLs.
    """
    assert offences(["kafka_drain_spark"], beside_pyspark) == []


def test_spark_application_plain() -> None:
    """What spark-submit starts needs pyspark alone; each kind of job brings what it needs."""
    start = imports_of(ROOT / "spark_jobs" / "main.py").when_run

    assert tops(reached(start, later=False)) == SPARK_SIDE


def test_airflow_side_knows_no_spark() -> None:
    """The Airflow side never imports pyspark or our Spark side; Spark runs in a process apart."""
    spark = {"pyspark", "kafka_drain_spark"}

    assert offences(["kafka_drain_airflow"], lambda _, found: tops(found.when_run) & spark) == []


def heavy(module: str, _: Imports) -> set[str]:
    libraries = {"confluent_kafka", "pyarrow", "fastavro", "pyspark"}
    return tops(reached({module}, later=False)) & libraries


def test_airflow_side_parses_fast() -> None:
    """Parsing a DAG file loads neither the Kafka client nor pyarrow, by no way."""
    assert offences(["kafka_drain_airflow"], heavy) == []


def test_cli_loads_no_library() -> None:
    """The command line answers `--help` without a library; each command brings its own."""
    assert tops(reached({"kafka_drain.cli"}, later=True)) == {"kafka_drain"}


@pytest.mark.parametrize("command", ["files", "inspect", "unlock", "validate"])
def test_commands_start_fast(command: str) -> None:
    """Most runs of these commands read no records, so that pyarrow would double their time."""
    module = f"kafka_drain.cli.commands.{command}"

    assert set() == tops(reached({module}, later=False)) & {"pyarrow", "fastavro", "pyspark"}


def test_plugin_light() -> None:
    """What Airflow loads for every task imports only what is there already, before it is asked."""
    found = imports_of(ROOT / "plugins" / "kafka_drain_plugin.py")

    assert tops(found.at_import) == {"airflow"}
    assert tops(found.later) == {"kafka_drain_airflow"}


@pytest.mark.parametrize("path", sorted((ROOT / "dags").glob("*.py")), ids=lambda p: p.name)
def test_dag_files_import_airflow_side(path: Path) -> None:
    """A DAG file imports Airflow and kafka_drain_airflow; kafka_drain only where a task runs."""
    found = imports_of(path)

    assert tops(found.at_import | found.for_types) <= {"airflow", "kafka_drain_airflow"}
    assert tops(found.later) <= {"kafka_drain"}


def cycles(graph: dict[str, set[str]]) -> dict[str, list[str]]:
    """Return what is left of a graph of imports without what can't be in a cycle.

    Cuts off what imports nothing that is left, and what nothing that is left imports.
    """
    left = dict(graph)
    while True:
        imported = set().union(*left.values()) if left else set()
        ends = {name for name in left if name not in imported or not left[name] & left.keys()}
        if not ends:
            return {name: sorted(found & left.keys()) for name, found in left.items()}
        left = {name: found for name, found in left.items() if name not in ends}


@pytest.mark.parametrize(
    ("graph", "left"),
    [
        ({"a": "b", "b": "c", "c": ""}, ""),
        ({"a": "b", "b": "a"}, "ab"),
        ({"a": "b", "b": "c", "c": "a", "x": "a", "d": ""}, "abc"),
        ({"a": "bd", "b": "a", "d": ""}, "ab"),
        ({"a": "b", "b": "a", "c": "d", "d": "c"}, "abcd"),
        ({}, ""),
    ],
)
def test_cycles(graph: dict[str, str], left: str) -> None:
    """What imports itself in the end is left, without what leads there or from there."""
    assert sorted(cycles({name: set(found) for name, found in graph.items()})) == list(left)


def test_no_cycles() -> None:
    """No module of ours leads back to itself: imported at once, later, by name, or for types."""
    graph = {
        name: {target for target in imports_of(path).all if path_of(target)} - {name}
        for package in ROOTS
        for name, path in modules_of(package).items()
    }

    assert cycles(graph) == {}


@pytest.mark.parametrize(
    ("module", "kind", "expected"),
    [
        ("kafka_drain.spark.cluster_mode", "later", "kafka_drain.spark.kubernetes"),
        ("kafka_drain_spark.application", "later", "kafka_drain_spark.driver"),
        ("kafka_drain_spark.application", "by_name", "kafka_drain_spark.drain"),
        ("kafka_drain.cli.main", "by_name", "kafka_drain.cli.console"),
        ("kafka_drain.cli.main", "by_name", "kafka_drain.cli.commands.drain"),
    ],
)
def test_no_cycles_sees(module: str, kind: str, expected: str) -> None:
    """The rule above holds for what is imported inside functions and by name, not for nothing."""
    path = path_of(module)
    assert path is not None
    assert expected in getattr(imports_of(path), kind)


def floor_of(module: str) -> int:
    """Return on which floor of its package a module stands; its innermost room decides."""
    package, _, name = module.partition(".")
    floors = {
        room: number for number, rooms in enumerate(FLOORS[package]) for room in rooms.split()
    }
    rooms = (name, *reversed([*packages_above(name)]))
    return next(floors[room] for room in rooms if room in floors)


def upward(module: str, imports: Imports) -> set[str]:
    package = module.partition(".")[0]
    if module == package:
        return set()
    ours = {name for name in imports.when_run | imports.for_types if name.startswith(f"{package}.")}
    return {name for name in ours if floor_of(name) > floor_of(module)}


def test_imports_never_upward() -> None:
    """A module imports what stands on its own floor or below it, also later and for types."""
    assert offences(FLOORS, upward) == []


def arrows(package: str) -> list[str]:
    """Return, for each room of a package from the ground up, the rooms that it imports from.

    The core's vocabulary, which every room imports, is left out.
    """
    rows = FLOORS[package][1:] if package == "kafka_drain" else FLOORS[package]
    rooms = list(dict.fromkeys(room.partition(".")[0] for row in rows for room in row.split()))
    found: dict[str, set[str]] = {room: set() for room in rooms}
    for module, path in modules_of(package).items():
        if module == package:
            continue
        room = module.split(".")[1]
        if room not in found:
            continue
        imports = imports_of(path)
        for name in imports.when_run | imports.for_types:
            if name.startswith(f"{package}."):
                found[room].add(name.split(".")[1])
    return [
        f"{room:13} → {' '.join(other for other in rooms if other in found[room] - {room})}"
        for room in rooms
        if found[room] - {room}
    ]


@pytest.mark.parametrize("package", FLOORS)
def test_contributing_draws_arrows(package: str) -> None:
    """CONTRIBUTING shows which rooms import which."""
    drawn = "\n".join(["```text", *arrows(package), "```"])

    assert drawn in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"), f"expected\n{drawn}"


def test_own_names_from_their_modules() -> None:
    """No module of ours takes what the core's package offers to users: the rules here can't follow.

    The package finds such a name when it is asked for; each of ours is imported from its module.
    """
    core = {"kafka_drain"}

    assert offences(ROOTS, lambda _, found: (found.when_run | found.for_types) & core) == []


@cache
def pure_modules() -> list[str]:
    """Return the modules that say of themselves that they open nothing."""
    return [
        name
        for name, path in modules_of("kafka_drain").items()
        if PURE in (ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or "").lower()
        and path.name != "__init__.py"
    ]


def test_pure_modules_found() -> None:
    """The rule below holds for what decides, not for nothing."""
    found = set(pure_modules())
    assert len(found) > 50
    assert found >= {"kafka_drain.offsets", "kafka_drain.proof.sealing"}


def impure(module: str, imports: Imports) -> set[str]:
    if module not in pure_modules():
        return set()
    path = path_of(module)
    assert path is not None
    tree = ast.parse(path.read_text(encoding="utf-8"))
    called = {
        node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
    }
    outside = {"os", "pathlib", "upath", "socket", "subprocess", "confluent_kafka", "pyarrow"}
    ours = {m for m in reached({module}, later=True) if path_of(m)}
    pure = {"kafka_drain.errors", *pure_modules()}
    return (
        called & {"open", "read_text", "read_bytes", "write_text", "write_bytes"}
        | {m.partition(".")[0] for m in imports.when_run} & outside
        | ours - pure - {package for name in pure for package in packages_above(name)}
    )


def test_pure_modules_open_nothing() -> None:
    """Arithmetic reads no file, asks no socket, and imports nothing that would."""
    assert offences(["kafka_drain"], impure) == []


@pytest.mark.parametrize("name", EXECUTOR_SIDE)
def test_executor_side_light(name: str) -> None:
    """What runs on executors needs pyarrow alone, and more only for Avro files and URLs."""
    module = f"kafka_drain.{name}"
    assert path_of(module) is not None

    assert tops(reached({module}, later=False)) <= {"kafka_drain", "pyarrow"}
    assert tops(reached({module}, later=True)) <= {"kafka_drain", "pyarrow"} | EXECUTOR_SIDE_LATER

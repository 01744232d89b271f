"""Change the lines that decide, one at a time, and see whether a test notices.

    python -m scripts.mutation [module …]     all that decide, or only these

Writes the score and what lives on into `tests/mutation/survivors.json`, where each change that no
test notices has a reason to stay. Fails below 95 %, and where a reason is missing. With modules
named, the file keeps what it says of the others.

Lines of prose, and what is told while it goes on, stay as they are: they decide nothing. mutmut
changes no function with a decorator but `staticmethod` and `classmethod`: what decides should be no
property.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SURVIVORS = ROOT / "tests" / "mutation" / "survivors.json"
TREE = ROOT / "build" / "mutation"

#: The modules that decide, each with the tests that hold it beside those of its own name.
DECIDING = {
    "archive.segment_overlaps": "",
    "config.offset_ranges": "",
    "kafka.acls": "",
    "maintenance.compaction_plan": "maintenance/test_compaction_proof.py",
    "maintenance.compaction_proof": "",
    "maintenance.retention": "",
    "proof.content_checks": "",
    "proof.gap_classification": "",
    "proof.gap_explanation": "proof/test_validation_gap_since_read.py",
    "proof.offset_checks": "",
    "proof.prove": "",
    "proof.segment_proof": "",
    "republish.planning.selection": "",
    "republish.planning.verdicts": "republish/verifying/test_result.py",
    "republish.verifying.match_types": "republish/verifying/test_multiset_diff.py",
    "republish.verifying.matching": "republish/verifying/test_result.py",
    "republish.verifying.multiset_diff": "republish/verifying/test_matching.py",
    "republish.verifying.result": "",
    "windows.mend_steps": "",
    "windows.obsolete_files": "",
    "windows.removal": "",
    "windows.reprocess.plan": "",
    "windows.reprocess.refusals": "",
    "windows.roll_decisions": "",
}

#: Below this share of mutants that a test kills, the verb fails.
WANTED = 0.95

#: mutmut's exit codes of a mutant that no test noticed: none failed, none ran, or nobody tried.
UNNOTICED = (0, 5, 33, None)

_CONFIGURATION = """\
[tool.mutmut]
source_paths = ["kafka_drain"]
only_mutate = {modules}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-m", "not integration", "--hypothesis-profile=mutation"]
timeout_multiplier = 4
timeout_constant = 5
do_not_mutate_patterns = [
    # Prose.
    '^\\s*f?"[^"]*\\s[^"]*"[,)\\]]*$',
    # What is told to people while it goes on.
    '\\b(say|Ticker|Progress)\\(',
    '\\bticker\\.',
]
use_git_change_detection = false
track_dependencies = false

[tool.pytest.ini_options]
pythonpath = ["."]
addopts = ["--import-mode=importlib"]
markers = ["integration: needs Java, a real broker or real Spark"]
"""


@dataclass(frozen=True, order=True)
class Mutant:
    """A change of one function.

    Attributes:
        function: Where, such as `kafka_drain.maintenance.retention._is_older`.
        change: The lines before and after it, such as `a < b => a <= b`.
    """

    function: str
    change: str

    @classmethod
    def of(cls, name: str, diff: str) -> Mutant:
        """Read mutmut's name, such as `kafka_drain.gaps.xǁGapǁend__mutmut_3`, and its diff."""
        module, _, function = name.partition("__mutmut_")[0].rpartition(".")
        function = function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
        lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++", "@@"))]
        before = " ".join(line[1:].strip() for line in lines if line.startswith("-"))
        after = " ".join(line[1:].strip() for line in lines if line.startswith("+"))
        return cls(f"{module}.{function}", f"{before} => {after}")


@dataclass(frozen=True)
class Result:
    """What became of a module's mutants.

    Attributes:
        mutants: How many there were.
        noticed: How many of them a test noticed.
        alive: The others; those of a function that read alike count once.
    """

    mutants: int
    noticed: int
    alive: frozenset[Mutant] = frozenset()


def held_by(module: str) -> list[str]:
    """Return the files of tests that hold a module that decides."""
    package, _, name = module.rpartition(".")
    own = f"{package.replace('.', '/')}/test_{name}.py"
    found = [own, *DECIDING[module].split()]
    return [
        f"tests/kafka_drain/{test}"
        for test in found
        if (ROOT / "tests/kafka_drain" / test).is_file()
    ]


def make_tree(modules: Iterable[str]) -> None:
    """Copy the code to where mutmut finds packages by their own names, with its configuration."""
    shutil.rmtree(TREE, ignore_errors=True)
    leave = shutil.ignore_patterns("__pycache__")
    for folder in ("plugins/kafka_drain", "spark_jobs/kafka_drain_spark", "tests", "demo"):
        shutil.copytree(ROOT / folder, TREE / Path(folder).name, ignore=leave)
    paths = [f"kafka_drain/{module.replace('.', '/')}.py" for module in modules]
    tests = sorted({test for module in modules for test in held_by(module)})
    (TREE / "pyproject.toml").write_text(
        _CONFIGURATION.format(
            modules=json.dumps(paths),
            tests=json.dumps(tests),
        )
    )


def run_mutants() -> None:
    """Run the tests against each mutant.

    Raises:
        CalledProcessError: When mutmut couldn't, for example as a test fails without any change.
    """
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", "1"]
    subprocess.run(command, cwd=TREE, check=True)


def read_results() -> dict[str, Result]:
    """Return what became of the mutants of each module."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    found = {}
    # mutmut finds its files from where it ran.
    os.chdir(TREE)
    for meta in sorted(Path("mutants").rglob("*.py.meta")):
        path = meta.with_suffix("").relative_to("mutants")
        codes = json.loads(meta.read_text())["exit_code_by_key"]
        unnoticed = [name for name, code in codes.items() if code in UNNOTICED]
        alive = {Mutant.of(name, get_diff_for_mutant(name, path=path)) for name in unnoticed}
        module = ".".join(path.with_suffix("").parts[1:])
        found[module] = Result(len(codes), len(codes) - len(unnoticed), frozenset(alive))
    os.chdir(ROOT)
    return found


def read_document(document: Mapping[str, Any]) -> tuple[dict[str, Result], dict[Mutant, str]]:
    """Return what the file of survivors says: results by module, and reasons."""
    reasons = {
        Mutant(function, change): group["reason"]
        for group in document["survivors"]
        for function, changes in group["changes"].items()
        for change in changes
    }
    results = {
        module: Result(
            row["mutants"],
            row["noticed"],
            frozenset(m for m in reasons if m.function.startswith(f"kafka_drain.{module}.")),
        )
        for module, row in document["modules"].items()
    }
    return results, reasons


def document_of(results: Mapping[str, Result], reasons: Mapping[Mutant, str]) -> dict[str, Any]:
    """Return what the file of survivors says: scores, and changes by their reason."""
    groups: dict[str, dict[str, list[str]]] = {}
    for mutant in sorted(mutant for result in results.values() for mutant in result.alive):
        group = groups.setdefault(reasons.get(mutant, ""), {})
        group.setdefault(mutant.function, []).append(mutant.change)
    return {
        "percent": floor(1000 * share(results)) / 10,
        "modules": {
            module: {"mutants": result.mutants, "noticed": result.noticed}
            for module, result in sorted(results.items())
        },
        "survivors": [
            {"reason": reason, "changes": changes} for reason, changes in sorted(groups.items())
        ],
    }


def share(results: Mapping[str, Result]) -> float:
    """Return the share of mutants that a test notices."""
    mutants = sum(result.mutants for result in results.values())
    return sum(result.noticed for result in results.values()) / mutants if mutants else 0


def failures(results: Mapping[str, Result], reasons: Mapping[Mutant, str]) -> list[str]:
    """Return why the verb fails; empty when it doesn't."""
    alive = sorted(mutant for result in results.values() for mutant in result.alive)
    found = [
        f"no test notices {mutant.function}: {mutant.change}"
        for mutant in alive
        if not reasons.get(mutant)
    ]
    if found:
        found.append(
            f"{len(found)} changes are noticed by no test and have no reason to stay: write a test "
            f"for each, or its reason into {SURVIVORS.relative_to(ROOT)}"
        )
    if share(results) < WANTED:
        found.append(f"tests notice less than {WANTED:.0%} of the changes")
    return found


def main(modules: Sequence[str]) -> int:
    """Run all mutants of some modules; return the exit code."""
    make_tree(modules or sorted(DECIDING))
    run_mutants()
    found = read_results()
    before, reasons = read_document(json.loads(SURVIVORS.read_text()))
    # A module that decides no more has no share in the score.
    results = {name: result for name, result in (before | found).items() if name in DECIDING}
    document = document_of(results, reasons)
    SURVIVORS.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    wrong = failures(results, reasons)
    for line in wrong:
        print(line)
    print(f"{share(found):.1%} of the changes noticed, {share(results):.1%} with all modules")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

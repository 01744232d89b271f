"""Mutation testing: change the lines that make decisions, one at a time, and run the tests.

    python -m scripts.mutation [module …]     all deciding modules, or only these

Writes the score and the surviving mutants to `tests/mutation/survivors.json`, where each survivor
needs a reason. Fails if the score is below 95 % or a reason is missing. If modules are named, the
results of the other modules in the file are kept.

Prose and progress messages aren't mutated, because they decide nothing. mutmut doesn't mutate
decorated functions other than `staticmethod` and `classmethod`, so deciding code shouldn't be in
properties.
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

#: The modules that make decisions, each with tests in addition to the one of the same name.
DECIDING = {
    "archive.drill_status": "",
    "archive.fold": "",
    "archive.frozen_plan": "archive/test_frozen_plans.py",
    "archive.generation_summary": "",
    "archive.incarnations": "archive/test_coverage.py",
    "archive.index": "",
    "archive.journal.entries": "",
    "archive.journal.identity": "",
    "archive.receipt_chain": "",
    "archive.receipt_figures": "",
    "archive.schema_seals": "",
    "archive.segment_overlaps": "",
    "config.offset_ranges": "",
    "cut_over.steps": "",
    "drain.urgency": "",
    "drills.decoding": "",
    "drills.sample": "",
    "evidence.envelope": "",
    "evidence.witness_lines": "",
    "find.as_republish": "",
    "find.plan": "",
    "kafka.acls": "",
    "kafka.fitting": "",
    "kafka.topic_watch": "",
    "maintenance.compaction_plan": "maintenance/test_compaction_proof.py",
    "maintenance.compaction_proof": "",
    "maintenance.erasure_plan": "",
    "maintenance.erasure_request": "",
    "maintenance.retention": "",
    "pages.archive_status": "",
    "proof.content_checks": "",
    "proof.copy_checks": "",
    "proof.erasure_selection": "",
    "proof.fingerprints": "proof/test_fingerprints_notes.py",
    "proof.gap_classification": "",
    "proof.gap_explanation": "proof/test_validation_gap_since_read.py",
    "proof.offset_checks": "",
    "proof.orphans": "",
    "proof.prove": "",
    "proof.rereading": "",
    "proof.replacement": "",
    "proof.rewritten_log": "proof/test_log_tails.py",
    "proof.segment_contents": "",
    "proof.segment_proof": "",
    "proof.topic_incarnations": "",
    "proof.window_checks": "",
    "recovery.diff": "",
    "recovery.safety": "",
    "republish.changing.conditions": "",
    "republish.changing.fields": "",
    "republish.changing.masks": "",
    "republish.groups.translation": "",
    "republish.planning.binding": "",
    "republish.planning.follow": "",
    "republish.planning.into_source": "",
    "republish.planning.openings": "",
    "republish.planning.placement": "",
    "republish.planning.previous_runs": "",
    "republish.planning.record_sizes": "",
    "republish.planning.selection": "",
    "republish.planning.verdicts": "republish/verifying/test_result.py",
    "republish.sending.pacing": "",
    "republish.verifying.kept_twins": "",
    "republish.verifying.match_types": "republish/verifying/test_multiset_diff.py",
    "republish.verifying.matching": "republish/verifying/test_result.py",
    "republish.verifying.multiset_diff": "republish/verifying/test_matching.py",
    "republish.verifying.result": "",
    "schemas.restore_order": "",
    "schemas.schema_ids": "",
    "sizing": "",
    "spark.splitting": "",
    "storage.endpoints": "",
    "storage.gcs": "",
    "storage.hdfs_settings": "",
    "storage.immutability": "",
    "storage.lease_numbers": "",
    "storage.lease_takeover": "",
    "storage.webhdfs_answers": "",
    "windows.superseded_files": "",
    "windows.removal": "",
    "windows.repair_steps": "",
    "windows.reprocess.plan": "",
    "windows.reprocess.refusals": "",
    "windows.roll_decisions": "",
    "windows.time_bounds": "",
}

#: The run fails if the tests kill a smaller share of the mutants.
WANTED = 0.95

#: mutmut's exit codes for a survivor: no test failed, no test ran, or the mutant wasn't tried.
UNNOTICED = (0, 5, 33, None)

_CONFIGURATION = """\
[tool.mutmut]
source_paths = ["kafka_drain"]
only_mutate = {modules}
pytest_add_cli_args_test_selection = {tests}
pytest_add_cli_args = ["-m", "not integration", "--hypothesis-profile=mutation"]
also_copy = ["benchmarks", "demo", "kafka_drain_spark"]
timeout_multiplier = 4
timeout_constant = 5
do_not_mutate_patterns = [
    # Prose.
    '^\\s*f?"[^"]*\\s[^"]*"[,)\\]]*$',
    # Progress messages.
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
    """A change to one function.

    Attributes:
        function: The function, such as `kafka_drain.maintenance.retention._is_older`.
        change: The lines before and after the change, such as `a < b => a <= b`.
    """

    function: str
    change: str

    @classmethod
    def of(cls, name: str, diff: str) -> Mutant:
        """Parse mutmut's name, such as `kafka_drain.gaps.xǁGapǁend__mutmut_3`, and its diff."""
        module, _, function = name.partition("__mutmut_")[0].rpartition(".")
        function = function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
        lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++", "@@"))]
        before = " ".join(line[1:].strip() for line in lines if line.startswith("-"))
        after = " ".join(line[1:].strip() for line in lines if line.startswith("+"))
        return cls(f"{module}.{function}", f"{before} => {after}")


@dataclass(frozen=True)
class Result:
    """The outcome of a module's mutants.

    Attributes:
        mutants: Number of mutants.
        noticed: Number of mutants that a test detected.
        alive: The survivors; identical changes to the same function count once.
    """

    mutants: int
    noticed: int
    alive: frozenset[Mutant] = frozenset()


def held_by(module: str) -> list[str]:
    """Return the test files that cover a deciding module."""
    *packages, name = module.split(".")
    found = ["/".join([*packages, f"test_{name}.py"]), *DECIDING[module].split()]
    return [
        f"tests/kafka_drain/{test}"
        for test in found
        if (ROOT / "tests/kafka_drain" / test).is_file()
    ]


def make_tree(modules: Iterable[str]) -> None:
    """Copy the code, with mutmut's configuration, to where mutmut finds the packages by name."""
    shutil.rmtree(TREE, ignore_errors=True)
    leave = shutil.ignore_patterns("__pycache__")
    packages = ("plugins/kafka_drain", "spark_jobs/kafka_drain_spark")
    # Tests use synthetic archives, and compare with measurements.
    for folder in (*packages, "tests", "demo", "benchmarks"):
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
        CalledProcessError: If mutmut fails, for example because a test fails without any change.
    """
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", "1"]
    subprocess.run(command, cwd=TREE, check=True)


def read_results() -> dict[str, Result]:
    """Return the outcome of each module's mutants."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    found = {}
    # mutmut resolves its files relative to the folder in which it ran.
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
    """Parse the survivors file: return the results by module, and the reasons."""
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
    """Return the content of the survivors file: scores, and changes by reason."""
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
    """Return the share of mutants that a test detects."""
    mutants = sum(result.mutants for result in results.values())
    return sum(result.noticed for result in results.values()) / mutants if mutants else 0


def failures(results: Mapping[str, Result], reasons: Mapping[Mutant, str]) -> list[str]:
    """Return the reasons why the run fails; empty if it succeeds."""
    alive = sorted(mutant for result in results.values() for mutant in result.alive)
    found = [
        f"no test detects {mutant.function}: {mutant.change}"
        for mutant in alive
        if not reasons.get(mutant)
    ]
    if found:
        found.append(
            f"{len(found)} changes are detected by no test and have no reason; write a test for "
            f"each, or add its reason to {SURVIVORS.relative_to(ROOT)}"
        )
    if share(results) < WANTED:
        found.append(f"tests detect less than {WANTED:.0%} of the changes")
    return found


def main(modules: Sequence[str]) -> int:
    """Run all mutants of the given modules; return the exit code."""
    make_tree(modules or sorted(DECIDING))
    run_mutants()
    found = read_results()
    before, reasons = read_document(json.loads(SURVIVORS.read_text()))
    # A module that is no longer listed as deciding doesn't count in the score.
    results = {name: result for name, result in (before | found).items() if name in DECIDING}
    document = document_of(results, reasons)
    SURVIVORS.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    wrong = failures(results, reasons)
    for line in wrong:
        print(line)
    print(f"{share(found):.1%} of the changes detected, {share(results):.1%} across all modules")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

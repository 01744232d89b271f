"""Mutation testing: change the lines that make decisions, one at a time, and run the tests.

    python -m scripts.mutation [module …]     all that decides, or only what is in these modules

Writes the score and the surviving mutants to `tests/mutation/survivors.json`, where each survivor
needs a reason. Fails if the score is below 95 % or a reason is missing. If modules are named, the
results of the other modules in the file are kept.

A module that only decides is mutated as a whole. In one that has I/O as well, the functions and
classes that decide are named.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import floor
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
SURVIVORS = ROOT / "tests" / "mutation" / "survivors.json"
TREE = ROOT / "build" / "mutation"


@dataclass(frozen=True)
class Deciding:
    """The part of a module that makes decisions.

    Attributes:
        names: Its functions and classes, separated by blanks; empty if it is the whole module.
        tests: Test files in addition to the one of the module's name, separated by blanks.
    """

    names: str = ""
    tests: str = ""

    def includes(self, function: str) -> bool:
        """Return whether a function of the module, or a method such as `Gap.end`, is part of it."""
        return not self.names or function.partition(".")[0] in self.names.split()


#: Decisions by module.
DECIDING = {
    "archive.drill_status": Deciding(),
    "archive.fold": Deciding(),
    "archive.frozen_plan": Deciding(tests="archive/test_frozen_plans.py"),
    "archive.generation_summary": Deciding(),
    "archive.incarnations": Deciding(tests="archive/test_coverage.py"),
    "archive.index": Deciding(),
    "archive.journal.entries": Deciding(),
    "archive.journal.identity": Deciding(),
    "archive.receipt_chain": Deciding(),
    "archive.receipt_figures": Deciding(),
    "archive.schema_seals": Deciding(),
    "archive.segment_overlaps": Deciding(),
    "config.offset_ranges": Deciding(),
    "cut_over.steps": Deciding(),
    "drain.urgency": Deciding(),
    "drills.decoding": Deciding(),
    "drills.sample": Deciding(),
    "evidence.envelope": Deciding(),
    "evidence.witness_lines": Deciding(),
    "find.as_republish": Deciding(),
    "find.plan": Deciding(),
    "kafka.acls": Deciding(),
    "kafka.fitting": Deciding(),
    "kafka.topic_watch": Deciding(),
    "maintenance.compact": Deciding(
        "prove_compaction sealed_fingerprint _is_repaired",
        tests="maintenance/test_compact_proof.py",
    ),
    "maintenance.compaction_plan": Deciding(tests="maintenance/test_compact_proof.py"),
    "maintenance.erasure_plan": Deciding(),
    "maintenance.erasure_request": Deciding(),
    "maintenance.retention": Deciding(),
    "offsets": Deciding("without"),
    "pages.archive_status": Deciding(),
    "pages.hours": Deciding(),
    "pages.next_step": Deciding(),
    "proof.content_checks": Deciding(),
    "proof.copy_checks": Deciding(),
    "proof.erasure_selection": Deciding(),
    "proof.fingerprints": Deciding(
        "combined parse_note notes_fit", tests="proof/test_fingerprints_notes.py"
    ),
    "proof.gap_explanation": Deciding(tests="proof/test_validation_gap_since_read.py"),
    "proof.gap_probe": Deciding("classify"),
    "proof.offset_checks": Deciding(),
    "proof.open_generation": Deciding("unlisted_files _offsets_in"),
    "proof.prove": Deciding(),
    "proof.replacement": Deciding(),
    "proof.rereading": Deciding(),
    "proof.rewritten_log": Deciding(tests="proof/test_log_tails.py"),
    "proof.segment_contents": Deciding(),
    "proof.segment_proof": Deciding(),
    "proof.topic_incarnations": Deciding(),
    "proof.window_checks": Deciding(),
    "recovery.diff": Deciding(),
    "recovery.safety": Deciding(),
    "republish.changing.conditions": Deciding(),
    "republish.changing.fields": Deciding(),
    "republish.changing.filter_columns": Deciding(),
    "republish.changing.masks": Deciding(),
    "republish.groups.translation": Deciding(),
    "republish.planning.binding": Deciding(),
    "republish.planning.follow": Deciding(),
    "republish.planning.into_source": Deciding(),
    "republish.planning.openings": Deciding(),
    "republish.planning.placement": Deciding(),
    "republish.planning.previous_runs": Deciding(),
    "republish.planning.record_sizes": Deciding(),
    "republish.planning.selection": Deciding(),
    "republish.planning.verdicts": Deciding(tests="republish/verifying/test_result.py"),
    "republish.sending.pacing": Deciding(),
    "republish.verifying.kept_twins": Deciding(),
    "republish.verifying.match_types": Deciding(tests="republish/verifying/test_multiset_diff.py"),
    "republish.verifying.matching": Deciding(tests="republish/verifying/test_result.py"),
    "republish.verifying.multiset_diff": Deciding(tests="republish/verifying/test_matching.py"),
    "republish.verifying.result": Deciding(),
    "schemas.restore_order": Deciding(),
    "schemas.schema_ids": Deciding(),
    "sizing": Deciding(),
    "spark.splitting": Deciding(),
    "storage.endpoints": Deciding(),
    "storage.gcs": Deciding(),
    "storage.hdfs_settings": Deciding(),
    "storage.immutability": Deciding(),
    "storage.lease": Deciding("may_take_over clock_ahead", tests="storage/test_lease_takeover.py"),
    "storage.lease_store": Deciding(
        "newest superseded", tests="storage/test_lease_store_numbers.py"
    ),
    "storage.webhdfs": Deciding(
        "meaning_of is_refused_rename pause_after _exception",
        tests="storage/test_webhdfs_answers.py",
    ),
    "windows.receipt_repair": Deciding(
        "judge_sealed may_be_sealed_entry may_be_sealed_receipt hash_named",
        tests="windows/test_receipt_repair_steps.py",
    ),
    "windows.repair_plan": Deciding(
        "plan_repair _split _by_seal _of_one_incarnation _missing_of _can_be_covered"
    ),
    "windows.reprocess.plan": Deciding(),
    "windows.reprocess.refusals": Deciding(),
    "windows.roll": Deciding(
        "never_sealed given_up may_lose judge_window", tests="windows/test_roll_decisions.py"
    ),
    "windows.superseded_files": Deciding(tests="windows/test_superseded_files_removal.py"),
    "windows.time_bounds": Deciding(),
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
        """Parse mutmut's name and diff."""
        lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++", "@@"))]
        before = " ".join(line[1:].strip() for line in lines if line.startswith("-"))
        after = " ".join(line[1:].strip() for line in lines if line.startswith("+"))
        return cls(function_of(name), f"{before} => {after}")


def function_of(name: str) -> str:
    """Return the function in a name such as `kafka_drain.gaps.xǁGapǁend__mutmut_3`."""
    module, _, function = name.partition("__mutmut_")[0].rpartition(".")
    function = function.removeprefix("x_").removeprefix("xǁ").replace("ǁ", ".")
    return f"{module}.{function}"


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
    """Return the test files that cover a module's decisions."""
    *packages, name = module.split(".")
    found = ["/".join([*packages, f"test_{name}.py"]), *DECIDING[module].tests.split()]
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


def mutants_of(modules: Iterable[str]) -> Iterator[str]:
    """Yield patterns of mutmut's names for the mutants of the modules' decisions."""
    for module in modules:
        names = DECIDING[module].names.split()
        patterns = [pattern for name in names for pattern in (f"x_{name}", f"xǁ{name}ǁ*")]
        for pattern in patterns or ["*"]:
            yield f"kafka_drain.{module}.{pattern}__mutmut_*"


def run_mutants(mutants: Iterable[str]) -> None:
    """Run the tests against each mutant.

    Args:
        mutants: Patterns of mutmut's names.

    Raises:
        CalledProcessError: If mutmut fails, for example because a test fails without any change.
    """
    command = [sys.executable, "-m", "mutmut", "run", "--max-children", "1", *mutants]
    subprocess.run(command, cwd=TREE, check=True)


def read_results() -> dict[str, Result]:
    """Return the outcome of the mutants of each module's decisions."""
    from mutmut.mutation.diff_apply import get_diff_for_mutant

    found = {}
    # mutmut resolves its files relative to the folder in which it ran.
    os.chdir(TREE)
    for meta in sorted(Path("mutants").rglob("*.py.meta")):
        path = meta.with_suffix("").relative_to("mutants")
        module = ".".join(path.with_suffix("").parts[1:])
        codes = {
            name: code
            for name, code in json.loads(meta.read_text())["exit_code_by_key"].items()
            if DECIDING[module].includes(function_of(name).removeprefix(f"kafka_drain.{module}."))
        }
        unnoticed = [name for name, code in codes.items() if code in UNNOTICED]
        alive = {Mutant.of(name, get_diff_for_mutant(name, path=path)) for name in unnoticed}
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
    """Run all mutants of the given modules' decisions; return the exit code."""
    modules = modules or sorted(DECIDING)
    make_tree(modules)
    run_mutants(mutants_of(modules))
    found = read_results()
    before, reasons = read_document(json.loads(SURVIVORS.read_text()))
    # A module that is no longer listed doesn't count in the score.
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

"""Compare what judges and readers say of changed archives with each other, and with the truth."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

from kafka_drain.archive.journal import files as journal
from tests.agreement.archives import Made
from tests.agreement.judges import COMPLETE, FAILED, LESS, RIGHT, WRONG, Judged, judge
from tests.agreement.mutations import Change, mutate

#: Why an answer that isn't the truth, or another one than the other judge's, is no bug.
EXCUSES = {
    "older": "what was sealed last was taken away with all that names it: only a witness can tell",
    "forged": "all hashes were written again, and no figure contradicts another: only a signature "
    "or a witness can tell",
    "spliced": "a sealed window of the same topics, which the journal may not have noted yet",
    "within": "bytes of a data file were changed: only reading them tells",
    "unsealed": "no receipt proves it: the verifier judges what is sealed",
    "folders": "`partition_by` contradicts folders, whose names count: only the next drain minds",
    "republish": "validations don't read what republishes leave behind",
    "not read": "the verifier reads neither notes nor the schemas that were kept",
    "no key": "the verifier has no key",
}
UNSEALED = frozenset({"manifest", "checkpoint", "data", "generation", "note", "copy", "beside"})


@dataclass(frozen=True)
class Outcome:
    """What came of a change.

    Attributes:
        number: Its number, which with the seed says what was done.
        archive: Name of the archive that was changed.
        disagreements: What is wrong; empty if all agree.
        excuses: Names of the excuses that were needed.
    """

    number: int
    archive: str
    kind: str
    change: Change
    judged: Judged
    disagreements: tuple[str, ...]
    excuses: frozenset[str]

    @property
    def line(self) -> str:
        """The outcome in one line."""
        agreed = "; ".join(self.disagreements) or "agreed"
        return f"{self.number} {self.archive}, {self.kind}: {self.change.what}: {agreed}"


def run(archives: list[Made], folder: Path, seed: int, numbers: Iterable[int]) -> Iterator[Outcome]:
    """Change copies of archives, and yield what comes of each.

    Args:
        archives: The archives; they aren't changed.
        folder: Where copies are made.
    """
    roots = [each.root for each in archives]
    for number in numbers:
        chance = random.Random(f"{seed}:{number}")
        original = chance.choice(archives)
        kind, change = mutate(original.root, folder / "copy", roots, chance)
        # Nobody is just writing: a journal whose head lags needn't be waited for.
        with mock.patch.object(journal, "SETTLE_SECONDS", 0):
            judged = judge(folder / "copy", original)
        wrong, excuses = compare(change, judged, is_encrypted=original.key is not None)
        yield Outcome(number, original.root.name, kind, change, judged, wrong, excuses)


def compare(
    change: Change, judged: Judged, *, is_encrypted: bool
) -> tuple[tuple[str, ...], frozenset[str]]:
    """Return what is wrong with some answers, and the excuses that others need."""
    answers = {**judged.verdicts, **judged.read}
    wrong = [f"{name} failed" for name, said in answers.items() if said == FAILED]
    excuses: set[str] = set()
    for depth in ("", " --deep"):
        product = judged.verdicts[f"validate{depth}"]
        page = judged.verdicts[f"verifier{depth}"]
        if is_encrypted and _lacks_keys_alone(judged, f"verifier{depth}"):
            # What it couldn't read may be as wrong as the product says.
            excuses.add("no key")
            continue
        if (product == COMPLETE) == (page == COMPLETE):
            continue
        if excuse := _of_verdicts(change, judged, product):
            excuses.add(excuse)
        else:
            wrong.append(f"validate{depth} says {product}, the verifier {page}")
    for name, given in judged.read.items():
        if given not in (LESS, WRONG):
            continue
        if excuse := _of_reader(change, judged, name, given, is_encrypted=is_encrypted):
            excuses.add(excuse)
        else:
            plain, deep = (judged.verdicts[f"validate{d}"] for d in ("", " --deep"))
            wrong.append(f"{name} gives {given}; validate says {plain}, with --deep {deep}")
    return tuple(wrong), frozenset(excuses)


def _lacks_keys_alone(judged: Judged, verifier: str) -> bool:
    """Return whether a verifier found nothing wrong but that it has no key."""
    others = [each for each in judged.details[verifier] if "no key is there" not in each]
    return judged.verdicts[verifier] == "unknown" and not others


def _of_verdicts(change: Change, judged: Judged, product: str) -> str:
    """Return why validation and verifier may say different things of a change; empty if nothing.

    Args:
        product: What the validation says.
    """
    if product == COMPLETE:
        if "data" in change.classes and judged.verdicts["validate --deep"] != COMPLETE:
            # The verifier opens Parquet files without being asked to.
            return "within"
        return "republish" if change.classes <= {"republish"} else ""
    if "partition_by" in change.what and any(
        "says partition_by" in each for each in judged.details["validate"]
    ):
        return "folders"
    if change.classes <= {"schemas", "note", "copy"}:
        return "not read"
    if change.classes <= {"key", "copy"}:
        return "no key"
    return "unsealed" if change.is_older or change.classes <= UNSEALED else ""


def _of_reader(change: Change, judged: Judged, name: str, given: str, *, is_encrypted: bool) -> str:
    """Return why a reader may give other records than there were; empty if nothing."""
    plain, deep = judged.verdicts["validate"], judged.verdicts["validate --deep"]
    if deep == COMPLETE:
        if change.is_older and given == LESS:
            return "older"
        agrees = judged.verdicts["verifier --deep"] == COMPLETE
        agrees |= is_encrypted and _lacks_keys_alone(judged, "verifier --deep")
        if change.is_spliced and agrees:
            return "spliced"
        return "forged" if change.is_forged else ""
    is_hashed = name == "republish" and not change.is_forged
    # A validation reads unsealed files, which no receipt has hashed.
    was_read = any("records_changed" in said for said in judged.details["validate"])
    is_within = "data" in change.classes and (plain == COMPLETE or was_read)
    return "within" if is_within and not is_hashed else ""


def table(outcomes: Iterable[Outcome]) -> str:
    """Return how many changes of each kind came to what."""
    columns = ("changes", "both complete", "neither", "excused", "disagree")
    rows: dict[str, Counter[str]] = {}
    for each in outcomes:
        row = rows.setdefault(each.kind, Counter())
        verdicts = each.judged.verdicts
        is_complete = verdicts["validate --deep"] == COMPLETE
        row["changes"] += 1
        if each.disagreements:
            row["disagree"] += 1
        elif each.excuses - {"no key"}:
            row["excused"] += 1
        else:
            row["both complete" if is_complete else "neither"] += 1
    rows["all"] = sum(rows.values(), Counter())
    width = max(map(len, rows))
    lines = [" ".join([" " * width, *columns])]
    for kind, row in sorted(rows.items(), key=lambda item: (item[0] == "all", item[0])):
        figures = (f"{row[name]:>{len(name)},}" for name in columns)
        lines.append(" ".join([kind.ljust(width), *figures]))
    return "\n".join(lines)


__all__ = ["EXCUSES", "RIGHT", "Outcome", "compare", "run", "table"]

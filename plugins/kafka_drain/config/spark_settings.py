"""Names of Spark's own settings, to tell a misspelt one from one that Spark doesn't know.

The list, spark_settings.txt, has those in the jars of Spark 3.5.7, 4.0.2, 4.1.1, 4.2.0 and 4.2.1.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

#: Users choose the rest of these names.
_FREE = (
    "spark.hadoop.",
    "spark.executorEnv.",
    "spark.yarn.appMasterEnv.",
    "spark.kubernetes.",
    "spark.sql.catalog.",
    "spark.metrics.",
    "spark.driver.resource.",
    "spark.executor.resource.",
    "spark.task.resource.",
    "spark.redaction.",
)
#: A name with this many wrong, missing or swapped letters is a misspelt one.
_LETTERS = 2


@cache
def known() -> frozenset[str]:
    """Return the names of Spark's own settings."""
    return frozenset(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8").split())


def meant(name: str) -> str:
    """Return the setting that a misspelt name means; empty if it is none, or is spelt right."""
    if name.startswith(_FREE) or name in known():
        return ""
    near = (
        (letters, each)
        for each in known()
        if each.count(".") == name.count(".")
        and abs(len(each) - len(name)) <= _LETTERS
        and (letters := _distance(name, each)) <= _LETTERS
    )
    return min(near, default=(0, ""))[1]


def _distance(one: str, other: str) -> int:
    """Return the number of letters to change, add, omit or swap; above the limit, a larger one.

    This is the restricted Damerau-Levenshtein distance.
    """
    before: list[int] = []
    last = list(range(len(other) + 1))
    for row, letter in enumerate(one, 1):
        this = [row]
        for column, its in enumerate(other, 1):
            cost = min(last[column] + 1, this[-1] + 1, last[column - 1] + (letter != its))
            is_swap = row > 1 and column > 1 and letter == other[column - 2] and one[row - 2] == its
            this.append(min(cost, before[column - 2] + 1) if is_swap else cost)
        if min(this) > _LETTERS:
            return _LETTERS + 1
        before, last = last, this
    return last[-1]

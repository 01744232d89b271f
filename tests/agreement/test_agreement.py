"""Two judges that share nothing, and the readers, agree on changed archives: a sample."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agreement.agreement import run, table
from tests.agreement.archives import Made, make_archives, master_key
from tests.agreement.judges import COMPLETE, RIGHT, judge
from tests.agreement.records import live_files, read_files

#: `make soak` does thousands, with other seeds.
SEED, CHANGES, PARTS = 44, 300, 4


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Made]]:
    """Archives of each format; nobody changes them."""
    folder = tmp_path_factory.mktemp("agreement")
    with master_key(folder):
        yield make_archives(folder / "archives")


def test_whole(archives: list[Made]) -> None:
    """Of archives that nobody has changed, all judges and readers say the truth."""
    for made in archives:
        assert read_files(made.root, live_files(made.root), made.key) == made.records
        judged = judge(made.root, made)

        verdicts = {**judged.verdicts}
        if made.key is not None:
            assert verdicts.pop("verifier --deep") == "unknown"
        assert set(verdicts.values()) == {COMPLETE}, judged.details
        assert set(judged.read.values()) <= {RIGHT, "refused"}, judged.details
        assert judged.read["files"] == judged.read["find"] == RIGHT


@pytest.mark.parametrize("part", range(PARTS))
def test_agreement(archives: list[Made], tmp_path: Path, part: int) -> None:
    """Judges agree on what was changed; what readers give is right, or refused."""
    size = CHANGES // PARTS
    numbers = range(part * size, (part + 1) * size)
    outcomes = list(run(archives, tmp_path, SEED, numbers))

    wrong = [outcome.line for outcome in outcomes if outcome.disagreements]
    assert wrong == [], "\n".join([*wrong, table(outcomes)])

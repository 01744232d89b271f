"""A random history of a topic and its archive, and a judge that knows the truth.

A history is a list of steps, each with a seed of its own, so that it can be replayed, and made
shorter when it fails. Where it happens is a `World`: in memory, or on a real broker and real Spark.

The judge shares no decision with the product: it reads the topic as consumers do, before and after
each command, and the archive's files with pyarrow. It only asks the product which files readers
take. After each step it holds that

- readers get no record that was never committed, none twice, and each one as it was;
- a record that a drain or a backfill has answered for is there, or the verdict is red, twice;
- no command ends in a traceback;
- without damage, readers can always read;
- what is dated in an interval is there after its backfill, whatever lies between;
- after a log was cut and has grown again, what was archived stays, and what is there now is owed as
  well; where nobody has drained over a lost segment's records yet, the verdict is red until
  somebody was told of each;
- a record that was changed before its batch was sealed is found, or there is a warning that
  contents can't be verified: when the note and Kafka's own copy are lost, nobody knows them;
- an archive that is called ready has each record that is owed, as it was committed, in sealed
  files of the right size.

At the end the archive has to come to a green verdict, unless what was damaged is nowhere else.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from itertools import chain
from operator import itemgetter
from pathlib import Path
from typing import Any, Protocol

import pyarrow.parquet as pq

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.files import ArchiveFile, archive_files
from kafka_drain.archive.readiness import Readiness
from kafka_drain.clock import utc_now
from kafka_drain.errors import KafkaDrainError
from kafka_drain.looking import look_at
from kafka_drain.verify_archive import Verifier
from tests.histories.truth import PARTITIONS, Place, Record

__all__ = ["Ended", "History", "Step", "World", "draw"]

#: How a repair asks for somebody's word.
_REPLACED = re.compile(r"--replace-changed \S+:\d+:\d+-\d+")
#: How a command asks for it.
_ASKED = re.compile(r"--acknowledge-expired (\S+):(\d+):(\d+)-(\d+)")
#: The same by a validation, of offsets that nobody can give back.
_FORGOTTEN = re.compile(r"is in no file; .*" + _ASKED.pattern)
#: How a backfill names offsets that no interval takes.
_OF_NO_INTERVAL = re.compile(r"offsets of \S+-(\d+) belong to no interval up to now: ([^.]*)\.")
_RANGE = re.compile(r"\[(\d+), (\d+)\)")
#: How a validation names an unsealed window to be removed.
_ERASED_LEFT = re.compile(r"erased_left: (windows/\w+):")
#: How a drain and a backfill name what Kafka has forgotten before anybody drained it.
_EXPIRED = (_ASKED, re.compile(r"(\S+):(\d+):(\d+)-(\d+)(?=[^;]*, no file does)"))


@dataclass(frozen=True)
class Ended:
    """A command that has ended.

    Attributes:
        code: Its exit code; negative if it was killed.
        said: What it printed.
    """

    code: int
    said: str

    @property
    def was_killed(self) -> bool:
        return self.code < 0


class World(Protocol):
    """Where a history happens.

    Attributes:
        topic: The topic.
        folder: The archive's.
        more: The weight of steps that only this world has, or has more or less often.
    """

    topic: Any
    folder: Path
    more: Mapping[str, int]

    def run(
        self,
        chance: random.Random,
        *arguments: str,
        may_die: bool,
        meanwhile: Callable[[], None] | None,
    ) -> tuple[Ended, str]:
        """Run a command; return how it ended, and who was killed or suspended when.

        Args:
            chance: Decides that.
            arguments: The command line.
            may_die: Whether it may be killed, or suspended.
            meanwhile: What happens while it is suspended; None if nothing may.
        """

    def settle(self) -> None:
        """End what would keep an archive from being complete."""

    def yesterday(self) -> int:
        """Return the time a day ago, in milliseconds since 1970."""

    def decide_by(self, seed: int) -> None:
        """Let a seed decide what happens from now on."""

    def new_target(self, name: str) -> None:
        """Create a topic that takes what a republish sends."""

    def read_target(self, name: str) -> list[list[tuple[int, Record]]]:
        """Read what `read_committed` consumers get of each of a topic's partitions."""


@dataclass(frozen=True)
class Step:
    """One thing that happens.

    Attributes:
        name: The method of `History` that lets it happen, or of the world.
        seed: Decides how.
    """

    name: str
    seed: int

    def __str__(self) -> str:
        return f"{self.name}:{self.seed}"

    @classmethod
    def of(cls, text: str) -> Step:
        """Return the step that `str` has made to text."""
        name, _, seed = text.partition(":")
        return cls(name, int(seed))


#: How long a command takes at most, in milliseconds: it waits for leases.
_LONGEST = 600_000

#: What happens while a command is suspended.
_BESIDE = (
    *("produce", "drain", "validate", "repair", "roll", "maintain", "backfill"),
    *("reprocess", "abandon", "erase", "delete_old"),
)

#: What happens how often.
WEIGHTS = {
    "produce": 6,
    "transact": 2,
    "drain_as_scheduled": 6,
    "drain": 2,
    "validate": 3,
    "backfill": 2,
    "repair": 2,
    "roll": 2,
    "maintain": 3,
    "reprocess": 3,
    "erase": 2,
    "delete_old": 1,
    "republish": 2,
    "mirror": 3,
    "lose_file": 2,
    "change_record": 2,
    "lose_notes": 2,
    "delete_records": 1,
    "make_again": 1,
    "compact": 2,
    "cut": 3,
    "lose_segment": 3,
}


def draw(world: World, chance: random.Random, number: int) -> list[Step]:
    """Draw so many steps of what can happen in a world."""
    weights = {**WEIGHTS, **world.more}
    topic = world.topic
    weights["compact"] *= topic.is_compacted
    weights["cut"] *= topic.can_be_cut
    weights["lose_segment"] *= topic.has_segments
    first = ["produce", *(["drain_as_scheduled"] if chance.random() < 0.8 else [])]
    names = [*first, *chance.choices(list(weights), list(weights.values()), k=number)]
    return [Step(name, chance.getrandbits(32)) for name in names]


@dataclass
class History:
    """A topic, its archive, and what has happened to both.

    Attributes:
        world: Where it happens.
        chance: Decides how what happens now happens.
        starts_late: Whether its first drain starts at the topic's end.
        owed: Records that the archive has answered for.
        damaged: Files that were taken away.
        taken: The records that they held.
        altered: The records that were changed in a file that wasn't sealed.
        unsealed: Generation and batch of those in a file that was taken away, or changed, before it
            was sealed; a manifest may not tell the batch.
        suspect: All records of batches of which a file was taken away, or changed, before they were
            sealed: nobody knows which file is affected.
        lost_notes: Generations and batches without a note of what Spark read, which was taken away
            or never written.
        passed: Records that Kafka had lost before a drain passed their offsets.
        given_up: Records that are nowhere else, of unsealed files that a roll was told to leave.
        redrained: Records of windows that a roll has removed, which a later drain reads again.
        needs_another: Whether the product has asked to drain to another archive, or for a word that
            would let it take other records for those of a log that was cut.
        asked: Records that somebody has asked to erase.
        erased: Those that were erased.
        deleted: Records that were too old to be kept, and that are or may be gone.
        history: What has happened, for people.
        acknowledged: Ranges that Kafka had forgotten before anybody drained them.
        commands: How many commands were run.
        killed: How many of them didn't live to their end.
        ended_green: Whether the archive came back to a green verdict.
        ready: How often the archive was called ready.
    """

    world: World
    chance: random.Random
    starts_late: bool = False
    owed: dict[Place, Record] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    taken: set[Place] = field(default_factory=set)
    altered: set[Place] = field(default_factory=set)
    unsealed: dict[Place, tuple[str, int | None]] = field(default_factory=dict)
    suspect: set[Place] = field(default_factory=set)
    lost_notes: set[tuple[str, int]] = field(default_factory=set)
    passed: set[Place] = field(default_factory=set)
    given_up: set[Place] = field(default_factory=set)
    redrained: set[Place] = field(default_factory=set)
    needs_another: bool = False
    asked: set[Place] = field(default_factory=set)
    erased: set[Place] = field(default_factory=set)
    deleted: set[Place] = field(default_factory=set)
    history: list[str] = field(default_factory=list)
    acknowledged: list[str] = field(default_factory=list)
    commands: int = 0
    killed: int = 0
    ended_green: bool = False
    ready: int = 0
    _requests: int = 0
    _republished: int = 0
    _is_mirrored: bool = False
    _is_whole: bool = True
    _mirrored: dict[Record, Place] = field(default_factory=dict)
    _suspended: int = 0
    _is_beside: bool = False
    _found: AssertionError | None = None

    @property
    def topic(self) -> Any:
        return self.world.topic

    @property
    def folder(self) -> Path:
        return self.world.folder

    @property
    def _mirror(self) -> str:
        return f"{self.topic.name}-mirror"

    @property
    def archive(self) -> Archive:
        return Archive.at(str(self.folder))

    def run(self, steps: Iterable[Step], end: int) -> None:
        """Let things happen, judge after each, and bring the archive back to green.

        Args:
            steps: What happens.
            end: The seed of the recovery.
        """
        try:
            for step in steps:
                self.run_one(step)
            self.finish(end)
        except AssertionError as error:
            raise AssertionError("\n".join([str(error), *self.history])) from error

    def run_one(self, step: Step) -> None:
        """Let one thing happen as its seed decides, and judge what readers get."""
        self._decide_by(step.seed)
        self.step(step.name)

    def finish(self, end: int) -> None:
        """Bring the archive back to green, as a seed decides."""
        self._decide_by(end)
        self.recover()
        if self._is_mirrored:
            self.finish_mirror()

    def _decide_by(self, seed: int) -> None:
        self.chance.seed(seed)
        self.world.decide_by(seed)

    def step(self, name: str) -> None:
        """Let one thing happen, and judge what readers get."""
        mine = getattr(self, name, None)
        if mine is not None:
            mine()
        else:
            self.note(getattr(self.world, name)())
        self.judge()

    # What happens to the topic

    def produce(self) -> None:
        self.note("produce")
        self.topic.produce(self.chance.randint(1, 12))

    def transact(self) -> None:
        commit = self.chance.random() < 0.5
        self.note("commit" if commit else "abort")
        self.topic.transact(self.chance.randint(1, 6), commit=commit)

    def delete_records(self) -> None:
        self.note("delete records")
        self.topic.delete_records()

    def make_again(self) -> None:
        self.note("make again")
        self.topic.make_again()
        self.topic.produce(self.chance.randint(1, 20))

    def compact(self) -> None:
        self.note("compact" if self.topic.compact() else "compact: nothing was removed")

    def cut(self) -> None:
        self.note(self.topic.cut())

    def lose_segment(self) -> None:
        self.note(self.topic.lose_segment())

    # What happens to the archive

    def drain_as_scheduled(self) -> None:
        """Let records arrive, drain and validate: an hour's run of the DAG."""
        self.produce()
        self.drain()
        self.validate()

    def drain(self, *, may_die: bool = True) -> None:
        # Without compression, a record can be changed in its place.
        plain = ["--compression", "uncompressed"]
        more = ["--topic", self.topic.name, "--partition-by", "topic", *plain]
        if self.starts_late:
            more += ["--source-option", "startingOffsets=latest"]
        before = self.topic.look()
        ended = self.command("drain", *more, may_die=may_die)
        if ended.code == 0:
            start = self.start()
            self.answer_for(
                before,
                lambda place: (
                    place.offset >= start.get(place.partition, 0)
                    and not self.is_cut_unnoticed(place)
                ),
            )
            self.passed |= {p for p in self.topic.holes if p.offset >= start.get(p.partition, 0)}

    def backfill(self) -> None:
        before = self.topic.look()
        interval = ("--start", "2026-01-10T00:00Z", "--end", "2026-01-11T00:00Z")
        if not self.archive.exists:
            return
        ended = self.command("backfill", *interval)
        # Of records that lie among others of another time.
        named = {
            (partition, span)
            for partition, spans in _OF_NO_INTERVAL.findall(ended.said)
            for span in _RANGE.findall(spans)
        }
        if ended.code == 0:
            # That of a rewritten log may start earlier.
            start = self.start(min)
            self.answer_for(
                before,
                lambda p: (
                    p.offset < start.get(p.partition, 0)
                    and self.topic.is_of_day(p)
                    and not any(_is_within(p, one, "-".join(span)) for one, span in named)
                    and not self.is_cut_unnoticed(p)
                ),
            )

    def is_cut_unnoticed(self, place: Place) -> bool:
        """Return whether nothing is left that tells the log of a place from the one before.

        A window's receipt has no hash of its last record: it goes with the file, as that of a
        record in a lost file without a receipt does. And of a log of which nothing was archived
        before it was cut, nobody has any.
        """
        if not place.cut:
            return False
        log = _log_of(place)
        before = {p for p in self.owed if _log_of(p) == log and p.cut < place.cut}
        behind = {p for p in before if p.offset >= self.topic.cuts[log][place.cut - 1]}
        is_lost = bool(behind) and behind <= self.taken & self.unsealed.keys()
        return not before or bool(before & self.deleted) or is_lost

    def validate(self) -> None:
        deep = self.chance.random() < 0.2
        times = self._suspended
        ended = self.command("validate", *(["--deep"] if deep else []))
        # What happened while it was suspended may be after what it has seen.
        if ended.code == 0 and times == self._suspended:
            self.require_owed("a green verdict", ended)
            self.require_holes_said()

    def repair(self) -> None:
        if self.archive.exists:
            self.command("repair", "--apply")

    def roll(self) -> None:
        if self.archive.exists:
            rewritten = self.topic.cuts and self.chance.random() < 0.7
            self._roll(*(["--rewritten"] if rewritten else []))

    def _roll(self, *arguments: str, may_die: bool = True) -> Ended:
        """Roll; what is to be drained again isn't owed until it is."""
        before = {place for place, _ in self.read()}
        ended = self.command("roll", *arguments, "--apply", may_die=may_die)
        if "removes window" in ended.said or ended.was_killed:
            self.redrained |= before - {place for place, _ in self.read()}
        opened = self.archive.snapshot().open_generation
        if opened is not None and self.is_of_life(opened.document.topics):
            start = {tp.partition: at for tp, at in opened.starting_offsets.items()}
            held = self.topic.look()
            for p in self.missing().keys() & held.keys():
                if p.offset >= start.get(p.partition, 0):
                    del self.owed[p]
        return ended

    def maintain(self) -> None:
        if self.archive.exists:
            lines = self.chance.choice(["1", "1", "1000"])
            self.command("maintain", "--max-manifest-lines", lines, "--apply")

    def reprocess(self) -> None:
        if self.archive.exists:
            batch = str(self.chance.choice([0, 0, 1, 2]))
            cut = [] if self.is_reprocessing else ["--from-batch", batch]
            self.command("reprocess", *cut, "--partition-by", "topic", "--apply")

    def abandon(self) -> None:
        if self.is_reprocessing:
            self.command("reprocess", "--abandon", "--apply")

    def erase(self) -> None:
        """Erase the records with the key of one that readers get."""
        sealed = sorted(self.read(sealed_only=True), key=_in_life) if self.archive.exists else []
        if not sealed:
            return
        key = self.chance.choice(sealed)[1][0]
        assert key is not None
        if self._is_mirrored:
            # What has been sent by now may stay there.
            self.judge_mirror()
        self._requests += 1
        keys = self.folder.parent / f"keys {self._requests}"
        keys.write_bytes(key + b"\n")
        request = ("--request", f"request {self._requests}", "--by", "somebody")
        # Of one that is killed or suspended, nobody knows how far it came; and it is carried out
        # later, too.
        self.asked |= {place for place, r in self.topic.committed.items() if r[0] == key}
        self.owed = {p: record for p, record in self.owed.items() if p not in self.asked}
        ended = self.command("erase", *request, "--keys", str(keys), "--apply")
        if ended.code == 0:
            self.erased |= {place for place, record in sealed if record[0] == key}

    def delete_old(self) -> None:
        """Let maintenance delete what is older than a day."""
        if not self.archive.exists:
            return
        # It may wait for another command's end, so that more is old by then.
        before = self.world.yesterday() + _LONGEST
        # With damage, nobody else may be able to tell what is there.
        held = self.topic.committed if self.damaged else dict(self.read())
        old = {p: r for p, r in held.items() if r[3] < before}
        owed = {p: r for p, r in self.owed.items() if r[3] < before}
        # Not owed while it runs, nor if it deletes them.
        self.owed = {p: record for p, record in self.owed.items() if p not in owed}
        ended = self.command("maintain", "--retention-days", "1", "--apply")
        there = {place for place, _ in self.read()}
        # What it had planned when it was killed, a later command deletes.
        there = set() if ended.was_killed else there
        self.owed |= {p: record for p, record in owed.items() if p in there - self.asked}
        gone = (old.keys() | owed.keys()) - there
        self.deleted |= gone
        # A drain may have answered for them while it was suspended.
        self.owed = {p: record for p, record in self.owed.items() if p not in gone}

    def republish(self) -> None:
        """Send what is sealed to a topic of its own, until it is done, and compare."""
        if not self.archive.exists:
            return
        self._republished += 1
        target = f"{self.topic.name}-out-{self._republished}"
        # Not made like its source: Kafka would compact it before it is read.
        self.world.new_target(target)
        runs = (target, f"{target}-too")
        wanted: list[list[list[Record]]] = []

        def attempt(run: str = "", *, may_die: bool = True) -> Ended:
            # Of those that plan at once, one counts.
            wanted.append(self.sealed())
            named = ("--run-name", run or self.chance.choice((*runs, target)), "--sealed-only")
            ended = self._send(target, *named, may_die=may_die, again=attempt)
            found = self.sent(target)
            assert any(_start(found, one) for one in wanted), f"not sent in order, once: {found}"
            if ended.code == 0:
                assert found in wanted, f"republished: {found}, wanted: {wanted}"
            return ended

        ended = attempt()
        for run in runs * 2:
            if ended.code:
                ended = attempt(run, may_die=False)
        may_send = not self.asked - self.erased and "that aren't erased yet" not in ended.said
        if any(wanted[-1]) and not self.damaged and may_send:
            assert ended.code == 0, f"can't be republished: {ended.said}"
        # Whatever is done sends nothing more.
        attempt()
        self.translate(target)

    def mirror(self) -> None:
        """Follow the archive to another topic."""
        if not self.archive.exists:
            return
        if not self._is_mirrored:
            self._is_mirrored = True
            self.world.new_target(self._mirror)
        self._follow()

    def _follow(self, *, may_die: bool = True) -> Ended:
        before = self.sent(self._mirror)
        times, was_whole = self._suspended, self._is_whole
        more = ("--follow", "--run-name", "mirror")
        ended = self._send(self._mirror, *more, may_die=may_die, again=self._follow)
        self.judge_mirror()
        self._is_whole = ended.code == 0
        rewritten = self.topic.cuts or self.topic.holes
        if was_whole and self._is_whole and times == self._suspended and not rewritten:
            # All that is new was sent by one run; of a rewritten log, incarnations follow.
            for was, now in zip(before, self.sent(self._mirror), strict=True):
                new = [self._mirrored[r] for r in now[len(was) :]]
                assert new == sorted(new, key=self._in_order), f"mirrored in this order: {new}"
        return ended

    def _send(self, target: str, *more: str, may_die: bool, again: Callable[[], Any]) -> Ended:
        processes = ("--engine", "worker", "--processes", self.chance.choice("12"))
        arguments = ("--target-topic", target, *more, *processes, "--apply")
        return self.command("republish", *arguments, may_die=may_die, again=again)

    def translate(self, target: str) -> None:
        """Hold that a group goes on at the first record that it hasn't read, in a copy."""
        places = {record: place for place, record in self.topic.committed.items()}
        copied = [
            [(offset, place) for offset, record in found if (place := places.get(record))]
            for found in self.world.read_target(target)
        ]
        ended = sorted(path.parent for path in self.folder.glob("republish/*/receipt.json"))
        runs = [run for run in ended if f'"{target}"' in (run / "plan.json").read_text()]
        lives = {place.life for found in copied for _, place in found}
        if not runs or lives - {self.topic.life}:
            return
        read = [self.chance.randint(0, 1 + len(found)) for found in copied]
        file = self.folder.parent / "offsets.csv"
        file.write_text("".join(f"{self.topic.name},{n},{at}\n" for n, at in enumerate(read)))
        more = ("--group", "group", "--offsets-file", str(file), "--json")
        # A mirror has several: any of them will do.
        run = self.chance.choice(runs).name
        answer = self.command("translate-group", "--run", run, *more, may_die=False)
        if "was rewritten after it was archived" in answer.said:
            assert self.topic.cuts or self.topic.holes, f"not translated: {answer.said}"
            return
        if "sent no record" in answer.said:
            assert not any(copied), f"not translated: {answer.said}"
            return
        assert answer.code == 0, f"can't be translated: {answer.said}"
        plan, _ = json.JSONDecoder().raw_decode(answer.said, answer.said.index("{\n"))
        for row in plan["rows"]:
            n, at = row["target_partition"], row["offset"]
            unread = [offset for offset, place in copied[n] if place.offset >= read[n]]
            known = [offset for offset, place in copied[n] if place.offset < read[n]]
            first = min(unread, default=at)
            late = sum(offset > first for offset in known)
            again = sum(offset >= at for offset in known)
            is_right = at <= first and (again == late == row["read_again"] or row["is_bound"])
            assert is_right, f"translated: {row}, read up to {read}, of {copied}"

    def sent(self, target: str) -> list[list[Record]]:
        """Return what consumers get of each partition of a target."""
        return [[record for _, record in found] for found in self.world.read_target(target)]

    def sealed(self) -> list[list[Record]]:
        """Return what is sealed, by partition, in the order of its log."""
        found = self.read(sealed_only=True, as_changed=True)
        found.sort(key=lambda one: self._in_order(one[0]))
        return [
            [record for place, record in found if place.partition == number]
            for number in range(PARTITIONS)
        ]

    def _in_order(self, place: Place) -> tuple[int, int, int]:
        return self.topic.lives.index(place.life), place.cut, place.offset

    def lose_file(self) -> None:
        """Take away a file that readers take, or the half of it."""
        files = self._by_records(self.files()) if self.archive.exists else []
        if files:
            file = self.chance.choice(files)
            self.note(f"lose {file.path}")
            path = self.folder / file.path
            if file.path not in self.damaged:
                held = {place for place, _ in self.rows(file)}
                self._take(file, held)
            self.damaged.add(file.path)
            if self.chance.random() < 0.7:
                path.unlink(missing_ok=True)
            elif path.exists():
                path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])

    def _take(self, file: ArchiveFile, held: set[Place]) -> None:
        self.taken |= held
        if file.listed is not None:
            owner = file.owner.name.rpartition("/")[2]
            batch = file.listed.batch
            self.unsealed |= dict.fromkeys(held, (owner, batch))
            note = self.folder / "generations" / owner / "fingerprints" / f"{batch or 0:012}.json"
            if batch is not None and not note.exists():
                # A drain that was killed may have written none.
                self.lost_notes.add((owner, batch))
            self.suspect |= held
            for each in self.files():
                path = self.folder / each.path
                if each.sealed is None and each.path not in self.damaged and path.exists():
                    self.suspect |= {place for place, _ in self.rows(each)}

    def change_record(self) -> None:
        """Change a value in a file whose batch isn't sealed; its size and offsets stay."""
        files = (
            [file for file in self.files() if file.sealed is None] if self.archive.exists else []
        )
        for file in self.chance.sample(self._by_records(files), len(files)):
            path = self.folder / file.path
            if file.path in self.damaged or not path.exists():
                continue
            content = path.read_bytes()
            before = self.rows(file)
            for place, (_, value, _, _) in before:
                # Where it is in the statistics, too.
                if value and value in content:
                    path.write_bytes(content.replace(value, value[:-1] + b"?"))
                    both = zip(before, self.rows(file), strict=True)
                    changed = [was[0] for was, now in both if was[1] != now[1]]
                    if changed == [place]:
                        self.note(f"change {place} in {file.path}")
                        self.altered.add(place)
                        self._take(file, {each for each, _ in before})
                        self.damaged.add(file.path)
                        return
                    path.write_bytes(content)

    def lose_notes(self) -> None:
        """Take away what drains left of the records that Spark read."""
        for note in sorted(self.folder.glob("generations/*/fingerprints/*.json")):
            if self.chance.random() < 0.7:
                self.note(f"lose {note.relative_to(self.folder)}")
                note.unlink()
                self.lost_notes.add((note.parts[-3], int(note.stem)))

    # The judge

    def judge(self) -> None:
        """Hold what readers get against what was committed."""
        if not self.archive.exists:
            return
        seen: set[Place] = set()
        for place, record in self.read():
            assert place not in seen or self.is_damaged_twice(place), f"{place} is there twice"
            assert self.topic.committed.get(place) == record, f"{place} isn't what was committed"
            assert place not in self.erased, f"{place} was erased"
            seen.add(place)
        self.judge_readiness()

    def judge_readiness(self) -> None:
        """Hold that an archive that is called ready can be restored: all of its files are read."""
        judged = look_at(self.archive, str(self.folder)).judge(utc_now())
        if judged.state is not Readiness.READY:
            return
        self.ready += 1
        said = f"called ready ({judged.sentence})"
        for file in self.files():
            path = self.folder / file.path
            is_there = path.exists() and path.stat().st_size == file.bytes
            assert is_there, f"{said}, and {file.path} isn't there"
            # A restore refuses those that aren't.
            assert file.sealed is not None, f"{said}, and {file.path} isn't sealed"
        for place, record in self.read(as_changed=True):
            assert self.topic.committed.get(place) == record, f"{said}, and {place} was changed"
        missing = self.missing()
        assert not missing, f"{said}, and {len(missing)} records aren't there: {min(missing)}"

    def judge_mirror(self) -> None:
        """Hold that a mirror has what was committed, once each."""
        committed = self.topic.committed
        places = {record: place for place, record in committed.items()}
        altered = {(r[0], r[3]): p for p in self.altered if (r := committed[p])}
        known, self._mirrored = set(self._mirrored.values()), {}
        seen: set[Place] = set()
        for record in chain(*self.sent(self._mirror)):
            place = places.get(record) or altered.get((record[0], record[3]))
            assert place is not None, f"mirrored, and never committed: {record}"
            assert place not in seen or self.is_taken_up_early(place), f"mirrored twice: {place}"
            seen.add(place)
            self._mirrored[record] = place
        late = self.erased & (seen - known)
        assert not late, f"mirrored after it was erased: {min(late)}"

    def finish_mirror(self) -> None:
        """Let the mirror catch up, and hold that it has what is sealed."""
        if self._requests:
            # Nobody sends what somebody has asked to erase, be it drained since.
            self.command("erase", "--apply", may_die=False)
        # The first one ends what others have begun.
        ended = [self._follow(may_die=False) for _ in range(2)][-1]
        if ended.code and (self.damaged or "window reprocess_" in ended.said):
            return
        assert ended.code == 0, f"can't be mirrored: {ended.said}"
        sealed = {place for place, _ in self.read(sealed_only=True, as_changed=True)}
        seen = set(self._mirrored.values())
        assert sealed <= seen, f"not mirrored: {min(sealed - seen)}"
        more = seen - sealed - self.asked - self.deleted
        self.translate(self._mirror)
        assert self.damaged or not more, f"mirrored, and not in the archive: {min(more)}"

    def is_damaged_twice(self, place: Place) -> bool:
        """Return whether a log lost what came after a record, and what came before it.

        The product takes it up where it first differs, and archives what is in between again.
        """
        holes = [p.offset for p in self.topic.holes if _log_of(p) == _log_of(place)]
        ends = [*self.topic.cuts.get(_log_of(place), ()), *holes]
        return any(at > place.offset for at in ends) and any(at < place.offset for at in holes)

    def is_taken_up_early(self, place: Place) -> bool:
        """Return whether a rewritten log's next generation may have a record of the one before.

        Nobody knows where a log first differs if the records before that were deleted, or lost.
        """
        rewritten = {*self.topic.cuts, *map(_log_of, self.topic.holes)}
        is_gone = place in self.deleted or place in self.taken
        return (
            place in self.redrained
            or (_log_of(place) in rewritten and is_gone)
            or self.is_damaged_twice(place)
        )

    def missing(self) -> dict[Place, Record]:
        """Return what is owed and not there.

        Of a lost file, without a receipt and without a note, nobody knows what it held.
        """
        there = {place for place, _ in self.read()} | self.given_up
        there |= {
            place
            for place, (generation, batch) in self.unsealed.items()
            if any(generation == g and batch in (None, b) for g, b in self.lost_notes)
        }
        return {
            place: record
            for place, record in self.owed.items()
            if place not in there and not self._is_accepted(place)
        }

    def _is_accepted(self, place: Place) -> bool:
        """Return whether somebody has accepted that an offset is lost, of whichever log.

        A range says nothing of a topic that was made again: what is lost later of the one before is
        accepted, too.
        """
        is_here = place == self.topic.place(place.partition, place.offset)
        return not is_here and self.is_acknowledged(place)

    def require_owed(self, what: str, ended: Ended) -> None:
        missing = self.missing()
        if "content_unknown" in ended.said:
            missing = {place: r for place, r in missing.items() if place not in self.altered}
        assert not missing, f"{what}, and {len(missing)} records aren't there: {min(missing)}"

    def require_holes_said(self) -> None:
        """Hold that nobody calls an archive complete that has drained over a hole.

        It had the records before, or somebody was told of each offset. In a compacted topic,
        nobody can tell.
        """
        if self.topic.is_compacted:
            return
        archived = {place for place, _ in self.read()} | self.deleted
        for p in self.passed & self.topic.holes - archived - self.asked - self.altered:
            if p == self.topic.place(p.partition, p.offset) and not self.is_acknowledged(p):
                raise AssertionError(f"green over a hole: {p}")

    def is_acknowledged(self, place: Place) -> bool:
        ranges = [one.rsplit(":", 2)[1:] for one in self.acknowledged]
        return any(_is_within(place, partition, span) for partition, span in ranges)

    def recover(self) -> None:
        """Do what the documents advise until the verdict is green, or fail."""
        self.world.settle()
        if not self.archive.exists:
            return
        if self.missing():
            for _ in range(2):
                ended = self.command("validate", may_die=False)
                if ended.code == 0:
                    self.require_owed("green with records lost", ended)
        self._mend()
        verdict = self.command("validate", may_die=False)
        if verdict.code == 0:
            self.require_owed("green at the end", verdict)
        self.give_up()
        self.drain_to_the_end()
        for _ in range(2):
            # Once more, if it named what somebody has to accept.
            accepted = len(self.acknowledged)
            verdict = self.command("validate", "--deep", may_die=False)
            if len(self.acknowledged) == accepted:
                break
        said = ""
        if verdict.code:
            # What a rewritten log kept from being repaired, until a roll began anew.
            self._mend()
            self.give_up()
            said = self.command("repair", "--apply", may_die=False).said
            verdict = self.command("validate", may_die=False)
        advised = ("content_changed", "records_changed", "--leave-unsealed")
        if verdict.code and any(one in verdict.said + said for one in advised):
            self.leave_unsealed()
            self.drain_to_the_end()
            self.give_up()
            verdict = self.command("validate", may_die=False)
        if not self.needs_another:
            assert verdict.code == 0, f"stuck: {verdict.said}"
        if verdict.code == 0:
            self.ended_green = True
            self.require_owed("green at the end", verdict)
            self.require_verified()
        self.judge()

    def leave_unsealed(self, *arguments: str) -> None:
        """Roll without what isn't sealed; what Kafka no longer has of it is gone."""
        ended = self._roll(*arguments, "--leave-unsealed", may_die=False)
        # Of a window that is removed, Kafka may have other records: somebody has to say which.
        self.needs_another |= bool(_REPLACED.search(ended.said))
        self.given_up |= self.missing().keys() - self.topic.look().keys()

    def give_up(self) -> None:
        """Accept that what is nowhere else is gone, as somebody may have to."""
        for _ in range(3):
            accepted = len(self.acknowledged)
            verdict = self.command("validate", may_die=False)
            for window in _ERASED_LEFT.findall(verdict.said):
                shutil.rmtree(self.folder / window)
            self.accept_forgotten(verdict.said, are_owed=True)
            if verdict.code == 0:
                return
            self._mend()
            if len(self.acknowledged) == accepted:
                return

    def require_verified(self) -> None:
        """Hold that the verifier, which shares no code, calls the archive complete as well."""
        verifier = Verifier(str(self.folder), True)
        verifier.run()
        found = verifier.report()
        problems = [*found["errors"], *found["unknown"]]
        # Of an archive in which nothing is sealed, it says nothing.
        assert not problems or not verifier.segments, f"verified otherwise: {problems}"

    def _mend(self) -> None:
        """End a reprocess, and repair what can be."""
        if self.is_reprocessing:
            self.command("reprocess", "--partition-by", "topic", "--apply", may_die=False)
        if self.is_reprocessing:
            self.command("reprocess", "--abandon", "--apply", may_die=False)
        repaired = self.command("repair", "--apply", may_die=False)
        # Kafka's records are right, unless its log was cut since, but no receipt or note says so.
        accepted = [part for one in _REPLACED.findall(repaired.said) for part in one.split()]
        held = self.taken | self.owed.keys()
        spans = [one.rsplit(":", 2)[1:] for one in accepted if ":" in one]
        is_cut = any(
            self.topic.place(p.partition, p.offset) != p
            for p in held
            if any(_is_within(p, partition, span) for partition, span in spans)
        )
        if accepted and not is_cut:
            self.command("repair", *accepted, "--apply", may_die=False)
        self.needs_another |= is_cut

    def drain_to_the_end(self) -> None:
        for attempt in range(4):
            before = len(self.history)
            self.drain(may_die=attempt < 3)
            said = "\n".join(self.history[before:])
            if self.history[before].endswith("-> 0"):
                return
            self.command("validate", may_die=False)
            rewritten = ["--rewritten"] if "--rewritten" in said else []
            ended = self._roll(*rewritten, may_die=False)
            if "roll without --rewritten" in ended.said:
                # A repair had drained what the log has now in the place of all that was unsealed.
                rewritten = []
                ended = self._roll(may_die=False)
            # It can't tell an erased record from what may be there now.
            self.needs_another |= "Drain to another archive" in ended.said
            if ended.code == 1 and "--leave-unsealed" in ended.said:
                self.leave_unsealed(*rewritten)
            if ended.code == 0:
                # Of a damaged file that isn't sealed, a roll has nothing to keep.
                left = self.missing().keys() & self.unsealed.keys()
                self.given_up |= left - self.topic.look().keys()

    # What both share

    def command(
        self,
        name: str,
        *arguments: str,
        may_die: bool = True,
        again: Callable[[], Any] | None = None,
    ) -> Ended:
        """Run a command, which a third of the time doesn't live to its end.

        Args:
            again: What may run it again while it is suspended.
        """
        self.commands += 1
        expired = [part for one in self.acknowledged for part in ("--acknowledge-expired", one)]
        if name not in ("drain", "validate", "repair", "backfill"):
            expired = []
        ended, killed = self.world.run(
            self.chance,
            *(name, str(self.folder), "--bootstrap-servers", self.topic.bootstrap),
            *arguments,
            *expired,
            may_die=may_die,
            meanwhile=None if self._is_beside else lambda: self._meanwhile(name, again),
        )
        if self._found:
            raise self._found
        self.note(f"{' '.join([name, *arguments])} {killed}-> {ended.code}")
        if ended.code > 0:
            self.history.append("    " + ended.said.strip()[-600:].replace("\n", "\n    "))
        assert "Traceback" not in ended.said, ended.said
        assert ended.code in (0, 1, 2, -9), ended.said
        if name in ("drain", "backfill") and ended.code == 1:
            self.accept_expired(ended.said)
        if name in ("validate", "repair") and ended.code == 1 and self.archive.exists:
            self.accept_forgotten(ended.said)
        self.killed += ended.was_killed
        return ended

    def _meanwhile(self, name: str, again: Callable[[], Any] | None) -> None:
        """Let something happen while a command is suspended."""
        self.note(f"({name} is suspended)")
        self._suspended += 1
        self._is_beside = True
        try:
            for _ in range(self.chance.randint(1, 2)):
                beside = [getattr(self, each) for each in _BESIDE]
                self.chance.choice([*beside, *[again] * len(beside)] if again else beside)()
                self.judge()
        except AssertionError as error:
            # The suspended command may not let it through.
            self._found = error
        finally:
            self._is_beside = False
        self.note(f"({name} goes on)")

    def accept_expired(self, said: str) -> None:
        """Accept from now on that what nobody has drained is gone."""
        missing = self.missing().keys() if self.archive.exists else set()
        only_here = missing - self.topic.look().keys()
        for topic, partition, start, end in chain(*(each.findall(said) for each in _EXPIRED)):
            expired = f"{topic}:{partition}:{start}-{end}"
            if expired not in self.acknowledged:
                self.acknowledged.append(expired)
                # A range says nothing of a log that was cut or made again.
                span = f"{start}-{end}"
                self.given_up |= {p for p in only_here if _is_within(p, partition, span)}

    def accept_forgotten(self, said: str, *, are_owed: bool = False) -> None:
        """Accept from now on that Kafka forgot offsets of which no record is owed.

        Such as those of records that it had compacted before they were drained. In the end, also
        those of records that are nowhere else.
        """
        lost = self.owed.keys() if are_owed else self.owed.keys() & {*self.missing(), *self.taken}
        only_here = lost - self.topic.look().keys() - self.given_up
        for topic, partition, start, end in (_ASKED if are_owed else _FORGOTTEN).findall(said):
            owed = {p for p in only_here if _is_within(p, partition, f"{start}-{end}")}
            expired = f"{topic}:{partition}:{start}-{end}"
            if (are_owed or not owed) and expired not in self.acknowledged:
                self.acknowledged.append(expired)
                self.given_up |= owed
                if are_owed:
                    # Of the rest of its batch, nobody knows any more whether Kafka has the same.
                    self.given_up |= only_here & self.suspect

    def note(self, what: str) -> None:
        self.history.append(what)

    @property
    def is_reprocessing(self) -> bool:
        return (self.folder / "maintenance" / "reprocess.json").exists()

    def start(self, of: Callable[[list[int]], int] = itemgetter(0)) -> dict[int, int]:
        """Return where a generation of the topic's life starts, the first one by default."""
        generation = self.archive.snapshot().open_generation
        if generation is None or not self.is_of_life(generation.document.topics):
            return {}
        starts: dict[int, list[int]] = {}
        for one in self.archive.snapshot().generations:
            if self.is_of_life(one.document.topics):
                for tp, offset in one.starting_offsets.items():
                    starts.setdefault(tp.partition, []).append(offset)
        return {partition: of(offsets) for partition, offsets in starts.items()}

    def is_of_life(self, topics: Mapping[str, str]) -> bool:
        """Return whether the ids of a generation's topics are of the topic's life now."""
        return life_of(topics.get(self.topic.name, "")) == self.topic.life

    def answer_for(self, before: dict[Place, Record], wanted: Callable[[Place], bool]) -> None:
        """Note what Kafka held before and after a command as owed."""
        after = self.topic.look()
        gone = self.asked | self.deleted
        self.owed |= {p: r for p, r in before.items() if p in after and wanted(p) and p not in gone}

    def files(self) -> list[ArchiveFile]:
        """Return the files that readers take; without damage there always is an answer."""
        try:
            return archive_files(self.archive.snapshot())
        except KafkaDrainError as error:
            if not self.damaged:
                raise AssertionError(f"can't be read: {error}") from error
            return []

    def read(
        self, *, sealed_only: bool = False, as_changed: bool = False
    ) -> list[tuple[Place, Record]]:
        """Read all rows of the files that readers take and that are there.

        Unless asked for, those that were changed are left out.
        """
        found: list[tuple[Place, Record]] = []
        for file in self.files():
            path = self.folder / file.path
            if sealed_only and file.sealed is None:
                continue
            if not path.exists() or path.stat().st_size != file.bytes:
                assert file.path in self.damaged, f"{file.path} is gone"
                continue
            found += self.rows(file)
        if as_changed:
            return found
        committed = self.topic.committed
        return [
            (place, record)
            for place, record in found
            if place not in self.altered or committed.get(place) == record
        ]

    def _by_records(self, files: Iterable[ArchiveFile]) -> list[ArchiveFile]:
        """Return the files in the order of their first records: their names are by chance."""

        def first(file: ArchiveFile) -> tuple[int, int, int]:
            path = self.folder / file.path
            if file.path in self.damaged or not path.exists():
                return len(self.topic.lives), 0, 0
            place = min(place for place, _ in self.rows(file))
            return self.topic.lives.index(place.life), place.partition, place.offset

        return sorted(files, key=first)

    def rows(self, file: ArchiveFile) -> list[tuple[Place, Record]]:
        """Read the rows of a file that is there, each with the place that it was in."""
        life = life_of(file.topic_ids[self.topic.name])
        found = rows(self.folder / file.path, life)
        return [(self._was_at(place, record), record) for place, record in found]

    def _was_at(self, place: Place, record: Record) -> Place:
        """Return in which place a record was, also one that was changed in a file since."""
        was = self.topic.was_at(place, record)
        if self.topic.committed.get(was) == record:
            return was
        changed = (p for p in self.altered if replace(p, cut=0) == replace(place, cut=0))
        return next(changed, was)

    def summary(self) -> str:
        """Return what it came to, in a line."""
        verdict = "green" if self.ended_green else "red" if self.archive.exists else "no archive"
        return (
            f"{self.commands} commands, {self.killed} killed, {len(self.topic.lives)} lives, "
            f"{len(self.topic.committed)} records, {len(self.owed)} owed, "
            f"{len(self.damaged)} files damaged, {sum(map(len, self.topic.cuts.values()))} cuts, "
            f"{len(self.topic.holes)} records in holes, {verdict}"
        )


def _in_life(found: tuple[Place, Record]) -> tuple[int, int]:
    return found[0].partition, found[0].offset


def _is_within(place: Place, partition: str, span: str) -> bool:
    start, end = map(int, span.split("-"))
    return int(partition) == place.partition and start <= place.offset < end


def _start(found: list[list[Record]], whole: list[list[Record]]) -> bool:
    """Return whether each partition has the start of a whole one."""
    return all(one == of[: len(one)] for one, of in zip(found, whole, strict=True))


def _log_of(place: Place) -> tuple[str, int]:
    return place.life, place.partition


def life_of(counted: str) -> str:
    """Return a topic's id, without the number by which an archive tells its logs apart."""
    return counted.partition("~")[0]


def rows(path: Path, life: str) -> list[tuple[Place, Record]]:
    """Read the rows of a Parquet file."""
    found = path.stat()
    # A judge looks at most files often, and at a changed one again.
    read = _read(str(path), found.st_ino, found.st_size, found.st_mtime_ns)
    return [(Place(life, partition, offset), record) for partition, offset, record in read]


@lru_cache(maxsize=1_000)
def _read(path: str, *state: int) -> list[tuple[int, int, Record]]:
    columns = ["partition", "offset", "key", "value", "headers", "timestamp"]
    table = pq.ParquetFile(path).read(columns, use_threads=False)
    times = table["timestamp"].cast("int64").to_pylist()
    found = []
    # Python has no dates after the year 9999.
    others = table.drop_columns(["timestamp"]).to_pylist()
    for row, micros in zip(others, times, strict=True):
        headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
        record = (row["key"], row["value"], headers, micros // 1000)
        found.append((row["partition"], row["offset"], record))
    return found

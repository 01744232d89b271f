"""Mistakes put back into the product one at a time: which of them do histories find, and when?

`python -m tests.histories.planted --seconds 600` plays histories with each until one fails. A
mistake is a function's source with another text in it; what imported the function gets the other
one.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import textwrap
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from itertools import count
from types import FunctionType
from typing import Any

from tests.histories.play import play

__all__ = ["MISTAKES", "Mistake"]


@dataclass(frozen=True)
class Mistake:
    """A mistake in a function.

    Attributes:
        name: What is wrong.
        place: The function: its module, a colon, and its name there.
        right: What is written there.
        wrong: What is written there instead.
    """

    name: str
    place: str
    right: str
    wrong: str

    @contextmanager
    def made(self) -> Iterator[None]:
        """Let the product have it within the context."""
        module_name, _, path = self.place.partition(":")
        *owners, name = path.split(".")
        owner: Any = import_module(module_name)
        for each in owners:
            owner = getattr(owner, each)
        found = owner.__dict__[name]
        source = textwrap.dedent(inspect.getsource(found))
        assert source.count(self.right) == 1, f"{self.place} doesn't have {self.right!r} once"
        made: dict[str, Any] = {}
        whole = f"from __future__ import annotations\n{source.replace(self.right, self.wrong)}"
        # So that an error names the line.
        code = compile(whole, f"<{self.place}>", "exec")
        exec(code, import_module(module_name).__dict__, made)
        with _instead(found, made[name], owner if owners else None, name):
            yield


@contextmanager
def _instead(right: FunctionType, wrong: Any, owner: type | None, name: str) -> Iterator[None]:
    """Put a function in another's place, wherever it was imported to."""
    places: list[Any] = [owner] if owner else []
    if owner is None:
        modules = [m for n, m in list(sys.modules.items()) if n.startswith("kafka_drain.")]
        places = [module for module in modules if module.__dict__.get(name) is right]
    for place in places:
        setattr(place, name, wrong)
    try:
        yield
    finally:
        for place in places:
            setattr(place, name, right)


MISTAKES = (
    Mistake(
        "records that Kafka still has count as markers",
        "kafka_drain.proof.gap_probe:classify",
        "Gap(tp, r, GapReason.LOST)",
        "Gap(tp, r, GapReason.CONTROL)",
    ),
    Mistake(
        "a hole in the log counts as compacted",
        "kafka_drain.proof.gap_probe:classify",
        "GapReason.COMPACTED if is_compacted else GapReason.UNEXPLAINED",
        "GapReason.COMPACTED",
    ),
    Mistake(
        "what follows a rewritten log's last kept record is skipped",
        "kafka_drain.proof.log_tails:first_rewritten",
        "return _first_after(snapshot, tp, kept, until)",
        "return FirstRewritten(within.offset, is_exact=True)",
    ),
    Mistake(
        "a drain after a killed roll doesn't know the new incarnation",
        "kafka_drain.drain.preflight:preflight",
        "known = snapshot.topics_now",
        "known = snapshot.document.topics",
    ),
    Mistake(
        "a suspended drain doesn't see that its generation was closed",
        "kafka_drain.drain.drain:_confirm_open",
        "newest.number > generation.number",
        "newest.number > generation.number + 9",
    ),
    Mistake(
        "a suspended validation doesn't see that its generation has changed",
        "kafka_drain.proof.validation:_refuse_other_generation",
        "newest is None or newest.number != generation.number",
        "True:\n        return\n    elif newest is None",
    ),
    Mistake(
        "the next generation drains again what a repair holds",
        "kafka_drain.proof.past_windows:past_windows",
        "at = part.end",
        "pass",
    ),
    Mistake(
        "readers get superseded files",
        "kafka_drain.archive.fold:Fold.live",
        "if file.path not in self.replaced",
        "",
    ),
    Mistake(
        "a rewritten log is drained as if nothing had happened",
        "kafka_drain.drain.kafka_checks:refuse_rewritten",
        "if compared.rewritten:",
        "if compared.rewritten and not cluster:",
    ),
    Mistake(
        "expired offsets are skipped without a word",
        "kafka_drain.drain.kafka_checks:refuse_expired",
        "if not open_ranges:",
        "if True:",
    ),
    Mistake(
        "changed content is sealed",
        "kafka_drain.proof.content_checks:compare_content",
        "if held.fingerprint == read.fingerprint else Content.CHANGED",
        "",
    ),
    Mistake(
        "fewer records than Spark read are sealed",
        "kafka_drain.proof.content_checks:compare_content",
        "else Content.FEWER",
        "else Content.EQUAL",
    ),
    Mistake(
        "a roll leaves unsealed files out without being asked",
        "kafka_drain.windows.roll:_check_unsealed",
        "damaged = errors(state.findings)",
        "return",
    ),
    Mistake(
        "a backfill drains what the archive has",
        "kafka_drain.windows.backfill_plan:_left",
        "owned.get(tp, [])",
        "[]",
    ),
    Mistake(
        "windows bring erased records back",
        "kafka_drain.windows.window_jobs:_erased",
        "return {tp: merge(rs) for tp, rs in found.items() if rs}",
        "return {}",
    ),
    Mistake(
        "retention deletes ten days too much",
        "kafka_drain.maintenance.retention:plan_deletions",
        "timedelta(days=days)",
        "timedelta(days=days - 10)",
    ),
    Mistake(
        "progress is read before the fence",
        "kafka_drain.republish.sending.shard_sender:_transactions",
        "    while True:\n        refusals",
        "    early = read_progress(job, store)\n    while True:\n        refusals",
    ),
    Mistake(
        "a producer that is lost is replaced, and sending goes on from memory",
        "kafka_drain.republish.sending.shard_sender:_Source.forget",
        "self._records = None",
        "pass",
    ),
    Mistake(
        "progress isn't committed with the records",
        "kafka_drain.republish.sending.shard_sender:_send_transaction",
        "[entry(slot, following)]",
        "[entry(slot, progress)]",
    ),
    Mistake(
        "two leases at once",
        "kafka_drain.storage.lease:may_take_over",
        "if now >= expires_at:",
        "if True:",
    ),
    Mistake(
        "windows are sealed over each other",
        "kafka_drain.windows.window_jobs:_refuse_overlap",
        "if overlaps:",
        "if overlaps and not state:",
    ),
    Mistake(
        "a window replaces what another one has replaced",
        "kafka_drain.windows.window_jobs:_refuse_replaced",
        "if removed:",
        "if removed and not state:",
    ),
    Mistake(
        "a repair drains sealed records and several batches into one window",
        "kafka_drain.windows.repair_plan:plan_repair",
        "first = next(each for each in (of_sealed, *batches) if each)",
        "first = ranges",
    ),
    Mistake(
        "what a receipt leaves to a window that is gone counts as there",
        "kafka_drain.proof.validation:validate_archive",
        "in checked.left.uncovered().items() if all_read else ():",
        "in checked.left.uncovered().items() if not all_read else ():",
    ),
    Mistake(
        "what a later incarnation has counts as lost of an earlier one",
        "kafka_drain.proof.gap_explanation:explain_gaps",
        "end = ends.get((tp, identity.topics[tp.topic]), sys.maxsize)",
        "end = sys.maxsize",
    ),
    Mistake(
        "a repair takes up an erasure's window",
        "kafka_drain.archive.snapshot:Snapshot.continuing",
        "if window.kind is kind",
        "if kind",
    ),
    Mistake(
        "a rewritten log is taken up at its beginning if it isn't known where it differs",
        "kafka_drain.proof.log_tails:rewritten_logs",
        "min(begins.start, end[tp])",
        "min(begins.start, end[tp]) * begins.is_exact",
    ),
    Mistake(
        "a backfill is planned on a log that ends before the generation starts",
        "kafka_drain.windows.backfill_plan:plan_backfill",
        "refuse_truncated(archive.root, owned.sealed, high, {})",
        "pass",
    ),
    Mistake(
        "a suspended drain writes the document of a closed generation",
        "kafka_drain.archive.generation:Generation.write",
        "known.opened_at if known else now_text()",
        "now_text()",
    ),
    Mistake(
        "a log that ends before the cursor is drained",
        "kafka_drain.drain.kafka_checks:refuse_truncated",
        "\n    if truncated:",
        "\n    if truncated and not start:",
    ),
    Mistake(
        "the other files of a changed batch count as proven",
        "kafka_drain.proof.segment_contents:_Checks._affected",
        "if whole.fingerprint != read.fingerprint:",
        "if whole.records < 0:",
    ),
    Mistake(
        "a window is removed without a look at what Kafka has instead",
        "kafka_drain.windows.roll:plan_roll",
        "_refuse_other_records(snapshot, window, known, cluster, replaceable)",
        "pass",
    ),
    Mistake(
        "a window stays beside what is drained again",
        "kafka_drain.windows.roll:judge_window",
        "return WindowFate.GOES if is_there else WindowFate.TORN",
        "return WindowFate.STAYS",
    ),
    Mistake(
        "aborted records count as lost",
        "kafka_drain.proof.gap_probe:classify",
        "GapReason.ABORTED",
        "GapReason.LOST",
    ),
    Mistake(
        "expired records count as compacted",
        "kafka_drain.proof.gap_probe:classify",
        "GapReason.EXPIRED",
        "GapReason.COMPACTED",
    ),
    Mistake(
        "expired offsets of an interval are left out without a word",
        "kafka_drain.windows.backfill_plan:_refuse_expired",
        "found += [range_name(tp, part) for part in rest]",
        "pass",
    ),
    Mistake(
        "readers get unsealed files that windows stand for",
        "kafka_drain.archive.files:_new_files",
        "snapshot.fold.live(files_of_manifest(snapshot, generation, state.new))",
        "files_of_manifest(snapshot, generation, state.new)",
    ),
    Mistake(
        "the journal isn't told of a window that a roll removes",
        "kafka_drain.windows.roll:_void",
        'gone = {f"{window.name}/{name}": REMOVED for name in ("receipt.json", "plan.json")}',
        "gone = {}",
    ),
    Mistake(
        "a damaged file is replaced though Kafka doesn't have all of it any more",
        "kafka_drain.windows.repair_plan:_split",
        "more = {path: gaps for path, gaps in more.items() if gaps}",
        "more = {}",
    ),
    Mistake(
        "a lost file is replaced by whatever Kafka has now",
        "kafka_drain.proof.replacement:judge_lost",
        "return ReplacementMatch.EQUAL if same else ReplacementMatch.CHANGED",
        "return ReplacementMatch.EQUAL",
    ),
    Mistake(
        "windows of a topic's former life cover its offsets now",
        "kafka_drain.archive.fold:Fold.held_of",
        "return of_topic_ids(self.held, topic_ids)",
        "return {tp: ranges for (tp, _), ranges in self.held.items()}",
    ),
    Mistake(
        "a roll goes on where the log is shorter than what was drained",
        "kafka_drain.windows.roll:_refuse_short",
        "if short:",
        "if short and not cluster:",
    ),
    Mistake(
        "a reprocess takes files away that Kafka can't give back",
        "kafka_drain.windows.reprocess.run:plan_reprocess",
        "refuse_half_sent(plan)\n    refuse_expired(plan, cluster)",
        "refuse_half_sent(plan)",
    ),
    Mistake(
        "an erased record is counted, but kept",
        "kafka_drain.maintenance.erasure_plan:_erased",
        "ranges.setdefault(tp, []).extend(offsets)",
        "ranges.setdefault(tp, []).extend(offsets[:0])",
    ),
    Mistake(
        "a commit whose answer is lost counts as aborted",
        "kafka_drain.republish.sending.shard_sender:_transactions",
        "progress = read_progress(job, store)",
        "progress = source.__dict__.get('before') if source._records is None else None\n"
        "        progress = source.before = progress or read_progress(job, store)",
    ),
    Mistake(
        "an attempt that resumes starts a record early",
        "kafka_drain.republish.sending.shard_sender:_Source.go_to",
        "progress.offset if done else 0",
        "progress.offset - 1 if done else 0",
    ),
    Mistake(
        "a run opens though another one has withdrawn its claim",
        "kafka_drain.republish.planning.openings:Claim.confirm",
        'if self._decide("opened", self.run):',
        'if self._decide("opened", self.run) or self.run:',
    ),
    Mistake(
        "a mirror goes on beside its run that hasn't ended",
        "kafka_drain.republish.planning.follow:next_run",
        "if unfinished:",
        "if unfinished and not since:",
    ),
    Mistake(
        "a mirror sends what stands in place of a window with nothing new",
        "kafka_drain.republish.planning.follow:_new_files",
        "sent |= {file.path: file for file in window.receipt.files}",
        "sent |= {file.path: file for file in unsent}",
    ),
    Mistake(
        "what a log has in the place of a marker isn't looked for",
        "kafka_drain.proof.log_tails:compare_sealed",
        "return compared.with_records(_records_at_gaps(snapshot, cluster, behind, sealed, starts))",
        "return compared",
    ),
    Mistake(
        "an erasure leaves replaced files to a republish",
        "kafka_drain.maintenance.erase:_make_plan",
        "replaced | there & snapshot.fold.gone",
        "replaced",
    ),
    Mistake(
        "an archive whose readers are refused is ready",
        "kafka_drain.archive.readiness:judge_readiness",
        "if evidence.refused else []",
        "if evidence.pipeline is None else []",
    ),
    Mistake(
        "an archive is ready before what was drained since is sealed",
        "kafka_drain.archive.readiness:_doubts",
        "elif evidence.unsealed:",
        "elif evidence.pipeline is None:",
    ),
)


def first_failing(mistake: Mistake, seconds: float, steps: int) -> tuple[int, float, str]:
    """Play histories with a mistake until one fails.

    Returns:
        How many were played, in how many seconds, and why the last one failed; empty if none did.
    """
    began = time.monotonic()
    for number in count(1):
        with mistake.made():
            failure = play(number, steps=steps).failure
        taken = time.monotonic() - began
        if failure and play(number, steps=steps).failure:
            # It isn't the mistake's.
            failure = ""
        if failure or taken > seconds:
            return number, taken, failure
    raise AssertionError("numbers end")


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a command prints


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="tests.histories.planted", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, metavar="N", help="for each mistake")
    parser.add_argument("--steps", type=int, default=12, metavar="N")
    parser.add_argument("--mistakes", nargs="*", type=int, metavar="N")
    options = parser.parse_args(arguments)
    chosen = options.mistakes or range(len(MISTAKES))
    found = 0
    for at in chosen:
        number, taken, failure = first_failing(MISTAKES[at], options.seconds, options.steps)
        found += bool(failure)
        why = failure.splitlines()[0][:120] if failure else "NOT FOUND"
        say(f"{at} {MISTAKES[at].name}: {number} histories, {taken:.0f} s: {why}")
    say(f"{found} of {len(chosen)} found")
    return 0


if __name__ == "__main__":
    sys.exit(main())

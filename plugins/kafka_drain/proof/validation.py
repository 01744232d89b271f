"""Validation of an archive: its manifest, checkpoint, receipts, files and offsets are compared.

It reads, thinks and writes, in this order: `open_generation` reads, `prove` decides, and what is
proven complete is sealed here, one receipt per batch. All findings are collected first; whether
they are an error is for the caller to say.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from kafka_drain.archive.archive import Archive
from kafka_drain.archive.copies import keep_copies
from kafka_drain.archive.generation import Generation
from kafka_drain.archive.generation_summary import Summary
from kafka_drain.archive.incarnations import log_ends
from kafka_drain.archive.index import Query
from kafka_drain.archive.index_files import check_index, index_to_write, write_index
from kafka_drain.archive.journal.digests import generation_digest
from kafka_drain.archive.journal.files import note_sealed
from kafka_drain.archive.keys import damaged_keys
from kafka_drain.archive.notes import unreadable_notes
from kafka_drain.archive.receipt_chain import unreadable
from kafka_drain.archive.receipts import KafkaBounds, Receipt, ReceiptError, SealedTail
from kafka_drain.archive.schema_seals import SEALS, check_schemas
from kafka_drain.archive.segment_overlaps import Hole
from kafka_drain.archive.snapshot import Snapshot, SnapshotGeneration
from kafka_drain.archive.soundness import (
    SealedState,
    accepted_holes,
    check_sealed_state,
    note_of_holes,
    note_of_segment,
    unreadable_document,
)
from kafka_drain.archive.standing_findings import Look, Standing
from kafka_drain.archive.status import read_overview
from kafka_drain.archive.summary_files import check_summary
from kafka_drain.archive.topic_settings import noted_compaction
from kafka_drain.archive.watermarks import (
    observe,
    read_observations,
    stalled_findings,
    write_observations,
)
from kafka_drain.clock import Clock, utc_now
from kafka_drain.config.offset_ranges import NOTHING, Accepted
from kafka_drain.errors import ArchiveError, KafkaDrainError, LockedError
from kafka_drain.findings import OF_SEALED, OF_WITNESS, Finding, Reason, errors, without_echoes
from kafka_drain.gaps import Gap
from kafka_drain.kafka.cluster import KafkaCluster
from kafka_drain.kafka.identity import untold
from kafka_drain.offsets import OffsetRange, Ranges, TopicPartition, merge, without
from kafka_drain.output import Level, Line, say
from kafka_drain.proof.cluster_capture import Describe, Described, capture, check_descriptions
from kafka_drain.proof.committed_files import ReadFiles, read_committed_files
from kafka_drain.proof.content_checks import Reread, SegmentFiles
from kafka_drain.proof.copy_checks import check_copies
from kafka_drain.proof.gap_explanation import explain_gaps, gap_findings, same_topics
from kafka_drain.proof.log_tails import (
    archived_tails,
    compare_batches,
    compare_sealed,
    compare_with_logs,
    first_difference,
)
from kafka_drain.proof.open_generation import (
    CHARTED,
    Answers,
    OpenGeneration,
    ask_kafka_now,
    look_closer,
    orphan_findings,
    read_open,
)
from kafka_drain.proof.prove import Blockers, Evidence, Proof, prove
from kafka_drain.proof.report import Report
from kafka_drain.proof.rewritten_log import (
    NAMED,
    Comparison,
    count_before_cut,
    is_of_another_log,
    logs_cut_short,
    newest_records,
)
from kafka_drain.proof.sealed_files import Deep, check_all_sealed, lost_ranges
from kafka_drain.proof.sealing import Identity
from kafka_drain.proof.segment_proof import provable
from kafka_drain.proof.topic_ids import read_from, topic_ids_now
from kafka_drain.proof.window_checks import (
    HeldByWindows,
    check_accounts,
    check_unsealed,
    check_windows,
)
from kafka_drain.storage.lease import is_held
from kafka_drain.storage.object_retention import retain
from kafka_drain.storage.paths import exists, quoted, sync_files
from kafka_drain.storage.sealed_json import SealedName

if TYPE_CHECKING:
    from kafka_drain.evidence.signing import Signer

Scope = Literal["open", "all"]

#: Questions that a validation without Kafka leaves open.
_FILES_ALONE = (
    "what follows is what the files alone prove: nobody explains gaps, compares the newest records "
    "with Kafka's, or asks what is left to drain, and nothing is sealed"
)

_NOTHING: Ranges = MappingProxyType({})

#: Findings after which nothing is noted in the journal. A repair may fill a hole.
_NOT_NOTED = OF_SEALED | OF_WITNESS | {Reason.SEGMENT_HOLE}


@dataclass(frozen=True)
class _Validation:
    """State shared by all steps of one validation.

    Attributes:
        snapshot: The archive as it was when the validation began.
        sealed: The archive compared with its journal.
        windows: Contents of the sealed windows.
        look: Takes each receipt that is read, for the windows' accounts.
        cluster: The cluster to ask for the reasons for gaps; None to ask nobody.
        deep: The sealed files whose bytes are read.
        acknowledged: Expired and unexplained offsets that were accepted.
        run: Name of the run.
        now: When the validation began.
        clock: The time.
        read_many: Reads very many new files.
        described: The cluster's current description.
        schemas: The newest seal of schemas; None for none.
        report: Takes the figures and findings, for people.
        explained: Holes whose loss is explained.
        bounds: What Kafka holds of each partition that a drain would read.
    """

    archive: Archive
    snapshot: Snapshot
    sealed: SealedState
    windows: HeldByWindows
    look: Callable[[Receipt], None]
    cluster: KafkaCluster | None
    deep: Deep
    acknowledged: Ranges
    run: str
    now: datetime
    clock: Clock
    read_many: ReadFiles
    described: Described
    schemas: SealedName | None
    report: Report
    explained: list[Hole] = field(default_factory=list)
    bounds: dict[TopicPartition, KafkaBounds] = field(default_factory=dict)


def validate_archive(
    archive: Archive,
    cluster: KafkaCluster | None,
    *,
    scope: Scope = "all",
    deep: bool = False,
    acknowledged: Accepted = NOTHING,
    run: str | None = None,
    clock: Clock = utc_now,
    read_many: ReadFiles = read_committed_files,
    describe: Describe | None = None,
    keep_schemas: Callable[[], object] | None = None,
    writes: bool = True,
    signer: Signer | None = None,
) -> Report:
    """Validate an archive, and seal the batches that are proven complete.

    Args:
        cluster: The cluster to ask for the reasons for gaps; without it, each gap is a finding and
            nothing is sealed.
        scope: `all` checks every generation and receipt; `open` checks the generation that drains
            append to, and trusts the receipts of the closed ones. In an archive with an index, it
            looks at closed generations and sealed windows in turn, a few each time.
        deep: Also read all bytes of sealed files and compare them with their receipts, and check
            the copies of receipts and documents.
        acknowledged: Expired or unexplained offsets that are accepted.
        run: Name of the run, which tells a retry from another run; None for the time.
        clock: The time; replaced in tests.
        read_many: Reads the new files if there are very many of them.
        describe: Describes the cluster before anything is sealed; None to write no description.
        keep_schemas: Keeps the schemas of new records before they are sealed, so that their
            receipts name them; None to keep none. It raises nothing that should stop the seal.
        writes: Whether to seal and to take notes; otherwise nothing in the archive is changed.
        signer: Its witness is compared with the archive; None for none. Nothing is signed here.

    Raises:
        ConfigError: When the witness is in the archive.
        EvidenceError: When the witness can't be read.
        ArchiveError: When the folder isn't an archive, or belongs to another Kafka cluster.
        KafkaUnavailableError: When Kafka has to be asked and doesn't answer.
        AuthenticationError: When it refuses the login.
        LockedError: When the open generation was closed or opened again meanwhile.
    """
    began, now = time.monotonic(), clock()
    # Copies stand in for damaged documents, so that everything else is checked too.
    looked_at = Snapshot(archive.root, from_copies=True)
    standing, look = _look(
        looked_at,
        Look(
            scope == "all" or deep,
            deep,
            cluster is not None,
            signer is not None and signer.witness is not None,
            None,
        ),
    )
    whole, bytes_of = look.whole, Deep(deep, standing.subjects)
    asked = None if whole else Query()
    sealed = check_sealed_state(looked_at, query=asked)
    snapshot = sealed.snapshot
    if cluster is not None:
        cluster = cluster.counting(snapshot.topics_now)
    pipeline, generations = snapshot.document.pipeline, snapshot.generations
    scope = "all" if whole else "open"
    report = Report(str(archive.root), pipeline, scope=scope, deep=deep, validated_at=now)
    newest = [generation.name for generation in generations[-1:]]
    report.findings += [
        Finding(Reason.IDENTITY_UNTOLD, "archive.json", line)
        for line in untold(snapshot.document.cluster_id, snapshot.document.topics)
    ]
    report.findings += unreadable_notes(archive.root, newest)
    report.findings += [
        Finding(Reason.COPY_IGNORED, folder, "isn't a generation's or a window's name")
        for folder in snapshot.ignored
    ]
    if whole:
        report.findings += damaged_keys(archive.root)
    checked = check_windows(snapshot, deep=bytes_of)
    left_out = snapshot.skipped
    if left_out is not None:
        report.add_index(left_out.index)
    report.add_windows(checked, left_out.index if left_out is not None else None)
    is_asked = cluster is not None and writes
    if cluster is not None and writes and describe is not None:
        # A description fails for nothing, so it would only be waited for.
        cluster.cluster_id()
    described = capture(snapshot, describe if is_asked else None, clock)
    receipts = [*sealed.newest.values()]
    report.findings += check_descriptions(snapshot, described.moment, receipts, whole=whole)
    schemas = SEALS.newest(snapshot.root)
    named = {r.schemas.number: r.schemas.sha256 for r in receipts if r.schemas is not None}
    report.findings += check_schemas(snapshot.root, named, schemas, whole=whole)
    if keep_schemas is not None and writes:
        # After the check: removed schemas must be found even if the registry still has them.
        keep_schemas()
        schemas = SEALS.newest(snapshot.root)
    validation = _Validation(
        archive=archive,
        snapshot=snapshot,
        sealed=sealed,
        windows=checked.held,
        look=checked.look,
        cluster=cluster,
        deep=bytes_of,
        acknowledged=acknowledged,
        run=run or now.isoformat(),
        now=now,
        clock=clock,
        read_many=read_many,
        described=described,
        schemas=schemas,
        report=report,
    )
    _explain_windows(validation)
    _explain_holes(validation)
    report.findings += [*sealed.findings, *sealed.warnings]
    if signer is not None:
        # Not at the top: most validations sign nothing, and start without the library for it.
        from kafka_drain.evidence.signing import check_witness

        report.findings += check_witness(archive, signer, whole=whole)
    if whole:
        report.findings += check_unsealed(snapshot, sealed.journal.noted)
    if deep:
        report.findings += check_copies(archive.root, sealed.journal.noted, sealed.topic_ids)
    _validate_generations(validation, whole=whole, writes=writes)
    all_read = whole and not any(f.reason in OF_SEALED for f in report.findings)
    accepted = accepted_holes(sealed.journal.noted)
    # A roll removes windows, also such as stand for something sealed as well.
    for (tp, topic_id), ranges in checked.left.uncovered().items() if all_read else ():
        left = without(ranges, accepted.get((tp, topic_id), ()))
        _explain_left(validation, tp, topic_id, left)
    report.findings += check_accounts(checked.accounts, sealed.journal.noted, whole=all_read)
    report.findings += _nothing_drained(validation, whole=whole)
    may_write = cluster is not None and writes
    index = index_to_write(snapshot, whole=whole) if whole or may_write else None
    if whole and index is not None:
        report.findings += check_index(snapshot, index)
    is_noted = may_write and _note(validation)
    if is_noted and index is not None and index != snapshot.index:
        write_index(snapshot, index)
    report.findings = without_echoes(dict.fromkeys(report.findings))
    report.standing, report.look = standing, look
    report.seconds = time.monotonic() - began
    return report


def _look(snapshot: Snapshot, look: Look) -> tuple[Standing, Look]:
    """Return what earlier validations have left, and how closely to look because of it."""
    # Before anything that it names.
    snapshot.journal  # noqa: B018 - read now
    try:
        overview = read_overview(snapshot.root)
    except ArchiveError:
        standing = Standing(is_known=False)
    else:
        pipeline = snapshot.document.pipeline if overview is not None else ""
        standing = Standing.of(overview, pipeline)
    newest = snapshot.open_generation
    look = replace(look, generation=newest.number if newest is not None else None)
    if look.whole or not standing.needs_whole(look.generation):
        return standing, look
    why = "it isn't known what earlier validations found"
    if standing.findings:
        one = standing.findings[0]
        why = f"{one.reason} stands since {one.found_at}: {one.where}"
    say(f"validate: everything is looked at, because {why}")
    return standing, replace(look, whole=True)


def validate_files_alone(archive: Archive, error: KafkaDrainError, **how: Any) -> Report:
    """Validate an archive's files without Kafka, which didn't answer or let nobody in.

    Seals and notes nothing.

    Args:
        error: Why.
        how: Further arguments of `validate_archive`.
    """
    say(Line(f"validate: {error}", Level.WARNING))
    say(Line(f"validate: {_FILES_ALONE}", Level.WARNING))
    signer: Signer | None = how.pop("signer", None)
    return validate_archive(
        archive,
        None,
        writes=False,
        signer=signer.without_kafka() if signer is not None else None,
        **how,
    )


def _validate_generations(validation: _Validation, *, whole: bool, writes: bool) -> None:
    """Check the generations that aren't left out, oldest first."""
    snapshot, left_out = validation.snapshot, validation.snapshot.skipped
    known = left_out.index.generations if left_out is not None else ()
    previous = known[-1].sha256 if known else None
    for generation in snapshot.generations:
        if left_out is not None and generation.number <= left_out.index.last:
            # It has no receipts, or it would be in the index.
            validation.report.add_sealed(generation, None, 0)
        elif (damage := unreadable_document(generation)) is not None:
            validation.report.findings.append(damage)
            previous = _trust_closed(validation, generation, previous)
        elif generation is snapshot.open_generation:
            _validate_open(validation, generation, previous, whole=whole, writes=writes)
        elif whole:
            previous = _validate_closed(validation, generation, previous, writes=writes)
        else:
            previous = _trust_closed(validation, generation, previous)


def _validate_open(
    validation: _Validation,
    generation: SnapshotGeneration,
    previous: str | None,
    *,
    whole: bool,
    writes: bool,
) -> None:
    """Check the generation that drains append to, and seal its proven segments."""
    cluster, windows, sealed = validation.cluster, validation.windows, validation.sealed
    found = read_open(
        validation.snapshot,
        generation,
        previous,
        windows,
        whole=whole,
        deep=validation.deep,
        forgotten=sealed.journal.noted.forgotten,
        read_many=validation.read_many,
        look=validation.look,
    )
    answers = look_closer(
        found,
        windows,
        lambda *asked: _explain(validation, *asked, as_read=True),
        lambda *asked: _read_again(validation, *asked),
        is_draining=lambda: is_held(validation.archive.root, clock=validation.clock),
        is_uncommitted=validation.snapshot.document.isolation_level == "read_uncommitted",
    )
    bounds, ids_now = validation.bounds, dict[str, str]()
    if cluster is not None:
        held, ids_now = ask_kafka_now(cluster, validation.snapshot, found, answers)
        bounds.update(held)
        validation.report.made_again = _made_again(cluster, found, bounds)
    logs = _compare_logs(validation, found, answers, bounds)
    proof = prove(_evidence(validation, found, answers, bounds, ids_now, logs))
    _report_open(validation, found, answers, proof)
    _observe(validation, bounds, writes=writes)
    if writes:
        _write(validation, generation, proof)


def _made_again(
    cluster: KafkaCluster, found: OpenGeneration, bounds: Mapping[TopicPartition, KafkaBounds]
) -> list[str]:
    """Return the topics that Kafka has with another id: what waits in them isn't known."""
    others = {tp.topic for tp in found.state.cursor} - {tp.topic for tp in bounds}
    names = sorted(topic_ids_now(cluster, others)) if others else []
    if names:
        shown = ", ".join(names[:NAMED])
        more = f" and {len(names) - NAMED:,} more" if len(names) > NAMED else ""
        say(
            Line(
                f"validate: {shown}{more}: made again in Kafka since it was drained; what waits in "
                "it isn't counted, and drains are refused until `kafka-drain roll "
                f"{quoted(found.state.generation.root)}`",
                Level.WARNING,
            )
        )
    return names


def _nothing_drained(validation: _Validation, *, whole: bool) -> list[Finding]:
    """Return a finding if nothing was ever drained, though Kafka has records, or may have."""
    report, generation = validation.report, validation.snapshot.open_generation
    if generation is None or report.receipts or report.windows or report.segments or report.files:
        return []
    has_begun = exists(generation.folder / "checkpoint")
    waiting, held = None, validation.bounds
    # Without one, Kafka wasn't asked, or has none of the topics any more.
    if held and (starts := generation.starting_offsets).keys() <= held.keys():
        waiting = sum(max(0, b.last_stable - starts.get(tp, b.earliest)) for tp, b in held.items())
    # A drain that has ended meanwhile has left a commit.
    is_draining = is_held(validation.archive.root, clock=validation.clock) or bool(
        Generation(validation.archive.root, generation.number).log_names().commits
    )
    if not is_first_drain_missing(
        waiting, has_begun=has_begun, is_draining=is_draining, whole=whole
    ):
        return []
    seen = "what waits isn't known" if waiting is None else f"{waiting:,} offsets wait in Kafka"
    return [Finding(Reason.NOTHING_DRAINED, generation.name, f"no batch is committed; {seen}")]


def is_first_drain_missing(
    waiting: int | None, *, has_begun: bool, is_draining: bool, whole: bool
) -> bool:
    """Decide whether an archive into which nothing was drained lacks its first drain.

    Args:
        waiting: Number of offsets that Kafka has for it; None if it wasn't asked, or can't say.
        has_begun: Whether a query of Spark's has begun: it does so only if there is something.
        is_draining: Whether a drain is running, or has ended during the validation.
        whole: Whether everything is validated. Otherwise a drain has just succeeded, and what waits
            may have arrived since it found nothing.
    """
    if waiting == 0 or is_draining:
        return False
    return has_begun or whole


@dataclass(frozen=True)
class _Logs:
    """Kafka's logs, compared with the archive.

    Attributes:
        tails: The newest sealed record of each partition.
        sealed: Their comparison with Kafka's.
        unsealed: That of the newest records of batches that aren't sealed yet.
        of_unsealed: The partitions that have such records.
        sealable: How many of these batches were read before a log was cut between two of them;
            None for all.
    """

    tails: Mapping[TopicPartition, SealedTail] = field(default_factory=dict)
    sealed: Comparison = field(default_factory=Comparison)
    unsealed: Comparison = field(default_factory=Comparison)
    of_unsealed: Collection[TopicPartition] = ()
    sealable: int | None = None

    def may_be_others(self, gaps: Sequence[Gap]) -> bool:
        """Return whether unsealed records may be of another log, or their gaps explained by one."""
        return is_of_another_log(self.sealed, self.unsealed, self.of_unsealed, has_gaps=bool(gaps))


def _compare_logs(
    validation: _Validation,
    found: OpenGeneration,
    answers: Answers,
    bounds: Mapping[TopicPartition, KafkaBounds],
) -> _Logs:
    """Compare the newest records, sealed or not, with Kafka's; report differences."""
    if validation.cluster is None:
        return _Logs()
    tails = archived_tails(validation.snapshot, found.state.cursor)
    # What Spark read is sealed even if its log was rewritten since: it was there. Of files that may
    # not be what Spark read, another record says nothing about the log.
    proven = provable(answers.checked, answers.contents.agreeing)
    batches = [newest_records(each.files) for each in proven]
    unsealed = newest_records(file for each in proven for file in each.files)
    sealed = _compare(validation, validation.cluster, tails, bounds, compare_sealed)
    newest = _compare(
        validation,
        validation.cluster,
        unsealed,
        bounds,
        partial(compare_with_logs, unsealed=found.state.new),
        {tp: at for tp, at in found.state.cursor.items() if tp not in sealed.rewritten},
    )
    compared = compare_batches(
        validation.snapshot, validation.cluster, batches, newest, *_first_and_end(bounds)
    )
    sealable = count_before_cut(
        [
            {tp: tp in each.rewritten for tp in ends}
            for ends, each in zip(batches, compared, strict=True)
        ]
    )
    rewritten = {**newest.rewritten}
    for ends, each in reversed([*zip(batches, compared, strict=True)][:sealable]):
        earlier = {tp: why for tp, why in each.rewritten.items() if tp not in rewritten}
        _report_rewritten(validation, validation.cluster, ends, each, earlier, bounds)
        rewritten |= earlier
    return _Logs(
        tails,
        sealed,
        replace(newest, rewritten=rewritten),
        unsealed.keys(),
        sealable if sealable < len(batches) else None,
    )


def _compare(
    validation: _Validation,
    cluster: KafkaCluster,
    tails: Mapping[TopicPartition, SealedTail],
    bounds: Mapping[TopicPartition, KafkaBounds],
    compare: Callable[..., Comparison],
    read: Mapping[TopicPartition, int] = MappingProxyType({}),
) -> Comparison:
    first, end = _first_and_end(bounds)
    compared = compare(validation.snapshot, cluster, tails, first, end)
    rewritten = {**logs_cut_short(read, end), **compared.rewritten}
    _report_rewritten(validation, cluster, tails, compared, rewritten, bounds)
    for line in compared.not_compared():
        say(f"validate: {line}")
    return replace(compared, rewritten=rewritten)


def _report_rewritten(
    validation: _Validation,
    cluster: KafkaCluster,
    tails: Mapping[TopicPartition, SealedTail],
    compared: Comparison,
    rewritten: Mapping[TopicPartition, str],
    bounds: Mapping[TopicPartition, KafkaBounds],
) -> None:
    _, end = _first_and_end(bounds)
    for number, (tp, why) in enumerate(sorted(rewritten.items())):
        begins = ""
        if number < NAMED:
            at = first_difference(validation.snapshot, cluster, tp, tails.get(tp), compared, end)
            begins = f" {at}"
        finding = Finding(Reason.LOG_REWRITTEN, tp, f"rewritten{begins}: {why}")
        validation.report.findings.append(finding)


def _first_and_end(
    bounds: Mapping[TopicPartition, KafkaBounds],
) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    return (
        {tp: each.earliest for tp, each in bounds.items()},
        {tp: each.high_watermark for tp, each in bounds.items()},
    )


def _evidence(
    validation: _Validation,
    found: OpenGeneration,
    answers: Answers,
    bounds: dict[TopicPartition, KafkaBounds],
    ids_now: dict[str, str],
    logs: _Logs,
) -> Evidence:
    state, sealed = found.state, validation.sealed
    after_read = read_from(state.generation)
    return Evidence(
        generation=state.generation.number,
        name=state.generation.name,
        identity=found.identity,
        checked=answers.checked[: logs.sealable],
        agreeing=answers.contents.agreeing,
        fingerprints=answers.contents.fingerprints,
        read_up_to=after_read.last_batch if after_read else -1,
        ids_after_read=after_read.topics if after_read else {},
        ids_now=ids_now,
        claims=sealed.claims,
        bounds=bounds,
        before=state.receipt,
        previous=found.sealed.last_hash,
        journal=sealed.journal.newest,
        sealed_at=validation.now.isoformat(timespec="milliseconds"),
        cluster=_intact(validation.described.moment),
        described=validation.described.is_current,
        schemas=_intact(validation.schemas),
        tails=logs.tails,
        epochs=logs.unsealed.epochs,
        blockers=Blockers(
            kafka_not_asked=validation.cluster is None,
            state=bool(errors(state.findings)),
            broken_chain=not found.sealed.chain_is_whole,
            journal=bool(sealed.findings)
            or any(finding.reason in OF_WITNESS for finding in validation.report.findings),
            rewritten=logs.may_be_others(answers.gaps),
        ),
    )


def _intact(name: SealedName | None) -> SealedName | None:
    """Return a name unless its document is damaged, so that no receipt names it."""
    return name if name is not None and name.sha256 else None


def _report_open(
    validation: _Validation, found: OpenGeneration, answers: Answers, proof: Proof
) -> None:
    report, state, windows = validation.report, found.state, validation.windows
    report.cursor, last = state.cursor, validation.sealed.last
    ids = found.identity.topics
    if last is not None and all(ids.get(name, id_) == id_ for name, id_ in last.topics.items()):
        report.last = last
    report.newest = state.receipt
    report.findings += state.findings
    report.findings += [windows.excuse(finding) for finding in found.sealed.findings]
    report.findings += answers.findings
    report.findings += orphan_findings(found.orphans)
    # The cause first, then the offsets that are missing because of it.
    report.findings += answers.contents.findings
    report.findings += gap_findings(answers.gaps, answers.contents.ranges)
    report.findings += proof.findings
    report.add_sealed(state.generation, state.receipt, found.sealed.receipts)
    report.add_batches(found.newest[-CHARTED:])
    report.add_damaged(found.sealed.damaged)
    report.add_new(
        state.generation,
        found.identity.topics,
        found.examined.parts,
        answers.files,
        answers.gaps,
        found.listed,
    )
    if answers.contents.pending:
        first = answers.contents.pending[0].part
        say(
            f"validate: {first.name} and later batches aren't sealed yet: a drain holds the "
            "archive's lease, and records what Spark read only when it finishes"
        )


def _write(validation: _Validation, generation: SnapshotGeneration, proof: Proof) -> None:
    """Write the receipts of a proof, unless another validation is writing its own."""
    report = validation.report
    if not proof.receipts:
        return
    paths = [file.path for each in proof.receipts for file in each.value.files]
    sync_files(generation.root, paths)
    # Before the receipts: what these say can't be deleted, not even if this is killed in between.
    retention = retain(
        generation.root, paths, validation.snapshot.document.immutability, now=validation.clock()
    )
    # Last: no lease keeps others out while many files are synced and locked.
    _refuse_other_generation(generation)
    for sealed in proof.receipts:
        if not generation.write_receipt(sealed, retention):
            # The other validation's receipt counts, and only it can continue the chain.
            report.newest = generation.read_receipt(sealed.value.name)
            break
        report.sealed.append(sealed.value)
        report.newest = sealed.value
    report.receipts_written = len(report.sealed)


def _refuse_other_generation(generation: SnapshotGeneration) -> None:
    """Refuse to seal batches of a generation that was written again, or closed, meanwhile.

    Raises:
        LockedError: When it was; another validation sees what there is now.
    """
    newest = Archive(generation.root).snapshot().open_generation
    if newest is None or newest.number != generation.number:
        seen = "was closed"
    elif _digest(newest) != _digest(generation):
        # By a first drain: the journal mustn't name what its generation.json said before.
        seen = "was opened again"
    else:
        return
    raise LockedError(
        f"{generation.folder} {seen} while it was being validated; nothing was sealed. Validate "
        "again"
    )


def _digest(generation: SnapshotGeneration) -> str:
    return generation_digest(generation.document.content())


def _observe(
    validation: _Validation, bounds: dict[TopicPartition, KafkaBounds], *, writes: bool
) -> None:
    """Note Kafka's current offsets, and find partitions that don't move since an earlier run."""
    archive = validation.archive
    if validation.cluster is None:
        return
    observed = observe(
        read_observations(archive), bounds, validation.run, validation.now.timestamp()
    )
    if writes:
        write_observations(archive, observed)
    if validation.snapshot.document.isolation_level != "read_uncommitted":
        validation.report.findings += stalled_findings(observed)


def _note(validation: _Validation) -> bool:
    """Note sealed documents in the journal that it lacks.

    Returns:
        False if something is wrong with what is sealed, so that nothing may refer to it.
    """
    report, sealed, snapshot = validation.report, validation.sealed, validation.snapshot
    if any(finding.reason in _NOT_NOTED for finding in report.findings):
        return False
    noted = sealed.there.plus(note_of_holes(validation.explained))
    if report.sealed and snapshot.open_generation is not None:
        noted = noted.plus(note_of_segment(snapshot, snapshot.open_generation, report.sealed[-1]))
    note_sealed(validation.archive.root, noted, sealed.journal)
    # The originals are intact, or there would have been another finding.
    damaged = [str(f.subject) for f in report.findings if f.reason == Reason.COPY_DAMAGED]
    keep_copies(validation.archive.root, (path.removeprefix("copies/") for path in damaged))
    return True


def _trust_closed(
    validation: _Validation, generation: SnapshotGeneration, previous: str | None
) -> str | None:
    """Take a closed generation's figures from its newest receipt, and return the last hash."""
    report, names = validation.report, generation.receipt_names()
    known = validation.sealed.newest.get(generation.name)
    try:
        receipt = known or (generation.read_receipt(names[-1]) if names else None)
    except ReceiptError as error:
        report.findings.append(unreadable(error, generation.receipt_where(names[-1])))
        return None
    report.add_sealed(generation, receipt, len(names))
    return receipt.sha256 if receipt else previous


def _validate_closed(
    validation: _Validation, generation: SnapshotGeneration, previous: str | None, *, writes: bool
) -> str | None:
    """Check the segments that a closed generation's receipts seal; its manifest no longer counts.

    Returns:
        The hash of its newest receipt.
    """
    report = validation.report
    sealed = check_all_sealed(
        generation,
        generation.list_data_files(),
        previous,
        deep=validation.deep,
        superseded=validation.windows.superseded,
        forgotten=validation.sealed.journal.noted.forgotten,
        drained_again=validation.windows.drained_again,
        replaced=validation.windows.replaced,
        look=validation.look,
    )
    newest = None if sealed.has_corrupt_receipt else generation.last_receipt()
    if newest is not None and sealed.chain_is_whole:
        made = Summary(generation.number, tuple(sealed.rows))
        report.findings += check_summary(generation, made, writes=writes)
    report.add_sealed(generation, newest, sealed.receipts)
    report.add_damaged(sealed.damaged)
    report.findings += [validation.windows.excuse(finding) for finding in sealed.findings]
    document = validation.snapshot.document
    identity = Identity(
        document.pipeline, document.cluster_id, validation.snapshot.topic_ids(generation)
    )
    lost = lost_ranges(generation.root, sealed.damaged, generation.document.format)
    gaps = _explain(validation, identity, lost, lost)
    report.findings += gap_findings(gaps)
    report.add_new(generation, identity.topics, [], [], gaps, (0, 0))
    return sealed.last_hash


def _explain_windows(validation: _Validation) -> None:
    """Name the offsets of damaged files of windows, and whether Kafka still has them."""
    for window, lost in validation.windows.damaged:
        _add_gaps(validation, window.receipt.topics, lost, lost)


def _explain_holes(validation: _Validation) -> None:
    """Name Kafka's records between two generations; an accepted loss is noted."""
    sealed = validation.sealed
    for hole in sealed.holes:
        gaps = _add_gaps(validation, {hole.tp.topic: hole.topic_id}, {hole.tp: [hole.range]})
        if all(gap.harmless for gap in gaps):
            validation.explained.append(hole)
            sealed.findings.remove(hole.finding())


def _explain_left(
    validation: _Validation, tp: TopicPartition, topic_id: str, left: Sequence[OffsetRange]
) -> None:
    """Report why offsets that were left to a window are in none; what is accepted stays so."""
    for span in left:
        gaps = _add_gaps(validation, {tp.topic: topic_id}, {tp: [span]})
        if any(gap.acknowledged for gap in gaps) and all(gap.harmless for gap in gaps):
            validation.explained.append(Hole("", "", topic_id, tp, span))


def _add_gaps(
    validation: _Validation,
    topics: Mapping[str, str],
    missing: Ranges,
    were_read: Ranges = _NOTHING,
) -> list[Gap]:
    """Report why offsets are in no file, of topics with these ids."""
    document = validation.snapshot.document
    identity = Identity(document.pipeline, document.cluster_id, topics)
    gaps = _explain(validation, identity, missing, were_read)
    validation.report.findings += gap_findings(gaps)
    validation.report.add_gaps(gaps, topics)
    return gaps


def _explain(
    validation: _Validation,
    identity: Identity,
    missing: Ranges,
    were_read: Ranges = _NOTHING,
    complete: Ranges = _NOTHING,
    *,
    as_read: bool = False,
) -> list[Gap]:
    """Say why offsets are missing: today, or for offsets that drains have read, when they did."""
    noted = noted_compaction(validation.archive.root, identity.topics)
    if not any(missing.values()):
        # Of a generation that is whole, there is nothing to ask each window for.
        return []
    accepted = validation.windows.accepted(identity)
    for tp, ranges in validation.acknowledged.items():
        accepted[tp] = merge([*accepted.get(tp, []), *ranges])
    return explain_gaps(
        missing,
        identity=identity,
        cluster=validation.cluster,
        windows=validation.windows.ranges(identity),
        acknowledged=accepted,
        were_read=were_read,
        erased=validation.windows.erased(identity),
        compacted={name: was for name, was in noted.was.items() if was or as_read},
        uncompacted=noted.begins if as_read else {},
        compacted_until=noted.ends,
        ends=log_ends(validation.snapshot, validation.snapshot.topics_now, missing),
        isolation_level=validation.snapshot.document.isolation_level,
        complete=complete,
    )


def _read_again(
    validation: _Validation, identity: Identity, segment: SegmentFiles
) -> Reread | None:
    cluster = validation.cluster
    if cluster is None:
        return None
    # Not at the top: few validations need pyarrow, and importing it takes longer than they do.
    from kafka_drain.proof.rereading import compare_with_kafka

    return compare_with_kafka(
        segment,
        cluster,
        lambda names: same_topics(identity, names, cluster),
        validation.snapshot.document.isolation_level,
    )

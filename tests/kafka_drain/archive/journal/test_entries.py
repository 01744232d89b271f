"""The journal: every verdict, what folding it gives, and what of it can't go unseen."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_drain.archive.journal.entries import (
    REMOVED,
    UNREADABLE,
    WHOLE_EVERY,
    Entry,
    Head,
    Journal,
    Noted,
    Tip,
    Verdict,
    first_needed,
    fold_journal,
    given_up,
    judge_document,
    judge_head,
    judge_known,
    judge_tip,
    next_whole,
    parse_entry,
)
from kafka_drain.archive.journal.identity import ACCEPTED
from kafka_drain.storage.sealed_json import seal
from tests.tables import each_of

SOUND, NEW, MISSING, CHANGED = Verdict.SOUND, Verdict.NEW, Verdict.MISSING, Verdict.CHANGED

#: Noted, seen: verdict. All there are.
DOCUMENTS = {
    (None, None): SOUND,
    (None, "a"): NEW,
    (None, UNREADABLE): Verdict.UNREADABLE,
    ("a", None): MISSING,
    ("a", "a"): SOUND,
    ("a", "b"): CHANGED,
    ("a", UNREADABLE): Verdict.UNREADABLE,
    (REMOVED, None): SOUND,
    (REMOVED, "a"): SOUND,
    (REMOVED, UNREADABLE): SOUND,
}


@pytest.mark.parametrize(("noted", "seen"), DOCUMENTS)
def test_judge_document(noted: str | None, seen: str | None) -> None:
    """What is noted has to be there as it was; what isn't may be new."""
    assert judge_document(noted, seen) == DOCUMENTS[noted, seen]


NAMES = ["0.json", "1.json", "2.json", "3.json"]


@each_of(
    "there, seen", list(product(product([False, True], repeat=4), [None, "a", "b", UNREADABLE]))
)
@each_of("noted", [None, Tip("2.json", 3, "a")])
def test_judge_tip(noted: Tip | None, there: tuple[bool, ...], seen: str | None) -> None:
    """Of a generation, every receipt up to the one that was noted has to be there, and that one.

    Every combination of receipts that are there, and of what the noted one says.
    """
    names = [name for name, is_there in zip(NAMES, there, strict=True) if is_there]
    if not there[2]:
        seen = None
    verdict = judge_tip(noted, names, seen)

    if noted is None:
        assert verdict == (NEW if names else SOUND)
    elif not all(there[:3]) or seen is None:
        assert verdict == MISSING
    elif seen == UNREADABLE:
        assert verdict == Verdict.UNREADABLE
    elif seen == "b":
        assert verdict == CHANGED
    else:
        assert verdict == (NEW if there[3] else SOUND)


def test_judge_tip_more_than_noted() -> None:
    """A receipt that was put between those that were sealed."""
    assert judge_tip(Tip("2.json", 2, "a"), NAMES[:3], "a") == CHANGED


#: Head's entries and hash, newest entry: what is told.
HEADS = {
    (None, 0): "",
    # Killed between the first entry and the head.
    (None, 1): "",
    (None, 2): "journal.json, which records its end, is missing",
    ((1, "h1"), 0): "ends at entry 0, but journal.json says 1",
    ((1, "h1"), 1): "",
    ((1, "h1"), 2): "",
    ((1, "h2"), 2): "entry 1 isn't the one that journal.json names",
    ((2, "h2"), 1): "ends at entry 1, but journal.json says 2",
    ((2, "h2"), 2): "",
    ((2, "h1"), 2): "entry 2 isn't the one that journal.json names",
    ((1, "h1"), 3): "journal.json says 1 entries, but there are 3: it can lag by one, so it is "
    "an older one",
    # So old that its entry isn't among those that are read.
    ((9, "h9"), 20): "journal.json says 9 entries, but there are 20: it can lag by one, so it is "
    "an older one",
}


@pytest.mark.parametrize(("head", "newest"), HEADS)
def test_judge_head(head: tuple[int, str] | None, newest: int) -> None:
    """Whatever names an entry that isn't there shows that the journal was cut."""
    hashes = {n: f"h{n}" for n in range(max(1, first_needed(newest)) if newest else 1, newest + 1)}
    hashes = {n: h for n, h in hashes.items() if n >= newest - 3}

    assert judge_head(Head(*head) if head else None, newest, hashes) == HEADS[head, newest]


TIP = Tip("2.json", 3, "a")


@pytest.mark.parametrize(
    ("left", "is_lost"),
    [
        (TIP, False),
        (None, True),
        (Tip("1.json", 2, "b"), True),
        # Sealed since: its chain vouches for the noted one.
        (Tip("3.json", 4, "c"), False),
        (Tip("2.json", 3, "b"), True),
        (Tip("2.json", 2, "a"), True),
    ],
    ids=["there", "missing", "older", "newer", "changed", "fewer"],
)
def test_given_up_receipts(left: Tip | None, is_lost: bool) -> None:
    """A generation whose receipts aren't all there gives up the newest that was noted."""
    there = Noted({"g/1": left} if left else {})

    assert given_up(Noted({"g/1": TIP}), there) == ({"g/1/receipts/2.json": "a"} if is_lost else {})


@pytest.mark.parametrize("noted", ["a", REMOVED, ACCEPTED])
@pytest.mark.parametrize("left", [None, "a", "b", ACCEPTED])
def test_given_up_documents(noted: str, left: str | None) -> None:
    """A document that is missing or another is given up, unless there never was a file."""
    there = Noted(documents={"d": left} if left else {})

    is_lost = noted == "a" and left != "a"
    assert given_up(Noted(documents={"d": noted}), there) == ({"d": "a"} if is_lost else {})


def test_given_up_each() -> None:
    """Each is judged by its own path."""
    tips = {"g/1": TIP, "g/2": replace(TIP, sha256="b")}
    noted = Noted(tips, {"d": "a", "e": "b"})

    assert given_up(noted, Noted({"g/1": TIP}, {"d": "a"})) == {
        "g/2/receipts/2.json": "b",
        "e": "b",
    }
    assert given_up(Noted(), noted) == {}


def test_judge_known() -> None:
    """A receipt that was sealed after more entries than there are shows that some are gone."""
    assert judge_known(0, 0) == judge_known(2, 0) == judge_known(2, 2) == ""
    assert judge_known(2, 3) == "ends at entry 2, but a receipt was sealed after entry 3"


def test_whole_entries() -> None:
    """Each sixteenth entry holds everything, and a reader starts at the newest of these."""
    assert [first_needed(n) for n in (1, 2, 16, 17, 32, 33)] == [1, 1, 1, 17, 17, 33]
    assert [next_whole(n) for n in (0, 1, 16, 17)] == [1, 17, 17, 33]


A = "a" * 64
HASHES = st.sampled_from([A, "b", REMOVED])
NOTED = st.builds(
    Noted,
    st.dictionaries(
        st.sampled_from(["g1", "g2"]),
        st.builds(
            lambda n: Tip(f"{n:012d}.json", n + 1, f"t{n}"), st.integers(min_value=0, max_value=9)
        ),
    ),
    st.dictionaries(st.sampled_from(["w1", "w2", "w3"]), st.sampled_from([A, REMOVED]), max_size=3),
    st.dictionaries(st.sampled_from(["w4", "w5"]), st.just(A), max_size=2),
)


@given(NOTED, NOTED, NOTED)
def test_noted_in_any_order(a: Noted, b: Noted, c: Noted) -> None:
    """Of two runs that note something in one moment, it doesn't matter which one goes first."""
    assert a.plus(b) == b.plus(a)
    assert a.plus(b).plus(c) == a.plus(b.plus(c))
    assert not a.news(a)
    assert a.plus(a.news(b)) == a.plus(b)


def journal_of(noted: list[Noted]) -> list[bytes]:
    """Write a journal, an entry for each."""
    contents, so_far, previous = [], Noted(), None
    for number, more in enumerate(noted, start=1):
        so_far = so_far.plus(more)
        is_whole = number == first_needed(number)
        entry = Entry.of(number, previous, is_whole, so_far if is_whole else more, "now")
        contents.append(entry.to_bytes())
        previous = parse_entry(contents[-1]).sha256
    return contents


@given(st.lists(NOTED, min_size=1, max_size=40), st.data())
@settings(max_examples=150)
def test_fold_journal(noted: list[Noted], data: st.DataObject) -> None:
    """The newest entries give all that was ever noted, and none of them is missed or changed."""
    contents = journal_of(noted)
    newest = len(contents)
    needed: list[tuple[int, bytes | None]] = [
        (n, contents[n - 1]) for n in range(first_needed(newest), newest + 1)
    ]
    head = Head(newest, parse_entry(contents[-1]).sha256)
    whole = Noted()
    for more in noted:
        whole = whole.plus(more)

    journal = fold_journal(needed, head)
    assert (journal.problems, journal.newest, journal.noted) == ((), newest, whole)
    assert newest - first_needed(newest) < WHOLE_EVERY

    at = data.draw(st.integers(min_value=0, max_value=len(needed) - 1))
    number, content = needed[at]
    assert content is not None
    cut = data.draw(st.integers(min_value=0, max_value=len(content) - 1))
    changed = content[:cut] + bytes([content[cut] ^ 1]) + content[cut + 1 :]
    for damaged in (None, changed, content[:cut]):
        broken = [*needed[:at], (number, damaged), *needed[at + 1 :]]
        assert fold_journal(broken, head).problems
    assert fold_journal(needed[:at], head).problems


def test_fold_journal_forged() -> None:
    """An entry that is sealed and not the successor, or holds another number, is found."""
    one, two = Noted(documents={"w1": A}), Noted(documents={"w2": A})
    contents = journal_of([one, two, one])
    other = Entry.of(2, "0" * 64, False, two, "now").to_bytes()
    head = Head(3, parse_entry(contents[2]).sha256)

    for forged in (other, contents[2], Entry.of(2, None, True, two, "now").to_bytes()):
        journal = fold_journal([(1, contents[0]), (2, forged), (3, contents[2])], head)
        assert journal.problems
    for content in (b'{"a":1}\n', b"", Entry.of(1, None, True, one, "now").to_bytes()[:-9]):
        with pytest.raises(ValueError, match="SHA-256"):
            parse_entry(content)


def test_entry_round_trip() -> None:
    """What an entry says is read back; one of before things could be given up as well."""
    noted = Noted({"g1": Tip("1.json", 2, "t")}, {"w1": A, "w2": REMOVED}, {"g1/0.json": "b"})
    entry = Entry.of(3, "p", False, noted, "2013-01-01")
    content = entry.to_bytes()

    parsed = parse_entry(content)
    assert parsed == entry
    assert parsed.sha256 == content[-67:-3].decode()
    assert (parsed.name, parsed.at) == ("000000000003.json", "2013-01-01")

    document = {"format_version": 1, "entry": 1, "previous": None, "whole": True, "at": "now"}
    older = seal(document | {"receipts": {}, "documents": {"w1": A}})
    assert parse_entry(older).noted == Noted(documents={"w1": A})
    with pytest.raises(ValueError, match="format version 2"):
        parse_entry(seal(document | {"format_version": 2}))
    with pytest.raises(ValueError, match=r"not an entry known to this release .*receipts"):
        parse_entry(seal(document))


@pytest.mark.parametrize("path", ["w1", "settings/a", "holes/id/t:0:1-2"])
@pytest.mark.parametrize("value", ["accepte0", "", "a" * 63, "A" * 64, "a" * 64 + "\n"])
def test_parse_entry_other_value(path: str, value: str) -> None:
    """No hash contradicts a value that stands for no file, such as that of settings."""
    noted = Noted(documents={path: value})
    with pytest.raises(ValueError, match="not an entry known to this release"):
        parse_entry(Entry.of(1, None, True, noted, "now").to_bytes())


def test_noted_plus() -> None:
    """The later tip, the first hash, a removal above all; whatever was given up stays so."""
    early, late = Tip("1.json", 2, "1"), Tip("2.json", 3, "2")
    one = Noted({"g1": late, "g2": early}, {"w1": "a", "w2": REMOVED}, {"x": "a"})
    two = Noted({"g1": early, "g2": late}, {"w1": REMOVED, "w2": "a", "w3": "a"}, {"y": "b"})

    tips, documents = {"g1": late, "g2": late}, {"w1": REMOVED, "w2": REMOVED, "w3": "a"}
    assert one.plus(two) == Noted(tips, documents, {"x": "a", "y": "b"})
    assert one.news(two) == Noted({"g2": late}, {"w1": REMOVED, "w3": "a"}, {"y": "b"})
    assert not Noted()
    assert all([Noted({"g1": late}), Noted(documents={"w1": "a"}), Noted(forgotten={"x": "a"})])


def test_fold_journal_problems() -> None:
    """Each problem is told once, with its file, and what can be told is."""
    noted = [Noted(documents={f"w{n}": A}) for n in range(5)]
    good = dict(enumerate(journal_of(noted), start=1))
    head = Head(5, parse_entry(good[5]).sha256)
    second = parse_entry(good[2])
    other = Entry.of(2, "0" * 64, False, noted[1], "now").to_bytes()
    whole = Entry.of(2, second.previous, True, noted[1], "now").to_bytes()
    damaged = "is damaged: 9 bytes that don't end in their own SHA-256"
    told = {
        None: ["is missing, but later entries exist"],
        b"{garbage}": [damaged],
        good[3]: ["holds entry 3", "doesn't follow the previous entry"],
        other: ["doesn't follow the previous entry"] * 2,
        whole: ["holds entry 2", "doesn't follow the previous entry"],
    }
    for content, texts in told.items():
        journal = fold_journal(list((good | {2: content}).items()), head)  # type: ignore[operator]
        assert [text for _, text in journal.problems] == texts
        assert journal.problems[0][0] == "journal/000000000002.json"
        assert (journal.newest, journal.sha256, journal.head) == (5, head.sha256, head)
        assert {"w0", "w2", "w3", "w4"} <= journal.noted.documents.keys()

    cut = fold_journal(list(good.items())[:4], head)
    assert cut.problems == (("journal", "ends at entry 4, but journal.json says 5"),)
    assert fold_journal([], None) == Journal()
    last = fold_journal([(1, good[1]), (2, None)], None)
    assert (last.newest, last.sha256) == (2, None)


def test_noted_windows() -> None:
    """A window is named by its receipt or plan, even by removed ones; nothing else does."""
    paths = ["windows/a/receipt.json", "windows/b/plan.json", "windows/b/receipt.json"]
    others = ["archive.json", "generations/0001/generation.json", "holes/windows/t"]
    noted = Noted(documents=dict.fromkeys(paths, REMOVED) | dict.fromkeys(others, "sha"))

    assert noted.windows == {"a", "b"}
    assert Noted().windows == set()

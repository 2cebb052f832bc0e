"""HoVer: a real keyword index over a mini-encyclopedia, one follow-up query, and feedback that lists pages."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.base.errors import TaskError
from fastslow.tasks.base import Ask, Example, Feedback, Split
from fastslow.tasks.families import hover
from fastslow.tasks.families.hover import Hover, HoverOptions, Passages, same_title
from fastslow.tasks.scripted import scripted_rollout

pytest.importorskip("bm25s")
pytestmark = pytest.mark.usefixtures("cache")
ENCYCLOPEDIA = Path(__file__).parents[1] / "encyclopedia.jsonl"
REAL_CLAIMS = Path(__file__).parents[4] / "shared" / "data" / "hover_dev.json"
SPLITS: tuple[Split, ...] = ("train", "validation", "test")

CLAIM = "The opera The Salt Clock was written by a pupil of the violist who led the Brindle Quartet."
PAGES = ["The Salt Clock", "Ilse Marend", "Joren Pell"]


def claim(text: str = CLAIM, pages: list[str] = PAGES, **more: Any) -> dict[str, Any]:
    facts = [[page, 0] for page in pages] + [[pages[0], 1]]
    return {"uid": text, "claim": text, "supporting_facts": facts, "label": "SUPPORTED", "num_hops": len(pages), **more}


def build(folder: Path, rows: list[dict[str, Any]], **options: Any) -> Hover:
    path = folder / "claims.json"
    path.write_text(json.dumps(rows))
    given = {"passages_path": str(ENCYCLOPEDIA), "holdout": 0, "results": 2, "hops": (2, 3, 4), **options}
    return Hover(HoverOptions(path=str(path), **given))


def play(task: Hover, *answers: str) -> tuple[list[Ask], Feedback]:
    played = scripted_rollout(task, task.examples("train")[0], answers)
    assert played.feedback is not None, "the task asks for more"
    return list(played.asks), played.feedback


def query(text: str) -> str:
    return f"I need more.\n```\n{text}\n```"


@pytest.fixture
def task(tmp_path: Path) -> Hover:
    return build(tmp_path, [claim()])


def test_the_first_search_alone_does_not_find_everything(task: Hover) -> None:
    (ask,), feedback = play(task, query("zebra crossing Tamsin"))
    assert ask.component == "system"
    (message,) = ask.messages
    assert message["content"].startswith(f"Claim: {CLAIM}\n")
    assert "- The Salt Clock: The Salt Clock is an opera in three acts by Ilse Marend\n" in message["content"]
    assert feedback.score == 0


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        (query("Ilse Marend studied with Joren Pell"), 1),
        (query("ilse marend joren PELL"), 1),
        ("```Ilse Marend Joren Pell```", 1),
        (query("Lantern Theatre") + query("Ilse Marend\nJoren Pell"), 1),
        (query("Ilse Marend Joren Pell") + query("Lantern Theatre"), 0),
        ("Ilse Marend Joren Pell", 0),
        ("```\nIlse Marend Joren Pell", 0),
        (query(""), 0),
        (query("the of and"), 0),
        (query("xyzzy"), 0),
        (query("Dunmere shipyards"), 0),
        (query(CLAIM), 0),
        (query("Pell, Joren; Marend, Ilse"), 1),
        (query('"Ilse Marend" AND "Joren Pell"'), 1),
        (query("Marend\tPell"), 1),
        ("```text\nIlse Marend Joren Pell\n```", 1),
        ("```\nIlse Marend Joren Pell\n``` That finds both.", 1),
        ("````Ilse Marend Joren Pell````", 1),
        ("`Ilse Marend Joren Pell`", 0),
        ("~~~\nIlse Marend Joren Pell\n~~~", 0),
        ("<query>Ilse Marend Joren Pell</query>", 0),
        (query("Ilse Marend Joren Pell") + "\n```", 0),
        (query("Ilse Marend"), 1),  # the first search has found the other two
        (query("composer of operas and songs"), 1),
        (query("Joren Pell led the Brindle Quartet"), 0),
        (query("IlseMarend"), 0),
        (query("Ilsa Marent"), 0),
        (query("???"), 0),
        ("", 0),
    ],
)
def test_the_reward_is_for_finding_all_pages(task: Hover, answer: str, score: float) -> None:
    assert play(task, answer)[1].score == score


@pytest.mark.parametrize(
    ("words", "score"),
    [
        ("Odo Farrant Sunniva Lott", 1),
        ("sunniva lott, odo farrant", 1),
        ("engineer of bridges and cranes; architect known for domes of glass", 1),
        ("Odo Farrant", 0),
        ("Sunniva Lott", 0),
        ("Odo Sunniva", 1),
        ("Farrand Lot", 0),
        ("architect", 0),
        ("the engineer", 0),
        ("Heron Bridge", 0),
        ("The Salt Clock Lantern Theatre", 0),
    ],
)
def test_one_query_must_find_every_missing_page(tmp_path: Path, words: str, score: float) -> None:
    task = build(tmp_path, [claim(pages=["The Salt Clock", "Odo Farrant", "Sunniva Lott"])])
    assert play(task, query(words))[1].score == score


@pytest.mark.parametrize(
    ("answer", "fact", "advice"),
    [
        ("Ilse Marend", "There is no fenced block with a query for the claim 'The opera", [hover.WRITE_A_BLOCK]),
        ("```\nIlse", "is never closed", [hover.CLOSE_THE_BLOCK]),
        (query(" "), "is empty", [hover.WRITE_A_BLOCK]),
        (query("xyzzy"), "The query 'xyzzy' finds no page.", [hover.USE_WORDS]),
        (query(CLAIM), "Brindle Quartet.' found nothing new.", [hover.NOT_THE_CLAIM, hover.NAME_WHAT_IS_MISSING]),
        (
            query("Dunmere"),
            "The query 'Dunmere' found only 'Dunmere",
            [hover.FOLLOW_THE_LINK, hover.NAME_WHAT_IS_MISSING],
        ),
        (query("Dunmere"), "Still missing: 'Ilse Marend'.", [hover.FOLLOW_THE_LINK, hover.NAME_WHAT_IS_MISSING]),
    ],
)
def test_feedback_lists_what_is_found_and_what_is_missing(
    tmp_path: Path, answer: str, fact: str, advice: list[str]
) -> None:
    task = build(tmp_path, [claim(pages=["The Salt Clock", "Ilse Marend"])])
    _, feedback = play(task, answer)
    lines = feedback.text.split("\n")
    assert feedback.score == 0
    assert lines[:2] == [f"The claim is '{CLAIM}'.", "The first search found 'The Salt Clock'."]
    assert any(line.startswith(fact) or fact in line for line in lines)
    assert lines[-len(advice) :] == advice


def test_several_missing_pages_need_one_query_for_all(tmp_path: Path) -> None:
    pages = ["The Salt Clock", "Odo Farrant", "Sunniva Lott", "Petra Quill"]
    _, feedback = play(build(tmp_path, [claim(pages=pages)]), query("Petra Quill"))
    assert (
        "The query 'Petra Quill' found 'Petra Quill'.\nStill missing: 'Odo Farrant', 'Sunniva Lott'." in feedback.text
    )
    assert feedback.text.endswith(f"{hover.FOLLOW_THE_LINK}\n{hover.EVERY_MISSING_PAGE}")


def test_missing_pages_are_counted_rather_than_named_when_asked_to(tmp_path: Path) -> None:
    task = build(tmp_path, [claim()], feedback="advice")
    _, feedback = play(task, query("Dunmere"))
    assert "Still missing: 1 of 3 pages." in feedback.text
    _, feedback = play(task, query("Lantern Theatre Farrant"))
    assert feedback.score == 0
    assert feedback.text.split("\n")[-1] == hover.NAME_WHAT_IS_MISSING


def test_the_titles_of_the_missing_pages_always_score_one(tmp_path: Path) -> None:
    """The nearest there is to a reference answer, for every three pages in a row."""
    titles = [json.loads(line)["title"] for line in ENCYCLOPEDIA.read_text().splitlines()]
    rows = [claim(f"It is near {titles[n]} {n}.", titles[n : n + 3]) for n in range(len(titles) - 2)]
    task = build(tmp_path, rows, results=10)
    for example in task.examples("train"):
        feedback = scripted_rollout(task, example, [query(" ".join(example.data["pages"]))]).feedback
        assert feedback is not None
        assert feedback.score == 1


WORDS = ("Dunmere", "Lantern", "Rovers", "moss", "xyzzy", "the", "opera", "Keld", "Storr")


def test_advice_never_names_a_missing_page(tmp_path: Path) -> None:
    hidden = build(tmp_path, [claim()], feedback="advice")

    @settings(max_examples=100, deadline=None)
    @given(words=st.lists(st.sampled_from(WORDS), max_size=4), form=st.booleans())
    def check(words: list[str], form: bool) -> None:
        _, feedback = play(hidden, query(" ".join(words)) if form else " ".join(words))
        assert feedback.score == 0
        assert not {"Ilse", "Marend"} & set(re.findall(r"\w+", feedback.text))

    check()


def test_a_correct_query_is_told_so(task: Hover) -> None:
    _, feedback = play(task, query("Ilse Marend Joren Pell"))
    assert feedback == Feedback(1.0, "Correct: 'The Salt Clock', 'Ilse Marend', 'Joren Pell' are all found.")


def test_two_components_summarise_and_query(tmp_path: Path) -> None:
    task = build(tmp_path, [claim()], program="summarise-query", passage_length=60)
    assert set(task.seed_texts) == {"summarise", "query"}
    asks, feedback = play(task, "Marend wrote it.", query("Ilse Marend Joren Pell"))
    assert [ask.component for ask in asks] == ["summarise", "query"]
    assert (
        "The Salt Clock\nThe Salt Clock is an opera in three acts by Ilse Marend. It…" in asks[0].messages[0]["content"]
    )
    assert "Marend wrote it." in asks[1].messages[0]["content"]
    assert "three acts" not in asks[1].messages[0]["content"]
    assert feedback.score == 1
    _, feedback = play(task, "", query("Dunmere"))
    assert feedback.text.endswith(hover.KEEP_NAMES)


def test_one_component_is_shared_with_other_tasks(task: Hover) -> None:
    assert set(task.seed_texts) == {"system"}


def test_only_the_hard_claims_are_kept(tmp_path: Path) -> None:
    rows = [claim(f"{hops} hops", ["Ossel", "Ferrin", "Dunmere", "Varrow"][:hops]) for hops in (2, 3, 4)]
    kept = [
        example.id for example in build(tmp_path, rows, hops=HoverOptions(passages_path="x").hops).examples("train")
    ]
    assert kept == ["3 hops", "4 hops"]
    with pytest.raises(TaskError, match="has no claims with 5 hops"):
        build(tmp_path, rows, hops=[5])


def test_claims_of_one_question_stay_together(tmp_path: Path) -> None:
    rows = [claim(f"claim {number}", hpqa_id=f"question {number // 4}") for number in range(40)]
    task = build(tmp_path, rows, holdout=0.2)
    questions = [{example.data["hpqa_id"] for example in task.examples(split)} for split in SPLITS]
    assert [len(each) for each in questions] == [6, 2, 2]
    assert len(set.union(*questions)) == 10


@pytest.mark.parametrize(
    "facts",
    [
        [["Ossel", 0], ["Ferrin", 3]],
        [{"key": "Ossel", "value": 0}, {"key": "Ferrin", "value": 3}],
        {"key": ["Ossel", "Ferrin", "Ossel"], "value": [0, 3, 1]},
        ["Ossel", "Ferrin"],
    ],
)
def test_pages_are_read_in_every_known_form(tmp_path: Path, facts: Any) -> None:
    (example,) = build(tmp_path, [{**claim(), "supporting_facts": facts, "num_hops": 2}]).examples("train")
    assert example.data["pages"] == ["Ossel", "Ferrin"]


@pytest.mark.parametrize("facts", ["Ossel", [], [[]], [[3, "Ossel"]], {"title": ["Ossel"]}, 7, [None]])
def test_pages_in_another_form_are_refused(tmp_path: Path, facts: Any) -> None:
    with pytest.raises(
        TaskError, match=r"row 1: supporting_facts is .*; expected a list of \[title, sentence number\]"
    ):
        build(tmp_path, [{**claim(), "supporting_facts": facts}])


def test_a_claim_whose_pages_are_not_there_is_left_out(tmp_path: Path) -> None:
    lost = claim("lost", ["Ossel", "Atlantis", "Ferrin"])
    assert [example.id for example in build(tmp_path, [lost, claim()]).examples("train")] == [CLAIM]
    with pytest.raises(TaskError, match=r"none of the 1 claims .*the first one lacks 'Atlantis'"):
        build(tmp_path, [lost])
    with pytest.raises(TaskError, match="row 1 has no column 'claim'"):
        build(tmp_path, [{"supporting_facts": []}])


def test_the_index_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    file = tmp_path / "pages.jsonl"
    file.write_text('{"title": "One", "text": "alpha"}\n\n{"title": "Two", "text": "beta alpha alpha"}\n')
    first = Passages(str(file))
    assert len(first._offsets) == 2
    assert [page.title for page in first.search("beta", 5)] == ["Two"]
    built: list[Path] = []
    original = hover._build
    monkeypatch.setattr(hover, "_build", lambda path, to: (built.append(path), original(path, to)))
    copy = tmp_path / "copy.jsonl"  # the content counts, not the name
    copy.write_bytes(file.read_bytes())
    again = Passages(str(copy))
    assert not built
    assert again.search("alpha", 5) == first.search("alpha", 5)
    assert type(again._index.scores["data"]).__name__ == "memmap"
    copy.write_text(file.read_text() + '{"title": "Three", "text": "gamma"}\n')
    assert Passages(str(copy)).has("three")
    assert built == [copy]
    assert not list(cache.glob("passages/.writing-*"))


def test_ties_go_to_the_earlier_passage_and_strangers_are_left_out(tmp_path: Path) -> None:
    file = tmp_path / "pages.jsonl"
    file.write_text("".join(json.dumps({"title": f"P{n}", "text": "same words"}) + "\n" for n in range(50)))
    pages = Passages(str(file))
    assert [page.title for page in pages.search("words", 3)] == ["P0", "P1", "P2"]
    assert pages.search("other", 3) == ()
    assert pages.search("", 3) == ()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "is empty; expected one JSON object with title and text a line"),
        ("not json\n", "line 1 cannot be read .JSONDecodeError"),
        ('{"title": "a", "text": "b"}\n{"title": "a"}\n', "line 2 cannot be read .KeyError: 'text'"),
        ("[1]\n", "line 1 cannot be read .TypeError"),
    ],
)
def test_a_bad_passage_file_is_explained(tmp_path: Path, content: str, message: str) -> None:
    file = tmp_path / "pages.jsonl"
    file.write_text(content)
    with pytest.raises(TaskError, match=f"passage file '.*pages.jsonl' {message}"):
        Passages(str(file))


def test_a_passage_file_that_is_not_there_is_explained(tmp_path: Path) -> None:
    with pytest.raises(TaskError, match=r"passage file 'nowhere\.jsonl' cannot be read"):
        build(tmp_path, [claim()], passages_path="nowhere.jsonl")


def test_titles_are_compared_as_people_read_them() -> None:
    pages = Passages(str(ENCYCLOPEDIA))
    assert all(pages.has(title) for title in ("Fish & Lamp", "fish &amp; lamp", "The_Salt_Clock", "the salt  clock"))
    assert not pages.has("Salt Clock")
    assert same_title("Cafe\u0301") == same_title("Café")
    (found,) = pages.search("weather notes press", 1)
    assert found.text == "The Diary of Storms is a book of weather notes. It was printed by a small press in Brindle."


@pytest.mark.skipif(not REAL_CLAIMS.exists(), reason="HoVer's claims are not at hand")
def test_the_real_claims_are_read(tmp_path: Path) -> None:
    rows: list[Mapping[str, Any]] = json.loads(REAL_CLAIMS.read_text())
    titles = sorted({title for row in rows for title, _ in row["supporting_facts"]})
    pages = tmp_path / "pages.jsonl"
    pages.write_text("".join(json.dumps({"title": title, "text": "a page"}) + "\n" for title in titles))
    task = Hover(HoverOptions(path=str(REAL_CLAIMS), passages_path=str(pages)))
    examples: list[Example] = [example for split in SPLITS for example in task.examples(split)]
    assert len(examples) == 1835 + 1039
    ((ask,), feedback) = play(task, query(" ".join(task.examples("train")[0].data["pages"])))
    assert ask.messages
    assert feedback.score == 1


def test_a_missing_package_is_one_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fastslow.tasks.base.find_spec", lambda name: None)
    with pytest.raises(TaskError, match=r"task 'hover' needs the package bm25s.*pip install 'fastslow\[tasks\]'"):
        build(tmp_path, [claim()])

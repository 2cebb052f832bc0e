"""Skills: what of a text stands in front of which question, on every way that a prompt takes."""

import os
import subprocess
import sys
from collections.abc import Generator, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rollout_helpers import ScriptedEngine

from fastslow.base.errors import RecipeError, TaskError
from fastslow.records import Component, Context, Example, Feedback, Rollout, Sampling
from fastslow.rollouts.again import helped
from fastslow.rollouts.play import Player
from fastslow.rollouts.stored import from_data, to_data
from fastslow.tasks import skills
from fastslow.tasks.base import Ask, Options, QuestionTask, Split, Task
from fastslow.tasks.skills import Sections, Skills, best_matches, library_of, name_of, sections

pytest.importorskip("bm25s")

TEXT = """\
Answer in one word.
- refunds: A refund needs a receipt.
- shipping: Parcels to an island
  take two weeks.
- A gift card never expires.
Be polite."""
ALWAYS = "Answer in one word.\nBe polite."
LINES = st.lists(st.sampled_from(["Be brief.", "", "a receipt", "  indented"]), max_size=3)
ENTRIES = st.lists(
    st.sampled_from(["refund: a receipt", "parcel\n  of two lines", "card", "été", "领收书"]), max_size=6
)


class Desk(QuestionTask):
    """Questions in two turns, where the second repeats the first and its answer."""

    seed_text = TEXT

    def __init__(self, named: Sequence[str] | None = None) -> None:
        super().__init__(Options())
        self.named = named

    def examples(self, split: Split) -> list[Example]:
        return [Example(word, {"asks": f"What about my {word}?"}) for word in ("refund", "parcels", "weather")]

    def messages(self, example: Example) -> list[dict[str, str]]:
        return [{"role": "system", "content": "receipt card"}, {"role": "user", "content": example.data["asks"]}]

    def play(self, example: Example) -> Generator[Ask, str, Feedback]:
        asked = self.messages(example)
        answer = yield Ask("system", asked, skills=self.named)
        later = {"role": "user", "content": "and a gift card, and parcels to an island?"}
        yield Ask("system", [*asked, {"role": "assistant", "content": answer}, later], skills=self.named)
        return self.grade(example, answer)

    def grade(self, example: Example, answer: str) -> Feedback:
        return Feedback(0.0, "- no\nnever")


class Named(Desk):
    """The same with named texts."""

    @property
    def components(self) -> list[Component]:
        kinds = {"refunds": "A refund needs a receipt.", "shipping": "Parcels to an island take two weeks."}
        texts = [Component(name, "skill", text) for name, text in kinds.items()]
        return [Component("system", seed="Answer in one word."), *texts]


def played(
    task: Task, count: int | None, texts: dict[str, str] | None = None
) -> tuple[Player, list[Rollout], list[str]]:
    engine = ScriptedEngine(rule=lambda prompt: "- yes")
    player = Player(task, engine, engine.chat, library=library_of(task, count))
    context = Context(texts or dict(task.seed_texts))
    pairs = [(example, context) for example in task.examples("train")]
    rollouts, _ = player.play(pairs, Sampling(max_tokens=8), policy_step=0, seed=0)
    return player, rollouts


def shown(rollout: Rollout) -> list[list[str]]:
    return [list(turn.shown.values()) if turn.shown else [] for turn in rollout.turns]


def test_a_question_is_shown_the_entries_that_match_it_and_what_always_stands() -> None:
    _, (refund, parcels, weather) = played(Desk(), 1)
    head, tail = ALWAYS.split("\n")
    assert shown(refund) == [[f"{head}\n- refunds: A refund needs a receipt.\n{tail}"]] * 2
    assert shown(parcels) == [[f"{head}\n- shipping: Parcels to an island\n  take two weeks.\n{tail}"]] * 2
    assert shown(weather) == [[ALWAYS]] * 2
    assert parcels.in_play == {"system": f"{head}\n- shipping: Parcels to an island\n  take two weeks.\n{tail}"}
    assert {rollout.context.id for rollout in (refund, parcels, weather)} == {Context({"system": TEXT}).id}


def test_without_the_setting_the_whole_text_stands() -> None:
    player, rollouts = played(Desk(), None)
    assert player.library is None
    assert all(turn.shown is None for rollout in rollouts for turn in rollout.turns)
    assert rollouts[0].in_play == {"system": TEXT}


def test_replayed_prompts_are_the_played_ones_and_survive_being_saved() -> None:
    task = Desk()
    player, rollouts = played(task, 1)
    prompts = [[turn.prompt_ids for turn in rollout.turns] for rollout in rollouts]
    assert player.replay(rollouts, [rollout.context for rollout in rollouts]) == prompts
    other = player.replay(rollouts, [Context({"system": "x"})] * 3)
    assert all(replayed and replayed != before for replayed, before in zip(other, prompts, strict=True))
    assert from_data(to_data(rollouts), task.examples("train")) == rollouts


def test_a_task_says_which_entries_are_loaded() -> None:
    _, rollouts = played(Desk(("shipping", "gone")), 1)
    assert all("island" in text and "receipt" not in text for rollout in rollouts for (text,) in shown(rollout))
    _, rollouts = played(Desk(()), 1)
    assert all(text == ALWAYS for rollout in rollouts for (text,) in shown(rollout))


def test_named_texts_are_found_or_asked_for_without_the_setting() -> None:
    _, (refund, _, weather) = played(Named(), None)
    assert refund.in_play == {"system": "Answer in one word.", "refunds": "A refund needs a receipt."}
    assert weather.in_play == {"system": "Answer in one word."}
    _, (refund, *_) = played(Named(("shipping",)), None)
    assert set(refund.in_play) == {"system", "shipping"}
    library = library_of(Named(), None)
    assert library is not None
    with pytest.raises(TaskError, match=r"names the skills \['returns'\]; the task's are \['refunds', 'shipping'\]"):
        library.over(Named().seed_texts).shown("system", [], ["returns"])


def test_the_grader_s_words_below_a_text_are_no_entries() -> None:
    player, (refund, *_) = played(Desk(), 1, {"system": "Answer."})
    answered = tuple(replace(turn, answer="- yes\n- no") for turn in refund.turns)
    again = helped(replace(refund, turns=answered))
    assert player.library is not None
    text = player.library.over(again.texts).shown("system", Desk().messages(refund.example))["system"]
    assert text == again.texts["system"]


def test_programs_that_place_texts_are_given_what_concerns_their_problem() -> None:
    library = library_of(Desk(), 1)
    assert library is not None
    texts = library.over({"system": TEXT})
    assert dict(texts) == {"system": TEXT}
    assert "receipt" in texts.narrowed("a refund")["system"]
    assert "receipt" not in texts.narrowed("my parcels")["system"]
    assert "island" in texts.given["system"]["system"]
    assert Ask("system", [{"role": "user", "content": "refund"}], complete=True).context(texts) == ""


@settings(max_examples=40, deadline=None)
@given(LINES, ENTRIES, LINES, st.integers(1, 4), st.text(max_size=40))
def test_what_is_shown_is_the_text_without_some_entries(
    before: list[str], entries: list[str], after: list[str], count: int, question: str
) -> None:
    text = Sections(tuple(before), tuple(entries), tuple(after)).text
    found = sections(text)
    assert sections(found.text) == found
    assert found.text == text.strip("\n")
    library = skills.Library([Component("system", "skills")], count)
    asked = [{"role": "user", "content": question}]
    (part,) = Skills(library, {"system": text}).shown("system", asked).values()
    left = sections(part)
    assert part == text or len(left.entries) <= count
    assert set(part.splitlines()) <= set(text.splitlines())
    assert not [line for line in (*found.before, *found.after) if line.strip() and line not in part.splitlines()]


@settings(max_examples=40, deadline=None)
@given(st.lists(st.text(max_size=30), max_size=8), st.text(max_size=60), st.integers(1, 5))
def test_matches_share_a_word_with_the_question_and_are_repeatable(texts: list[str], question: str, count: int) -> None:
    found = best_matches(tuple(texts), question, count)
    assert list(found) == sorted(set(found))
    assert len(found) <= count
    best_matches.cache_clear()
    skills._index.cache_clear()
    assert best_matches(tuple(texts), question, count) == found
    words = set(skills._words([question])[0])
    assert all(words & set(skills._words([texts[place]])[0]) for place in found)


def test_every_process_chooses_alike() -> None:
    code = (
        "from fastslow.tasks.skills import best_matches\n"
        "texts = tuple(f'{a} {b} goes to desk {c}' for a in 'red blue old'.split() for b in 'lamp desk'.split() "
        "for c in 'one two'.split())\n"
        "print([best_matches(texts, f'a {w} lamp for desk two', 3) for w in ('red', 'blue', 'green', 'old red')])"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    ]
    assert runs[0] == runs[1] != ""


def test_scripts_without_spaces_match_by_characters() -> None:
    assert best_matches(("退款需要收据", "包裹需要两周"), "我的收据", 1) == (0,)


def test_names_stand_before_a_colon() -> None:
    assert name_of("**Refunds**: ask for a receipt") == "Refunds"
    assert name_of("A gift card never expires.") == "A gift card never expires."
    assert name_of("If a parcel goes to an island: two weeks") == "If a parcel goes to an island: two weeks"


def test_without_the_package_one_line_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(skills, "find_spec", lambda name: None)
    assert library_of(Desk(), None) is None
    with pytest.raises(
        RecipeError, match=r"^fast.skills=3 needs the package bm25s, .*: pip install 'fastslow\[tasks\]'$"
    ):
        library_of(Desk(), 3)
    with pytest.raises(RecipeError, match=r"^a task with components of kind skill needs the package bm25s"):
        library_of(Named(), None)

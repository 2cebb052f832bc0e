"""Whole runs whose questions are shown a part of the text: resumed alike, booked, judged by what was shown, and reported."""

from __future__ import annotations

import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from fake_engine import FakeEngine, Numbered
from fake_runs import outcome, recipe_of, resume, run
from rich.console import Console

from fastslow.launch.export import model_card, skills_note
from fastslow.loop import Loop
from fastslow.recipe import Recipe
from fastslow.runs.board.views import Views
from fastslow.runs.folder import RunFolder
from fastslow.runs.lineage import best_context
from fastslow.runs.tree import show_contexts
from fastslow.runs.use import uses, verdict
from fastslow.tasks.base import Example, Feedback, Message

pytest.importorskip("bm25s")
TOPICS = ("apples", "pears", "plums", "figs")
WORDS = {topic: f"{topic} are sold by the crate" for topic in TOPICS}


class Market(Numbered):
    """Questions of four fruits. Each has a rule, which the grader says where the answer is wrong."""

    seed_text = "answer the question"

    def messages(self, example: Example) -> list[Message]:
        return [{"role": "user", "content": f"{TOPICS[example.data['number'] % 4]}, please: {example.id}"}]

    def grade(self, example: Example, answer: str) -> Feedback:
        words = f"{WORDS[TOPICS[example.data['number'] % 4]]}\nwrite one word"
        return Feedback(float(answer == "yes"), "" if answer == "yes" else words)


class Reader(FakeEngine):
    """Answers better where the question's rule stands in front of it, and worse the more rules there are."""

    def _completion(self, text: str, draw: Any) -> Any:
        system, _, question = text.partition("<user>")
        rules = re.findall(r"(\w+) are sold by the crate", system)
        self.chance = 0.1 + (0.8 / len(rules) if any(each in question for each in rules) else 0.0)
        return super()._completion(text, draw)

    @property
    def prompts(self) -> list[str]:
        return [text for kind, texts in self.events if kind == "sample" for text in texts]


def recipe(optimizer: str, **more: Any) -> Recipe:
    fast = {"optimizer": optimizer, "skills": 1, "budget": 96, "anchors": 24, "population": 2, **more}
    return recipe_of(fast=fast, slow={"problems": 4}, output={"save_rollouts": True}, sampling={"max_tokens": 4})


@dataclass(frozen=True)
class Played:
    folder: Path
    loop: Loop
    engine: Reader


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Played:
    return played(tmp_path_factory.mktemp("skills") / "run", "digest")


def played(folder: Path, optimizer: str) -> Played:
    engine = Reader()
    loop, _ = run(folder, recipe(optimizer), engine, task=Market())
    return Played(folder, loop, engine)


def require_one_fitting_rule(found: Played) -> None:
    shown = [prompt.partition("<user>") for prompt in found.engine.prompts]
    rules = [(re.findall(r"- (\w+) are sold", system), question) for system, _, question in shown]
    assert sum(bool(named) for named, _ in rules) > 10
    assert all(len(named) <= 1 and all(rule in question for rule in named) for named, question in rules)
    assert found.loop.state.ledger.total().rollouts == len(shown)


def test_a_question_is_never_shown_more_than_its_skills(whole: Played) -> None:
    require_one_fitting_rule(whole)
    text = whole.loop.state.pool.best.context.texts["system"].splitlines()
    assert text[0] == Market.seed_text
    assert sum(line.startswith("- ") for line in text) > 1
    assert "- write one word" not in text  # it shares no word with the questions, so it would never be shown
    judged = {line["line"]: line for line in RunFolder.open(whole.folder).cycles()[-1]["lines"]}
    assert max(judged[words]["effect"] for words in WORDS.values() if words in judged) > 0.1


@pytest.mark.parametrize("optimizer", ["gepa", "ace", "reflexion"])
def test_other_optimizers_write_entries_too(tmp_path: Path, optimizer: str) -> None:
    require_one_fitting_rule(played(tmp_path / "run", optimizer))


def test_contexts_and_the_board_say_what_was_in_play_and_followed(whole: Played) -> None:
    opened = RunFolder.open(whole.folder)
    found = uses(opened, best_context(opened).texts)
    entries = {line: use for line, use in found.items() if line.startswith("- ")}
    assert all(0 < use.in_play < use.written for use in entries.values())
    assert found[Market.seed_text].in_play == found[Market.seed_text].written
    assert any(0 < use.followed < use.about for use in entries.values())
    shown = io.StringIO()
    show_contexts(opened, Console(file=shown, width=200), full=False)
    (line, use) = next(iter(entries.items()))
    rows = [row for row in shown.getvalue().splitlines() if line in row]
    assert f" {use.in_play} of {use.written} " in rows[-1]
    assert f" {use.followed} of {use.about} " in rows[-1]
    (views,) = Views([whole.folder]).find().values()
    rules = json.loads(views.text())["rules"]
    on_page = {each["text"]: each["use"] for each in rules["lines"]}
    assert on_page[line] == use.to_dict()
    assert rules["ignored"] == verdict(found.values()) == ""


def test_an_exported_model_card_says_that_a_template_shows_every_entry(whole: Played) -> None:
    opened, pool = RunFolder.open(whole.folder), whole.loop.state.pool
    note = skills_note(opened, pool)
    entries = [line for line in pool.best.context.texts["system"].splitlines() if line.startswith("- ")]
    assert f"a question was shown 1 of the {len(entries)} entries of the context" in note
    assert note[1:] in model_card(opened, 1, pool)


def test_a_run_with_skills_resumes_to_the_same_result(tmp_path: Path, whole: Played) -> None:
    engine = Reader()
    engine.fails_at = 4
    with pytest.raises(RuntimeError, match="power"):
        run(tmp_path / "cut", recipe("digest"), engine, task=Market())
    resumed, _ = resume(tmp_path / "cut", recipe("digest"), Reader(), task=Market())
    assert outcome(tmp_path / "cut") == outcome(whole.folder)
    assert resumed.state.pool == whole.loop.state.pool

"""A second try at a problem: the texts under which a rollout's question is asked again, with the grader's words about it."""

from __future__ import annotations

from fastslow.base.text import shorten, unlisted
from fastslow.records import Context, Rollout

LONGEST_PART = 4000
"""Characters of an answer, or of the words about it, that are shown."""


def another_try(answer: str, words: str) -> str:
    """A wrong answer and what was said of it, as they stand below a text under which the problem is tried again."""
    return (
        f"An earlier answer to the question below was:\n{unlisted(shorten(answer.strip(), LONGEST_PART))}\n"
        f"It is wrong. The grader said:\n{unlisted(shorten(words.strip(), LONGEST_PART))}\n"
        "Write the answer again, corrected, and nothing else."
    )


def to_copy(answer: str) -> str:
    """An answer as the grader expects it, as it stands below a text under which the problem is tried again."""
    return (
        f"The right answer to the question below is:\n{unlisted(shorten(answer.strip(), LONGEST_PART))}\n"
        "Write it exactly so, and nothing else."
    )


def words_alone(words: str) -> str:
    """What was said of an answer, without the answer: who has read it does not copy the answer's tokens."""
    return (
        f"The grader said of an earlier answer to the question below:\n{unlisted(shorten(words.strip(), LONGEST_PART))}"
    )


def has_words(rollout: Rollout) -> bool:
    """Whether the grader said anything of it; what says why a prompt was too long, or a grade is faulty, is none of that."""
    said = (rollout.feedback.text, *rollout.feedback.by_component.values())
    return bool(rollout.turns) and not rollout.error and any(words.strip() for words in said)


def helped(rollout: Rollout, *, with_answer: bool = True) -> Context:
    """The rollout's context, with the words about each component's last answer below that component's text."""
    texts = dict(rollout.context.texts)
    for turn in {turn.component: turn for turn in rollout.turns}.values():
        words = rollout.feedback.by_component.get(turn.component, rollout.feedback.text)
        if words.strip():
            said = another_try(turn.answer, words) if with_answer else words_alone(words)
            texts[turn.component] = f"{texts.get(turn.component, '')}\n{said}".strip()
    return Context(texts, (rollout.context.id,), rollout.context.born)

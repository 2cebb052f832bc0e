from __future__ import annotations

from collections.abc import Callable

import pytest

from fastslow.base.text import shorten
from fastslow.fast.reflection import Attempt, ChatFailed, LanguageModelReflector, ReflectionFailed, Reply, Request
from fastslow.fast.reflection.base import KINDS

Make = Callable[..., Request]
PARENT = "Answer the question with all the numbers sorted from large to small."


class Script:
    """A chat whose answers are written beforehand."""

    def __init__(self, *answers: str | Reply | ChatFailed) -> None:
        self.answers = list(answers)
        self.heard: list[tuple[list[dict[str, str]], int]] = []

    def __call__(self, messages: list[dict[str, str]], seed: int) -> Reply:
        self.heard.append((messages, seed))
        answer = self.answers.pop(0)
        if isinstance(answer, ChatFailed):
            raise answer
        return Reply(answer, 10, 5, 0.25) if isinstance(answer, str) else answer


def reflect(request: Request, *answers: str | Reply | ChatFailed) -> str:
    return LanguageModelReflector(Script(*answers))(request)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("I think so.\n```\nSort down.\n```\nDone.", "Sort down."),
        ("```text\nSort down.\n```", "Sort down."),
        ("```\nquoted old text\n```\nand now\n```markdown\nSort down.\nCheck.\n```", "Sort down.\nCheck."),
        ("```\nWrite:\n```json\n{}\n```\nand stop.\n```", "Write:\n```json\n{}\n```\nand stop."),
        ("````\nWrite:\n```\nquery\n```\nand stop.\n````", "Write:\n```\nquery\n```\nand stop."),
        ("Here: ```Sort down.```", "Sort down."),
        ("```Sort down.\nCheck.\n```", "Sort down.\nCheck."),
        ("```\nSort down.\n", "Sort down."),
        ("Sort down.\n", "Sort down."),
        ("<think>```\nnot this\n```</think>\nSort down.", "Sort down."),
        ("maybe ```this```?</think>```\nSort down.\n```", "Sort down."),
        ("```\nThink inside <think> and </think>.\n```", "Think inside <think> and </think>."),
        ("```\nSort down.\n```\n```\n\n```", "Sort down."),
    ],
)
def test_the_revised_text_is_found(make_request: Make, answer: str, expected: str) -> None:
    assert reflect(make_request(proposer="full"), answer) == expected


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ("", "was empty"),
        ("   \n", "was empty"),
        ("<think>endless", "was empty"),
        ("Sure!\n```\n\n```", "was empty"),
        ("}{][ ;; @@ ~~ a", "not readable"),
        ("\ufffd\ufffd broken \ufffd", "not readable"),
        ("over and " * 40, "not readable"),
        (f"```\n{PARENT}\n```", "same as the current"),
        (f"```\n{PARENT.replace(' ', '  ')}\n```", "same as the current"),
        (" ".join(f"rule{number}" for number in range(70)), "70 tokens and only 30"),
        (Reply("```\nSort dow", truncated=True), "truncated"),
        (Reply("Let me see, the", truncated=True), "truncated"),
    ],
)
def test_an_unusable_answer_is_told_once_and_then_given_up(
    make_request: Make, answer: str | Reply, reason: str
) -> None:
    request = make_request(PARENT, proposer="full", max_tokens=30)
    chat = Script(answer, "```\nSort down.\n```")
    assert LanguageModelReflector(chat)(request) == "Sort down."
    follow_up = chat.heard[1][0]
    assert [message["role"] for message in follow_up] == ["user", "assistant", "user"]
    assert follow_up[1]["content"].strip()
    assert reason in follow_up[2]["content"]
    with pytest.raises(ReflectionFailed, match="asked twice") as failure:
        reflect(request, answer, answer)
    assert reason in str(failure.value)
    assert not failure.value.permanent


def test_a_cut_answer_with_a_whole_block_is_used(make_request: Make) -> None:
    assert reflect(make_request(), Reply("```\nSort down.\n```\nBecause", truncated=True)) == "Sort down."


def test_light_keeps_half_of_the_words_in_order_and_full_need_not(make_request: Make) -> None:
    parent = (
        f"{PARENT}\nWrite each of them once, with no sign in front, and put commas between them and no spaces at all."
    )
    kept, lost = parent + " Check them twice.", "Think first. Put numbers in a box, large ones in front."
    assert reflect(make_request(parent), kept) == kept
    with pytest.raises(ReflectionFailed, match=r"words of the current instructions.*fast.optimizer.proposer=full"):
        reflect(make_request(parent), lost, lost)
    backwards = " ".join(reversed(parent.split()))
    with pytest.raises(ReflectionFailed, match="words of the current instructions"):
        reflect(make_request(parent), backwards, backwards)
    assert reflect(make_request(parent, proposer="full"), lost) == lost


def test_advice_is_for_people_and_not_for_the_model(make_request: Make) -> None:
    script, parent = Script("Sort.", "Sort."), f"{PARENT} {PARENT} {PARENT}"
    with pytest.raises(ReflectionFailed):
        LanguageModelReflector(script)(make_request(parent))
    assert "make a smaller edit" in script.heard[1][0][-1]["content"]
    assert "fast.optimizer.proposer" not in script.heard[1][0][-1]["content"]


@pytest.mark.parametrize(
    "parent", ["Answer the question in a box.", "Classify this customer message by the desk it concerns.", PARENT]
)
def test_light_may_rewrite_a_short_parent(make_request: Make, parent: str) -> None:
    assert reflect(make_request(parent), "Sort downwards.") == "Sort downwards."


def test_usage_sums_answers_retries_and_failures(make_request: Make) -> None:
    chat = Script("", Reply("Sort down.", 7, 3, 0.5, retries=2), ChatFailed("it hangs", retries=3))
    reflector = LanguageModelReflector(chat)
    assert reflector(make_request()) == "Sort down."
    with pytest.raises(ReflectionFailed, match="it hangs"):
        reflector(make_request())
    usage = reflector.usage
    assert (usage.calls, usage.retries, usage.failures) == (3, 5, 1)
    assert (usage.prompt_tokens, usage.completion_tokens, usage.cost) == (17, 8, 0.75)
    assert usage.seconds > 0


def test_a_question_that_never_went_out_is_no_call(make_request: Make) -> None:
    reflector = LanguageModelReflector(Script(ChatFailed("too long to ask", asked=False)))
    with pytest.raises(ReflectionFailed, match="too long to ask"):
        reflector(make_request())
    assert (reflector.usage.calls, reflector.usage.failures) == (0, 1)


def test_a_permanent_fault_stays_one(make_request: Make) -> None:
    with pytest.raises(ReflectionFailed, match="no key") as failure:
        reflect(make_request(), ChatFailed("no key", permanent=True))
    assert failure.value.permanent


def test_seeds_follow_from_the_request(make_request: Make) -> None:
    chat = Script("", "Sort down.")
    LanguageModelReflector(chat)(make_request(seed=41))
    assert [seed for _, seed in chat.heard] == [41, 42]


def test_the_prompt_shows_everything_and_says_what_is_wanted(make_request: Make) -> None:
    attempts = [
        Attempt("Sort 3 9 1.", "a" * 2040 + "b" * 2040, "Wrong way round.", 0.5),
        Attempt("Sort 2.", "", "Empty.", 0),
    ]
    for proposer, aim in [("light", "incremental"), ("full", "rewrite the instructions freely")]:
        chat = Script("Sort down.")
        request = make_request("Show:\n```\nx\n```", attempts, proposer=proposer, max_tokens=77)
        LanguageModelReflector(chat)(request)
        ((message,), _) = chat.heard[0]
        for part in [aim, "Sort 3 9 1.", "Wrong way round.", "score 0.5", "(empty)", "77 tokens", "general rules"]:
            assert part in message["content"]
        assert "````\nShow:\n```\nx\n```\n````" in message["content"]
        assert "aaaaaaaaaa\n[… 80 characters left out …]\nbbbbbbbbbb" in message["content"]


def test_shorten_leaves_short_texts_alone() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcde", 3) == "a\n[… 2 characters left out …]\nde"


@pytest.mark.parametrize(
    ("distinct", "count", "garbage"), [(4, 44, True), (4, 40, False), (3, 40, True), (3, 39, False)]
)
def test_few_words_over_and_over_are_no_instructions(distinct: int, count: int, garbage: bool) -> None:
    """From 40 words on, with less than a tenth of them different."""
    words = ["sort", "numbers", "largest", "first"][:distinct]
    text = " ".join((words * count)[:count])
    assert (KINDS["prompt"].unusable(text) is not None) == garbage

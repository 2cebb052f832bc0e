from __future__ import annotations

import io
from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len
from rich.console import Console
from run_helpers import make_rollout

from fastslow.recipe import Recipe, build_recipe
from fastslow.runs.view import LiveView, PlainView, View, _expected_rollouts, make_view

METRICS: dict[str, Any] = {
    "reward": 0.25,
    "rollouts_slow": 1536,
    "rollouts_fast": 960,
    "rollouts_evaluation": 800,
    "seconds": 12.0,
    "entropy": 1.5,
    "response_length": 210.0,
    "zero_variance": 0.5,
}
RESULTS = {
    "best context": {"mean": 0.51, "low": 0.47, "high": 0.55, "best": 0.7, "k": 4, "problems": 200},
    "seed": {"mean": 0.3, "low": 0.26, "high": 0.34, "best": 0.5, "k": 4, "problems": 200},
}
TEXT = "Think first.\n[bold]Check[/bold] the :smile: path.\x1b[2J\nthree\nfour\nfive\nsix"


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def terminal(width: int = 110, height: int = 40) -> Console:
    return Console(
        file=io.StringIO(), force_terminal=True, width=width, height=height, record=True, _environ={"TERM": "xterm"}
    )


def screen(view: LiveView) -> str:
    """The live screen as it would be drawn now."""
    console = Console(file=io.StringIO(), width=view.console.width)
    console.print(view._screen())
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def play(view: View, recipe: Recipe) -> None:
    view.start("runs/x", recipe, 0)
    view.cycle(3, "generation 7: 212/960 rollouts")
    view.step(5, 20, METRICS)
    view.evaluation(5, RESULTS)
    view.context("ab12", 0.53, TEXT)
    view.message("slow [disk]", "warning")
    view.message("all well")


def lines_of(play_on: Any, **options: Any) -> list[str]:
    file = io.StringIO()
    play_on(PlainView(Console(file=file, width=40, **options)))
    return file.getvalue().splitlines()


def test_plain_view_writes_one_line_per_event_however_narrow_the_console(recipe: Recipe) -> None:
    def everything(view: PlainView) -> None:
        play(view, recipe)
        view.finish({"steps": 20, "validation": 0.512})
        view.close()

    assert lines_of(everything) == [
        "run runs/x: fst, model nano, task star-graph, seed 7; starts, 20 steps",
        "cycle 3: generation 7: 212/960 rollouts",
        "step 5/20: reward 0.250, entropy 1.500, length 210, zero variance 0.500, "
        "rollouts 1,536 slow + 960 fast + 800 evaluation, 12.0 s",
        "evaluation at step 5: best context mean@4 0.510 [0.470, 0.550], best@4 0.700 (200 problems); "
        "seed mean@4 0.300 [0.260, 0.340], best@4 0.500 (200 problems)",
        "best context ab12, score 0.530: Think first. [bold]Check[/bold] the :smile: path.�[2J three four five six",
        "warning: slow [disk]",
        "all well",
        "finished: steps 20, validation 0.512",
    ]


def test_plain_view_says_that_a_run_resumes_and_needs_no_metrics(recipe: Recipe) -> None:
    def events(view: PlainView) -> None:
        view.start("runs/x", recipe, 10)
        view.step(11, 20, {})
        view.context("ab12", None, "Think.")

    assert lines_of(events) == [
        "run runs/x: fst, model nano, task star-graph, seed 7; resumes after step 10 of 20 steps",
        "step 11/20: done",
        "best context ab12, score -: Think.",
    ]


def test_plain_view_counts_by_rollouts_where_they_end_the_run(recipe: Recipe) -> None:
    limited = recipe.model_copy(update={"rollouts": 300})

    def events(view: PlainView) -> None:
        view.start("runs/x", limited, 0)
        view.spent(64)
        view.step(1, 20, {})
        view.start("runs/x", limited, 1, 64)

    assert [line.partition("; ")[2] or line for line in lines_of(events)] == [
        "starts, 300 rollouts",
        "step 1: done",
        "resumes after 64 of 300 rollouts",
    ]


def test_plain_view_survives_an_old_encoding() -> None:
    raw = io.BytesIO()
    with io.TextIOWrapper(raw, encoding="ascii", write_through=True) as file:
        PlainView(Console(file=file)).message("naïve")
        assert raw.getvalue() == b"na\\xefve\n"


def test_live_view_shows_everything_on_one_screen(recipe: Recipe) -> None:
    clock = Clock()
    view = LiveView(terminal(), clock)
    try:
        play(view, recipe)
        clock.now += 60.0
        shown = screen(view)
    finally:
        view.close()
    for part in (
        "runs/x",
        "fst, model nano, task star-graph, seed 7",
        "3  generation 7: 212/960 rollouts",
        "5 of 20",
        "0.250",
        "best context mean@4 0.510 [0.470, 0.550], best@4 0.700",
        "seed mean@4 0.300",
        "at step 5",
        "ab12  score 0.530",
        "[bold]Check[/bold] the :smile: path.",
        "1,536 slow + 960 fast + 800 evaluation",
        "0:01:00 elapsed, about 0:03:00 left",
    ):
        assert part in shown
    assert "six" in shown
    assert "\x1b[2J" not in shown
    assert len(shown.splitlines()) <= 24


def busy(width: int, height: int, recipe: Recipe) -> LiveView:
    """A view of a run with a long context and a sampled rollout with a long question."""
    view = LiveView(terminal(width, height))
    play(view, recipe)
    view.close()
    view.context("ab12", 0.53, "\n".join(f"rule {number}: " + "say it again " * 9 for number in range(99)))
    rollout = make_rollout("task/train/17", 0.0, feedback="The answer is 7.\nWrite the bare number.")
    view.sampled([replace(rollout, turns=[replace(rollout.turns[0], question="why? " * 500, answer="6")])])
    return view


@pytest.mark.parametrize(("width", "height"), [(80, 24), (80, 22), (60, 30), (110, 40), (200, 70)])
def test_live_view_fills_the_terminal_and_no_more(width: int, height: int, recipe: Recipe) -> None:
    lines = screen(busy(width, height, recipe)).splitlines()
    assert height - 3 <= len(lines) <= height - 1
    assert max(map(cell_len, lines)) <= width
    shown = "\n".join(lines)
    for part in (
        "rule 0: say it again",
        "task/train/17  score 0.000",
        "asked: why?",
        "answered: 6",
        "feedback: The answ",
    ):
        assert part in shown
    assert "rule 98" not in shown


def test_live_view_without_room_keeps_the_numbers(recipe: Recipe) -> None:
    shown = screen(busy(60, 15, recipe))
    assert "elapsed" in shown
    assert "asked:" not in shown


def test_live_view_shows_another_problem_each_time(recipe: Recipe) -> None:
    view = LiveView(terminal())
    view.sampled([])
    for expected in ("a", "b", "a"):
        view.sampled([make_rollout("a"), make_rollout("b")])
        assert f"{expected}  score 1.000" in screen(view)


def test_live_view_knows_the_time_left_before_the_first_step(recipe: Recipe) -> None:
    """The fast loop has spent a tenth of the rollouts of the run."""
    clock = Clock()
    view = LiveView(terminal(), clock)
    view.start("runs/x", recipe, 0)
    try:
        slow, fast = recipe.slow, recipe.fast
        cycles = -(-slow.steps // fast.cycle)
        clock.now += 60.0
        view.spent((slow.steps * slow.problems * slow.group + cycles * fast.budget) // 10)
        assert "0:01:00 elapsed, about 0:09:0" in screen(view)
    finally:
        view.close()


def test_live_view_counts_time_left_from_where_the_run_resumed(recipe: Recipe) -> None:
    clock = Clock()
    view = LiveView(terminal(), clock)
    view.start("runs/x", recipe, 10)
    try:
        clock.now += 5.0
        assert "0:00:05 elapsed " in screen(view)
        view.step(12, 20, {"reward": None})
        clock.now += 5.0
        assert "0:00:10 elapsed, about 0:00:40 left" in screen(view)
    finally:
        view.close()


def test_live_view_counts_by_rollouts_where_they_end_the_run(recipe: Recipe) -> None:
    clock = Clock()
    view = LiveView(terminal(), clock)
    view.start("runs/x", recipe.model_copy(update={"rollouts": 300}), 1, 100)
    try:
        assert "100 of 300 rollouts" in screen(view)
        clock.now += 10.0
        view.spent(200)
        view.step(2, 20, {})
        assert "200 of 300 rollouts" in screen(view)
        assert "0:00:10 elapsed, about 0:00:10 left" in screen(view)
        view.spent(320)
        assert "about 0:00:00 left" in screen(view)
    finally:
        view.close()


def test_live_view_draws_rewards_as_they_come(recipe: Recipe) -> None:
    view = LiveView(terminal())
    for step, reward in enumerate([0.0, 0.5, float("nan"), 1.0], 1):
        view.step(step, 20, {"reward": reward})
    assert "1.000  ▁▅█" in screen(view)
    for step in range(100):
        view.step(step, 200, {"reward": 0.5})
    assert "▁" * 40 in screen(view)
    assert "▁" * 41 not in screen(view)


def test_live_view_leaves_the_terminal_as_it_was(recipe: Recipe) -> None:
    console = terminal()
    view = LiveView(console)
    play(view, recipe)
    view.finish({"steps": 20})
    view.close()
    assert isinstance(console.file, io.StringIO)
    written = console.file.getvalue()
    assert written.count("\x1b[?25l") == written.count("\x1b[?25h") == 1  # the cursor: hidden, and back
    assert "slow [disk]" in written
    assert written.rstrip().endswith("20")


@pytest.mark.parametrize(
    ("console", "kind"),
    [
        (Console(file=io.StringIO()), PlainView),
        (terminal(), LiveView),
        (terminal(80, 24), LiveView),
        (terminal(40, 24), PlainView),
        (terminal(80, 10), PlainView),
        (Console(file=io.StringIO(), force_terminal=True, _environ={"TERM": "dumb"}), PlainView),
    ],
)
def test_the_view_fits_the_output(console: Console, kind: type) -> None:
    assert type(make_view(console)) is kind


def test_reused_rollouts_are_shown_beside_those_that_were_sampled() -> None:
    used = {"rollouts_slow": 400, "rollouts_fast": 960}
    for reused, shown in ((0, ""), (1136, " (1,136 reused)")):
        step = {**used, "rollouts_reused": reused}
        assert lines_of(lambda view, step=step: view.step(1, 20, step)) == [
            f"step 1/20: rollouts 400 slow + 960 fast{shown}"
        ]


@pytest.mark.parametrize(("method", "expected"), [("fst", 80 + 3 * 50), ("rl", 80), ("gepa", 3 * 50)])
def test_the_rollouts_to_expect_are_those_of_steps_and_cycles(method: str, expected: int) -> None:
    """Ten steps of two problems with four rollouts; a cycle before the first, the fifth and the ninth."""
    slow = {"steps": 10, "problems": 2, "group": 4, "microbatch": 8}
    fast = {"cycle": 4, "budget": 50, "population": 2}
    recipe = build_recipe({"model": "none", "task": "given", "method": method, "slow": slow, "fast": fast})
    assert _expected_rollouts(recipe) == expected


@pytest.mark.parametrize("lines", [1, 4, 7, 12, 30])
def test_a_sample_fits_into_its_lines_and_the_question_gives_way(lines: int) -> None:
    view = LiveView(terminal())
    rollout = make_rollout("a", 0.5, feedback="say less\n" * 3)
    turn = replace(rollout.turns[-1], question="why " * 60, answer="so " * 20)
    found = [str(line) for line in view._sample_lines(replace(rollout, turns=(turn,)), 40, lines)]
    assert len(found) <= lines
    assert found[0].startswith("a  score 0.5")
    if lines >= 4:
        assert [name for name in ("asked", "answered", "feedback") if any(line.startswith(name) for line in found)] == [
            "asked",
            "answered",
            "feedback",
        ]
    if lines >= 12:
        assert sum("so" in line for line in found) == 2, "the whole answer"
        assert sum("say less" in line for line in found) == 3, "the whole feedback"


def test_expected_scores_are_told_from_measured_ones() -> None:
    def contexts(view: View) -> None:
        view.context("ab", 0.5, "Think.")
        view.context("ab", 0.055, "Think.", (0.0, 36))
        view.context("ab", 0.055, "Think.", (1.0, 1))
        view.context("ab", 0.055, "Think.", (0.0, 0))

    assert lines_of(contexts) == [
        "best context ab, score 0.500: Think.",
        "best context ab, expected score 0.055, measured 0.000 in 36 rollouts: Think.",
        "best context ab, expected score 0.055, measured 1.000 in 1 rollout: Think.",
        "best context ab, expected score 0.055, not played in this cycle: Think.",
    ]

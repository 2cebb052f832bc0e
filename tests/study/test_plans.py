"""The plans of the studies: every variant is a recipe that can be run, and a name means one thing everywhere."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from study_helpers import made_run

from fastslow.base.errors import FastSlowError
from fastslow.recipe import build_recipe, load_recipe
from fastslow.runs.folder import RunFolder
from fastslow.study.conclusions import CONCLUSIONS
from fastslow.study.quickstart import RECIPE
from fastslow.study.studies import SMALL_STAR, STUDIES, _subtitle, _tasks
from fastslow.study.training import Job, Variant, jobs_of
from fastslow.tasks.families.rulebook.task import RulebookOptions

BASE = load_recipe(RECIPE)
TASKS = [
    {"name": "rulebook", **BASE.tasks[0].options},
    {"name": "rulebook", "book": "harbour"},
    {"name": "rulebook", "book": "orchard"},
]


def variants(name: str) -> list[Variant]:
    return STUDIES[name].variants(BASE, TASKS)


def test_every_study_has_a_conclusion() -> None:
    assert list(STUDIES) == list(CONCLUSIONS)


@pytest.mark.parametrize("name", STUDIES)
def test_every_variant_is_a_recipe(name: str, tmp_path: Path) -> None:
    for job in jobs_of(variants(name), [7], tmp_path):
        if job.fst and not job.fst.folder.exists():
            made_run(job.fst.folder, [0.1, 0.3], fast=100, seed=7)  # ten steps of 32 rollouts
        recipe = job.recipe(BASE)
        assert recipe.seed == 7
        assert recipe.output.folder == str(job.folder)
        assert (recipe.model.name != BASE.model.name) == (job.before is not None)
        assert recipe.rollouts == (420 if job.fst else None)
        assert build_recipe(recipe.model_dump(mode="json")) == recipe


def test_rl_and_gepa_wait_for_fst_and_get_its_rollouts(tmp_path: Path) -> None:
    fst, rl, gepa = jobs_of(variants("ceiling"), [0], tmp_path)
    assert fst.ready
    assert not rl.ready
    assert rl.needs == gepa.needs == [fst]
    made_run(fst.folder, [0.1, 0.3], fast=100, status="interrupted")
    assert not rl.ready
    RunFolder.open(fst.folder).set_status("finished")
    assert rl.ready
    assert rl.recipe(BASE).rollouts == gepa.recipe(BASE).rollouts == 320 + 100


def test_a_name_means_the_same_settings_in_every_study() -> None:
    found: dict[str, Variant] = {}
    for name in STUDIES:
        for variant in variants(name):
            same = found.setdefault(variant.name, variant)
            assert same == replace(variant, label=same.label)


def test_stages_take_the_place_of_the_task(tmp_path: Path) -> None:
    fst, rl = (Job(variant, 0, tmp_path).recipe(BASE) for variant in variants("continual"))
    assert (fst.method, rl.method) == ("fst", "rl")
    assert fst.task is None
    assert [stage.options["book"] for stage in fst.stages] == ["library", "harbour", "orchard"]
    assert fst.slow.steps == 3 * BASE.slow.steps


@pytest.mark.parametrize(
    ("group", "population", "sizes", "shared"),
    [(8, 4, [1, 2, 8], 4), (8, 8, [1, 2, 4], 2), (6, 3, [1, 2], 3), (6, 6, [1, 2], 2), (3, 3, [1], 1)],
)
def test_the_texts_of_an_ablation_share_a_group_evenly(
    group: int, population: int, sizes: list[int], shared: int
) -> None:
    given = [f"slow.group={group}", f"fast.population={population}", f"slow.microbatch={group}"]
    found = STUDIES["ablations"].variants(load_recipe(RECIPE, given), TASKS)
    assert [each.overrides for each in found if each.label.startswith("K = ")] == [
        (f"fast.population={size}",) for size in sizes
    ]
    (own,) = [each for each in found if each.name == "fst-prompt-baseline"]
    assert own.overrides == ("slow.baseline=prompt", f"fast.population={shared}")


@pytest.mark.parametrize(("cycle", "others"), [(6, {12, 3}), (5, {10, 2}), (1, {2, 1})])
def test_cycles_are_doubled_and_halved_to_no_less_than_a_step(cycle: int, others: set[int]) -> None:
    found = STUDIES["ablations"].variants(load_recipe(RECIPE, [f"fast.cycle={cycle}"]), TASKS)
    assert {each.overrides for each in found if each.label.startswith("T = ")} == {
        (f"fast.cycle={other}",) for other in others
    }


def test_the_tasks_of_a_study_are_the_recipes_own_and_as_many_others() -> None:
    own = {"name": "rulebook", **BASE.tasks[0].options}
    assert _tasks(STUDIES["ceiling"], BASE, []) == [own]
    assert _tasks(STUDIES["star-graph"], BASE, []) == [own, SMALL_STAR]
    assert _tasks(STUDIES["star-graph"], BASE, ["star-graph", "codeio"]) == [own, {"name": "star-graph"}]
    given = ["{name: rulebook, book: orchard}", "codeio", "star-graph"]
    assert _tasks(STUDIES["continual"], BASE, given) == [
        own,
        {"name": "rulebook", "book": "orchard"},
        {"name": "codeio"},
    ]


def test_too_few_tasks_are_refused() -> None:
    for given in ([], ["codeio"]):
        with pytest.raises(
            FastSlowError, match=rf"needs 2 task\(s\) beside the recipe's own, but {len(given)} are given"
        ):
            _tasks(STUDIES["continual"], load_recipe(RECIPE, ["task=star-graph"]), given)


def test_without_further_tasks_a_rulebook_is_followed_by_the_other_books() -> None:
    own = {"name": "rulebook", **BASE.tasks[0].options}
    assert _tasks(STUDIES["continual"], BASE, []) == [own, {**own, "book": "harbour"}, {**own, "book": "orchard"}]
    orchard = load_recipe(RECIPE, ["task.book=orchard", "task.words=3"])
    (first, second) = _tasks(STUDIES["plasticity"], orchard, [])
    assert (first["book"], first["told"]) == ("orchard", own["told"])
    assert (second["book"], second["told"]) == ("harbour", 3), "its seed text has all words"
    (_, other) = _tasks(STUDIES["plasticity"], BASE, [])
    options = RulebookOptions(**{key: value for key, value in other.items() if key != "name"})
    assert options.told >= options.words


def test_a_figure_says_what_it_is_of_and_that_three_seeds_have_bands() -> None:
    for seeds, said in ((1, "1 seed"), (2, "2 seeds"), (3, "3 seeds; bands and bars: 95% over seeds")):
        assert _subtitle(BASE, STUDIES["ceiling"], seeds) == f"nano, rulebook, {said}"
    assert _subtitle(BASE, STUDIES["star-graph"], 1) == "nano, star-graph, 1 seed"

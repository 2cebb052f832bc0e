"""The benchmark of fast loops: the simulated policy does what its dials say, and every part of the report is made."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from statistics import fmean
from types import ModuleType

import pytest

from fastslow.fast.reflection import Attempt
from fastslow.records import Context

policy = importlib.import_module("benchmarks.simulated_policy")


@pytest.fixture
def benchmark_module() -> ModuleType:
    return importlib.import_module("benchmarks.fast_loop")


def test_rules_raise_the_chance_of_their_own_problems_and_no_others() -> None:
    world = policy.World(policy.Dials(spread=0.0, both=0.0), 0)
    rule = world.rules[0]
    text = f"{policy.SEED_TEXT}\n{rule.true[0]}"
    for example in world.unseen[:50]:
        expected = 0.6 if example.data["rules"] == (0,) else 0.3
        assert world.chance_of(text, example) == pytest.approx(expected)
        assert world.chance_of(world.oracle_text, example) == pytest.approx(0.6)
        false = f"{text}\n{rule.false[0][0]}"
        assert world.chance_of(false, example) == pytest.approx(0.3)


def test_text_that_is_too_long_costs_on_every_problem() -> None:
    world = policy.World(policy.Dials(room=1.0, crowding=0.2), 0)
    oracle = world.oracle_text
    twice = "\n".join([oracle, *(f"{word} x" for word in oracle.split())])
    assert world.reward(twice) < world.reward(oracle) - 0.2


def test_what_the_weights_learn_is_no_longer_the_text_s_to_give() -> None:
    world = policy.World(policy.Dials(drift=0.5), 0)
    gains = [world.reward(world.oracle_text, cycle) - world.reward(policy.SEED_TEXT, cycle) for cycle in (0, 1, 2)]
    assert gains[1] == pytest.approx(gains[0] / 2)
    assert gains[2] == pytest.approx(gains[0] / 4)


def test_played_scores_and_words_follow_the_dials() -> None:
    world = policy.World(policy.Dials(wrong=0.2, remarks=0.5), 3)
    player, context = policy.Policy(world), Context({"system": policy.SEED_TEXT})
    examples = [world.problem("train", index) for index in range(3000)]
    rollouts = player.play([(example, context) for example in examples], "slow", 0)
    assert player.rollouts == 3000
    assert sum(r.score for r in rollouts) / 3000 == pytest.approx(0.3, abs=0.03)
    failed = [rollout.feedback.text.splitlines() for rollout in rollouts if not rollout.score]
    false = {line for rule in world.rules for ways in rule.false for line in ways}
    assert sum(lines[-1] in false for lines in failed) / len(failed) == pytest.approx(0.2, abs=0.03)
    assert sum(len(lines) == 2 for lines in failed) / len(failed) == pytest.approx(0.5, abs=0.04)


@pytest.mark.parametrize("mend", [0.5, 0.0])
def test_a_policy_that_learns_from_answers_is_played_as_its_expected_reward_says(mend: float) -> None:
    shown = importlib.import_module("benchmarks.simulated_shown")
    world = shown.ShownWorld(shown.ShownDials(needed=2, mend=mend), 0)
    name, mark = next(iter(world.marks.items()))
    rule, answer = world.rules[name], f"{name}={mark}"
    told, shows = f"{world.seed_text}\n{rule}", f"{world.seed_text}\n{rule}\n{answer}"
    again = f"{world.seed_text}\n{shown.EARLIER}{answer}\nIt is wrong."
    assert [world.chances(text)[name] for text in (world.seed_text, told, shows)] == [0, world.told[name], 0.8]
    assert world.chances(again)[name] == (0.9 if mend else pytest.approx(0.56))
    context, policy = Context({"system": world.oracle_text}), shown.ShownPolicy(world)
    rollouts = policy.play([(each, context) for each in world.unseen * 5], "", 0)
    assert sum(each.score for each in rollouts) / len(rollouts) == pytest.approx(
        world.reward(world.oracle_text), abs=0.05
    )
    assert {each.feedback.text for each in rollouts if not each.score} <= set(world.rules.values())


def test_a_simulated_handbook_is_played_as_its_expected_reward_says() -> None:
    handbook = importlib.import_module("benchmarks.simulated_handbook")
    world = handbook.HandbookWorld(handbook.HandbookDials(rules=8, wrong=0.3), 1)
    rule = world.task.book.rules[-2]
    false = next(label for label in world.guesses if label not in rule.text)
    half = "\n".join(world.oracle_text.splitlines()[:5])
    texts = [world.seed_text, half, world.oracle_text, f"{half}\n{rule.text.replace(rule.label, false)}"]
    for text in texts:
        pairs = [(example, Context({"system": text})) for example in world.unseen for _ in range(6)]
        rollouts = handbook.HandbookPolicy(world).play(pairs, "slow", 0)
        assert sum(rollout.score for rollout in rollouts) / len(rollouts) == pytest.approx(world.reward(text), abs=0.04)
    assert world.reward(texts[0]) < world.reward(texts[1]) < world.reward(texts[2])
    assert world.reward(texts[3]) < world.reward(texts[1])


def test_answers_that_a_text_shows_are_copied_as_often_as_its_dial_says() -> None:
    handbook = importlib.import_module("benchmarks.simulated_handbook")
    plain = handbook.HandbookWorld(handbook.HandbookDials(), 0)
    copying = handbook.HandbookWorld(handbook.HandbookDials(distracted=0.2), 0)
    label, other = list(plain.guesses)[:2]
    text = "\n".join([plain.oracle_text, *(f"The answer:\n{each}" for each in (label, label, other))])
    for example in plain.unseen[:20]:
        own, copied = plain.answers(text, example), copying.answers(text, example)
        share = 1 - 0.8**3
        for name in plain.guesses:
            expected = (1 - share) * own[name] + share * {label: 2 / 3, other: 1 / 3}.get(name, 0)
            assert copied[name] == pytest.approx(expected)
        assert copying.answers(plain.oracle_text, example) == plain.answers(plain.oracle_text, example)


@pytest.mark.parametrize("family", ["formats", "manual"])
def test_a_simulated_family_is_played_as_its_expected_reward_says(family: str) -> None:
    families = importlib.import_module("benchmarks.simulated_families")
    examples = importlib.import_module("fastslow.fast.digest.examples")
    again = importlib.import_module("fastslow.rollouts.again")
    world = families.FamilyWorld(families.FamilyDials(family), 2)
    example = world.unseen[0]
    right = Attempt("q", world.task.answer(example), "", 1.0)
    shown = f"{world.oracle_text}\n{examples.demonstration(right)}"
    rewards = []
    for text in (world.seed_text, world.oracle_text, shown):
        pairs = [(each, Context({"system": text})) for each in world.unseen * 4]
        rollouts = families.FamilyPolicy(world).play(pairs, "", 0)
        rewards.append(sum(rollout.score for rollout in rollouts) / len(rollouts))
        assert rewards[-1] == pytest.approx(world.reward(text), abs=0.05)
    assert rewards[0] < 0.05 < rewards[2]
    assert rewards[0] <= rewards[1] <= rewards[2]  # the oracle of formats shows an answer itself
    copy = Context({"system": f"{world.seed_text}\n{again.to_copy(right.answer)}"})
    copies = families.FamilyPolicy(world).play([(example, copy)] * 200, "", 0)
    assert sum(each.score == 1 for each in copies) / 200 == pytest.approx(0.8, abs=0.08)


def test_every_kind_of_report_names_its_rule_and_most_what_the_answer_had() -> None:
    reports = importlib.import_module("benchmarks.simulated_reports")
    for seed, kind in enumerate(reports.REPORTS):
        world = reports.ReportWorld(reports.ReportDials(says="all", together=9, base=0.0), seed)
        played = reports.ReportPolicy(world)
        examples = [world.problem("train", index) for index in range(2)]
        first, second = played.play([(each, Context({"system": world.seed_text})) for each in examples], "x", 0)
        words = reports.REPORTS[kind][1]
        assert all(word in first.feedback.text for rule in world.order for word in words(rule)), kind
        if kind not in ("linter", "prose"):
            assert all(each in first.feedback.text for each in first.turns[0].answer.splitlines()[1:]), kind
        assert first.feedback.text != second.feedback.text
        assert (world.reward(world.seed_text), world.reward(world.oracle_text)) == (0.0, pytest.approx(0.9**9)), kind


@pytest.mark.parametrize("optimizer", ["digest", "gepa", "ace"])
def test_real_optimizers_run_on_it_within_their_rollouts(benchmark_module: ModuleType, optimizer: str) -> None:
    setting = benchmark_module.Setting(policy.Dials(rules=5), (150, 400))
    first, second = benchmark_module.run_one(optimizer, setting, 0, benchmark_module.RECIPE, False)
    slack = 2 * benchmark_module.PROPOSALS * benchmark_module.RECIPE["anchors"]  # gepa's last generation
    assert first["rollouts"] <= 150 + slack * (optimizer == "gepa")
    assert first["rollouts"] < second["rollouts"] <= 400 + slack * (optimizer == "gepa")
    assert second["share"] > 0.2


def test_the_report_has_every_optimizer_at_every_mark(
    benchmark_module: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, base in (("digest", 0.8), ("gepa", 0.3)):
        rows = [
            {
                "seed": seed,
                "mark": mark,
                "rollouts": mark,
                "share": base + seed / 100,
                "reward": 0.5,
                "worse": seed == 0,
            }
            for seed in range(5)
            for mark in (200, 400)
        ]
        data = {"setting": "office", "optimizer": name, "rows": rows}
        (tmp_path / f"office-{name}.json").write_text(json.dumps(data))
    importlib.import_module("benchmarks.fast_loop_report").report(tmp_path, tmp_path / "picture.png")
    table = capsys.readouterr().out
    assert "| rollouts | 200 | 400 |" in table
    assert table.index("| digest | 0.82 [") < table.index("| gepa | 0.32 [")
    assert "(20.0%)" in table
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_every_idea_can_be_switched_off(benchmark_module: ModuleType) -> None:
    setting = benchmark_module.Setting(policy.Dials(rules=5), (120,))
    plain = benchmark_module.run_one("digest", setting, 0, benchmark_module.RECIPE, False)
    for idea in benchmark_module.ABLATIONS:
        with benchmark_module.without(idea):
            (row,) = benchmark_module.run_one("digest", setting, 0, benchmark_module.RECIPE, False)
        assert row["rollouts"] <= 120
    assert benchmark_module.run_one("digest", setting, 0, benchmark_module.RECIPE, False) == plain


def test_rules_that_are_loaded_beat_rules_that_all_stand_there(benchmark_module: ModuleType) -> None:
    pytest.importorskip("bm25s")
    skills, handbook = (importlib.import_module(f"benchmarks.{name}") for name in ("skills", "simulated_handbook"))
    dials = {"rules": 12, "grip": 3}
    whole = benchmark_module.Setting(handbook.HandbookDials(**dials), (150,))
    loaded = benchmark_module.Setting(handbook.HandbookDials(**dials, skills=2), (150,))
    rewards = [skills.compare(seed, "digest", whole, loaded) for seed in range(4)]
    assert all(found["all rules, whole"] > found["seed text"] for found in rewards)
    assert fmean(found["all rules, difference"] for found in rewards) > 0.15
    assert fmean(found["digest, difference at 150 rollouts"] for found in rewards) > 0.05
    table = list(skills.table(rewards))
    assert len(table) == 2 + len(rewards[0])

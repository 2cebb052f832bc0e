"""Comparisons of made-up runs, by hand."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
from PIL import Image
from rich.console import Console
from study_helpers import made_run, staged_run

from fastslow.base.errors import FastSlowError
from fastslow.study import measures
from fastslow.study.arms import gather
from fastslow.study.measures import Comparison
from fastslow.study.report import compare_runs, show
from fastslow.study.sentences import findings

FST = {0: [0.1, 0.3, 0.6, 0.8], 1: [0.1, 0.3, 0.5, 0.7], 2: [0.1, 0.3, 0.5, 0.9]}
RL = {0: [0.1, 0.2, 0.4, 0.3], 1: [0.1, 0.2, 0.3, 0.5], 2: [0.1, 0.1, 0.2, 0.3]}


def folders(tmp_path: Path, seeds: int = 3) -> list[Path]:
    """FST pays 160 rollouts of its fast loop for every 320 of its slow one."""
    made = [made_run(tmp_path / f"fst-{seed}", FST[seed], seed=seed, fast=160) for seed in range(seeds)]
    made += [made_run(tmp_path / f"rl-{seed}", RL[seed], method="rl", seed=seed, kl=0.02) for seed in range(seeds)]
    return made


def folders_there(tmp_path: Path) -> list[Path]:
    return sorted(path.parent for path in tmp_path.glob("*/run.json"))


def comparison(tmp_path: Path, seeds: int = 3, baseline: str | None = None) -> Comparison:
    return Comparison.of(gather(folders(tmp_path, seeds))[0], baseline)


def test_rl_only_is_the_baseline_where_there_is_one(tmp_path: Path) -> None:
    found = comparison(tmp_path)
    assert found.baseline.label == "RL only"
    assert [arm.label for arm in found.others] == ["FST"]
    assert Comparison.of(found.arms, "fst").baseline.label == "FST"
    assert Comparison.of(found.others).baseline.label == "FST"
    with pytest.raises(FastSlowError, match=r"--baseline ppo: no such arm .* 'FST', 'RL only'"):
        Comparison.of(found.arms, "ppo")


def test_the_cost_of_most_of_the_baselines_gain_is_counted_seed_by_seed(tmp_path: Path) -> None:
    """RL goes from 0.1 to 0.367 over its seeds; 80% of the way is 0.313, which its third seed does not reach. Without that
    seed it goes to 0.4: 0.34."""
    found = comparison(tmp_path)
    fst, rl = found.arms
    assert found.level == pytest.approx(0.1 + 0.8 * (1.1 / 3 - 0.1))
    assert found.costs(rl, "steps")[2] == math.inf
    assert not found.saving(fst, "steps").has_interval
    assert found.saving(fst, "steps").seeds == 2  # those of both arms that reach it
    two = comparison(tmp_path / "two", seeds=2)
    fst, rl = two.arms
    assert two.level == pytest.approx(0.34)
    # The fitted curves are 0.1, 0.2, 0.35, 0.35 and 0.1, 0.2, 0.3, 0.5: between two evaluations by a straight line.
    theirs = {0: 10 + 10 * 0.14 / 0.15, 1: 20 + 10 * 0.04 / 0.2}
    ours = {0: 10 + 10 * 0.04 / 0.3, 1: 10 + 10 * 0.04 / 0.2}
    assert two.costs(rl, "steps") == pytest.approx(theirs)
    assert two.costs(fst, "steps") == pytest.approx(ours)
    expected = math.sqrt(theirs[0] * theirs[1] / ours[0] / ours[1])
    assert two.saving(fst, "steps").mean == pytest.approx(expected)
    # The fast loop's rollouts count: half as much again.
    assert two.saving(fst, "rollouts").mean == pytest.approx(expected / 1.5)
    assert two.saving(fst, "rollouts").has_interval


def test_a_level_that_is_no_part_of_a_gain_is_not_called_one(tmp_path: Path) -> None:
    made = [made_run(tmp_path / f"flat-{seed}", [0.1] * 4, method="rl", seed=seed) for seed in range(3)]
    found = Comparison.of(gather([*folders(tmp_path)[:3], *made])[0])
    measures = [measure for _, measure, _ in found.measures()]
    assert "KL from base at a reward above RL only before training" in measures
    assert not [measure for measure in measures if "gain" in measure]


def test_luck_at_one_evaluation_moves_the_level_little(tmp_path: Path) -> None:
    rises = [0.1, 0.2, 0.3, 0.4, 0.4, 0.4, 0.4, 0.4]
    lucky = [0.1, 0.2, 0.3, 0.4, 0.7, 0.4, 0.4, 0.4]
    levels = []
    for name, rewards in (("even", rises), ("lucky", lucky)):
        levels.append(Comparison.of(gather([made_run(tmp_path / name, rewards, method="rl")])[0]).level)
    assert levels == pytest.approx([0.34, 0.34])


def test_a_narrow_terminal_shows_the_whole_names_of_arms(tmp_path: Path) -> None:
    made = []
    for rescore in ("all", "from-rollouts"):
        settings = {"fast": {"rescore": rescore}}
        made += [made_run(tmp_path / f"{rescore}-{seed}", FST[seed], seed=seed, settings=settings) for seed in range(3)]
    console = Console(width=80, record=True)
    show(Comparison.of(gather(made)[0]), console)
    rewards = console.export_text().split("Training cost")[0]
    assert "…" not in rewards
    rows = [line for line in rewards.splitlines() if line.startswith("│")]
    names = "".join(line.split("│")[1].strip() for line in rows)  # wrapped in their column
    assert "(fast.rescore=all)" in names
    assert "(fast.rescore=from-rollouts)" in names


def test_rewards_at_the_end_and_within_shared_rollouts(tmp_path: Path) -> None:
    found = comparison(tmp_path)
    fst, rl = found.arms
    assert found.end(fst).mean == pytest.approx(0.8)
    assert found.margin(fst).mean == pytest.approx((0.5 + 0.2 + 0.6) / 3)
    assert found.shared_rollouts == 960  # RL's; FST has 1,440
    assert found.within_shared_rollouts(fst).mean == pytest.approx((0.6 + 0.5 + 0.5) / 3)
    assert found.within_shared_rollouts(rl).mean == pytest.approx((0.3 + 0.5 + 0.3) / 3)


def test_what_was_evaluated_later_is_not_taken_for_untrained(tmp_path: Path) -> None:
    made = [made_run(tmp_path / f"fst-{seed}", [0.1, 0.9], seed=seed, every=20) for seed in range(2)]
    made += [made_run(tmp_path / f"rl-{seed}", [0.1, 0.2], seed=seed, method="rl") for seed in range(2)]
    found = Comparison.of(gather(made)[0])
    fst, rl = found.arms
    assert found.within_shared_rollouts(fst).words() == "not evaluated by then"
    assert found.within_shared_rollouts(rl).mean == pytest.approx(0.2)


def test_reward_against_divergence(tmp_path: Path) -> None:
    found = comparison(tmp_path)
    fst, rl = found.arms
    assert found.has_kl
    assert found.kl_at_level(fst).mean == pytest.approx(0.02)
    assert found.kl_at_level(rl).mean == pytest.approx((0.04 + 0.06) / 2)  # the third seed does not reach it
    assert found.shared_kl(fst) == pytest.approx(0.03)
    assert found.reward_at_kl(rl, 0.03).mean == pytest.approx((0.2 + 0.2 + 0.1) / 3)
    assert found.reward_at_kl(fst, 0.03).mean == pytest.approx(0.8)
    assert found.margin_at_kl(fst).mean == pytest.approx((0.6 + 0.5 + 0.8) / 3)
    assert found.last(fst, "seed_kls").mean == pytest.approx(0.06)
    assert found.entropy(fst).mean == pytest.approx(1 / 4 + 0.01)


def test_an_arm_that_hardly_moves_leaves_the_others_as_they_are(tmp_path: Path) -> None:
    # Judged under the seed text, where a made-up run has half the reward and twice the KL.
    still = made_run(tmp_path / "distill", [0.1, 0.3, 0.2, 0.2], method="distill", kl=0.001)
    frozen = made_run(tmp_path / "gepa", [0.1, 0.4], method="gepa", fast=100, kl=0.0)
    found = Comparison.of(gather([*folders(tmp_path), still, frozen])[0])
    by_name = {arm.label: arm for arm in found.arms}
    alone = comparison(tmp_path / "alone")
    assert found.margin_at_kl(found.arms[0]) == alone.margin_at_kl(alone.arms[0])
    assert found.shared_kl(by_name["FST-distill"]) == pytest.approx(0.006)
    assert found.margin_at_kl(by_name["FST-distill"]).mean == pytest.approx(0.15 - 0.1)  # RL's is from before training
    assert found.shared_kl(by_name["GEPA only"]) == pytest.approx(0.06)  # text moves nothing: RL's own


def test_without_a_kl_nothing_is_said_at_the_same_one(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / "a", [0.1, 0.4], kl=None), made_run(tmp_path / "b", [0.1, 0.4], method="rl")]
    found = Comparison.of(gather(runs)[0])
    assert found.has_kl
    assert math.isnan(found.shared_kl(found.arms[0]))
    assert found.margin_at_kl(found.arms[0]).words() == "-"


def test_a_level_that_is_not_reached_has_no_saving(tmp_path: Path) -> None:
    found = comparison(tmp_path, baseline="fst")
    rl = found.arms[1]
    assert math.isnan(found.saving(rl, "rollouts").mean)
    assert found.cost(rl, "rollouts").words() == "not reached"
    assert "RL only does not reach 80% of the gain of FST (0.66)." in findings(found)


def test_reached_by_some_seeds_is_said_and_has_no_interval(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / f"a{s}", r, seed=s) for s, r in enumerate([[0.1, 0.1, 0.5], [0.1, 0.1, 0.2]])]
    runs += [made_run(tmp_path / f"b{s}", [0.1, 0.1, 0.4], method="rl", seed=s) for s in range(2)]
    found = Comparison.of(gather(runs)[0])
    cost = found.cost(found.arms[0], "steps")
    assert cost.words(0) == "16 (in 1 of 2 seeds)"
    assert not found.saving(found.arms[0], "steps").has_interval


def test_a_baseline_that_never_rises_is_to_be_surpassed(tmp_path: Path) -> None:
    runs = [made_run(tmp_path / "a", [0.1, 0.1, 0.3]), made_run(tmp_path / "b", [0.1, 0.0, 0.1], method="rl")]
    found = Comparison.of(gather(runs)[0])
    assert not found.baseline_rises
    assert found.costs(found.arms[0], "steps") == pytest.approx({0: 20})
    assert found.saving(found.arms[0], "steps").words() == "baseline does not improve"
    said = "RL only does not improve on its reward before training beyond noise."
    end = "FST ends at 0.30, RL only at 0.10; difference 0.20, which one seed cannot tell from noise."
    assert findings(found) == [said, end]


@pytest.mark.parametrize(
    ("rewards", "seeds", "rises"),
    [
        ([0.1, 0.2], 1, False),  # the difference of two evaluations has a deviation of 0.07
        ([0.1, 0.25], 1, True),
        ([0.1, 0.25, *[0.1] * 20], 1, False),  # the highest of many
        ([0.1, 0.2], 4, True),
        ([0.5, 0.2], 4, False),
    ],
)
def test_only_a_rise_beyond_the_noise_of_evaluations_counts(
    rewards: list[float], seeds: int, rises: bool, tmp_path: Path
) -> None:
    runs = [made_run(tmp_path / str(seed), rewards, method="rl", seed=seed) for seed in range(seeds)]
    assert Comparison.of(gather(runs)[0]).baseline_rises == rises


def test_one_seed_has_no_intervals_and_frozen_weights_no_steps(tmp_path: Path) -> None:
    runs = [*folders(tmp_path, 1), made_run(tmp_path / "gepa", [0.1, 0.2, 0.4], method="gepa", fast=100, kl=0.0)]
    found = Comparison.of(gather(runs)[0])
    assert not any(estimate.has_interval for _, _, estimate in found.measures())
    gepa = found.arms[2]
    assert found.cost(gepa, "steps").words() == "no updates"
    assert found.saving(gepa, "rollouts").mean > 3
    assert "one seed" in " ".join(findings(found))


@pytest.mark.parametrize("seeds", [1, 3])
def test_everything_is_written(seeds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measures, "DRAWS", 10)  # what asymptotes are is tested elsewhere
    extra = [made_run(tmp_path / "gepa", [0.1, 0.4], method="gepa", fast=100, kl=0.0)]
    extra += [made_run(tmp_path / "distill", [0.1, 0.4, 0.5, 0.6], method="distill", tokens=False)]
    console = Console(record=True, width=160)
    out = tmp_path / "out"
    compared = [*folders(tmp_path, seeds), *extra]
    compare_runs(compared, out, console)
    found = Comparison.of(gather(compared)[0])
    shown = console.export_text()
    assert "Training cost" in shown
    assert "Cost to reach 80% of the gain of RL only" in shown
    assert "Best reward within the KL that both the arm and RL only reached" in " ".join(shown.split())
    names = {path.name for path in out.iterdir()}
    pictures = ("reward", "cost", "divergence", "entropy")
    assert names == {"table.csv", "points.csv", "report.html"} | {f"{p}.{k}" for p in pictures for k in ("png", "svg")}
    for name in pictures:
        with Image.open(out / f"{name}.png") as picture:
            assert min(picture.size) > 300
        ElementTree.parse(out / f"{name}.svg")
    with (out / "points.csv").open() as file:
        points = list(csv.DictReader(file))
    assert len(points) == sum(len(curve.rewards) for arm in found.arms for curve in arm.curves.values())
    assert points[1]["rollouts"] == "480"
    with (out / "table.csv").open() as file:
        rows = {(row["arm"], row["measure"]): row for row in csv.DictReader(file)}
    assert float(rows["FST", "reward at the end"]["mean"]) == pytest.approx(found.end(found.arms[0]).mean)
    page = (out / "report.html").read_text()
    svg = (out / "reward.svg").read_bytes()
    if seeds == 1:
        compare_runs([*folders_there(tmp_path)], out, console)
        assert (out / "reward.svg").read_bytes() == svg  # the same data, the same picture
    assert page.count("<svg") == 4
    assert "http://" not in page.replace("http://www.w3.org", "").replace("http://purl.org", "").replace(
        "http://creativecommons.org", ""
    )
    assert "src=" not in page  # one file, nothing beside it
    assert "zorka means &lt;b&gt;reverse&lt;/b&gt; &amp; stop" in page
    assert "<b>reverse</b>" not in page
    assert "zorka &lt;i&gt;means&lt;/i&gt; reverse" in page  # the lineage


def test_runs_with_stages_are_compared_stage_by_stage(tmp_path: Path) -> None:
    """The gain on one stage's task is no measure for another's, so that none is spoken of."""
    rewards = {"fst": {"a": [0.0, 0.6, 0.5], "b": [0.0, 0.1, 0.8]}, "rl": {"a": [0.0, 0.3, 0.1], "b": [0.0, 0.0]}}
    made = [staged_run(tmp_path / method, by_task, method) for method, by_task in rewards.items()]
    console = Console(record=True, width=160)
    compare_runs(made, tmp_path / "out", console)
    shown = console.export_text()
    assert "FST 0.70, RL only 0.30 (of the first 1)" in " ".join(shown.split())
    assert "gain" not in shown
    assert "RL only, seed 0: not finished (interrupted)" in shown
    with (tmp_path / "out" / "table.csv").open() as file:
        rows = {(row["arm"], row["measure"]): row["mean"] for row in csv.DictReader(file)}
    assert rows["FST", "a, at the end of its stage"] == "0.6"
    assert rows["FST", "a, at the end of the run"] == "0.5"
    assert rows["RL only", "a, at the end of its stage"] == "0.3"
    assert rows["RL only", "b, at the end of its stage"] == "nan"  # it is not there yet
    assert rows["RL only", "training rollouts"] == "320.0"
    with Image.open(tmp_path / "out" / "stages.png") as picture:
        assert min(picture.size) > 300
    with pytest.raises(FastSlowError, match="neither --baseline nor --rollouts"):
        compare_runs(made, tmp_path / "out", console, rollouts=100)


def test_the_more_evaluations_are_looked_at_the_further_one_must_be_from_the_first(tmp_path: Path) -> None:
    """An evaluation has a standard deviation of 0.051, a difference of two 0.072. At 95% one must rise by 0.119, the furthest
    of five by 0.168."""

    def rises(name: str, rewards: list[float]) -> bool:
        return Comparison.of(gather([made_run(tmp_path / name, rewards, method="rl")])[0]).baseline_rises

    assert not rises("one below", [0.4, 0.51])
    assert rises("one", [0.4, 0.53])
    assert not rises("five below", [0.4, 0.4, 0.4, 0.56, 0.4, 0.4])
    assert rises("five", [0.4, 0.4, 0.4, 0.575, 0.4, 0.4])
    assert not rises("fall", [0.6, 0.2])


def test_no_cost_is_below_zero_and_no_reward_above_one(tmp_path: Path) -> None:
    """The level is 0.4. One seed reaches it early, the other between steps 30 and 40: the interval over both is wide."""
    made = [made_run(tmp_path / f"rl-{seed}", [0.0, 0.0, 0.4, 0.4, 0.5], method="rl", seed=seed) for seed in range(2)]
    early, late = [0.0, 0.0, 0.9, 0.9, 0.95], [0.0, 0.0, 0.1, 0.1, 0.55]
    made += [made_run(tmp_path / f"fst-{seed}", row, seed=seed) for seed, row in enumerate((early, late))]
    found = Comparison.of(gather(made)[0])
    (fst,) = found.others
    cost, end = found.cost(fst, "steps"), found.end(fst)
    assert (cost.mean, cost.low) == (pytest.approx((10 + 10 * 4 / 9 + 30 + 10 * 2 / 3) / 2), 0)
    assert cost.high > 100
    assert (end.mean, end.high) == (pytest.approx(0.75), 1)

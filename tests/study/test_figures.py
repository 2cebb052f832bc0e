"""The picture of hand-made curves."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest
from PIL import Image

from fastslow.recipe.model import Method
from fastslow.study.arms import LOOKS, Arm
from fastslow.study.curves import Curve, Estimate
from fastslow.study.figures import _level, draw_curves, dress_estimates, new_figure, save, titled
from fastslow.study.sentences import headline


def curve(*rewards: float, step: int = 100) -> Curve:
    return Curve(
        steps=tuple(range(len(rewards))),
        rollouts=tuple(step * index for index in range(len(rewards))),
        tokens=(float("nan"),) * len(rewards),
        rewards=rewards,
        lows=tuple(reward - 0.05 for reward in rewards),
        highs=tuple(reward + 0.05 for reward in rewards),
        kls=(0.0,) * len(rewards),
        seed_kls=(0.0,) * len(rewards),
        seconds=(1.0,) * len(rewards),
    )


ONE: dict[Method, list[Curve]] = {"fst": [curve(0.1, 0.8)], "rl": [curve(0.1, 0.3)], "gepa": [curve(0.1, 0.9)]}


def test_every_method_looks_different() -> None:
    assert set(LOOKS) == set(get_args(Method))
    for part in ("name", "does", "colour", "marker"):
        assert len({getattr(look, part) for look in LOOKS.values()}) == len(LOOKS)


def test_the_headline_says_what_the_data_say() -> None:
    assert headline(ONE) == "Reward after 100 rollouts: GEPA only 0.90, FST 0.80, RL only 0.30"
    several = {"fst": [curve(0.1, 0.2, step=1000), curve(0.1, 0.4, step=2000)]}
    assert headline(several) == "Reward after 1,000 to 2,000 rollouts: FST 0.30"


@pytest.mark.parametrize(("reward", "below"), [(0.5, False), (0.98, True)])
def test_the_name_of_a_line_without_updates_stays_inside_the_picture(reward: float, below: bool) -> None:
    figure = new_figure((4, 3))
    axes = figure.subplots()
    axes.set_ylim(0, 1)
    _level(axes, Arm("GEPA only", "gepa", {0: curve(0.1, reward)}), Estimate(reward))
    (note,) = axes.texts
    assert (note.get_position()[1] < 0) == below


@pytest.mark.parametrize("seeds", [1, 3])
def test_a_png_is_written_in_the_colours_of_its_methods(seeds: int, tmp_path: Path) -> None:
    target = tmp_path / "new" / "curves.png"
    draw_curves({method: curves * seeds for method, curves in ONE.items()}, target, "of one task")
    with Image.open(target) as picture:
        assert picture.format == "PNG"
        assert min(picture.size) > 500
        drawn = {colour for _, colour in picture.convert("RGB").getcolors(picture.width * picture.height) or []}
    if seeds == 1:  # lines of several seeds let each other show through
        assert {tuple(bytes.fromhex(LOOKS[method].colour[1:])) for method in ONE} <= drawn
    assert len(drawn) > 10
    assert [path.name for path in target.parent.iterdir()] == ["curves.png"]


def test_names_with_dollars_are_no_formulas(tmp_path: Path) -> None:
    figure = new_figure((4, 3))
    axes = figure.subplots()
    axes.plot([0, 1], [0, 1], label=r"$\frac{$")
    dress_estimates(axes, [r"x^{$ $"])
    titled(figure, r"$\frac{$ is best", "$x^{$", legend=True)
    save(figure, tmp_path, "names")
    assert {each.name for each in tmp_path.iterdir()} == {"names.png", "names.svg"}
    assert r"$\frac{$ is best" in (tmp_path / "names.svg").read_text()

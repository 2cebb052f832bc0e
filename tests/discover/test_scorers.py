"""The scorers of the included problems: against independent oracles, and against solutions that pretend."""

import importlib
import math
from fractions import Fraction
from itertools import combinations, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fastslow.discover.problems._exact import Invalid, convolve, never_better, root_below

SCORERS = (
    "autocorrelation_first",
    "autocorrelation_second",
    "autocorrelation_third",
    "circle_packing",
    "distance_ratio",
    "heilbronn_square",
    "heilbronn_triangle",
    "low_autocorrelation",
    "min_overlap",
)
quick = settings(max_examples=25, deadline=None, derandomize=True)
heights = st.lists(st.floats(0, 1, allow_subnormal=True), min_size=2, max_size=30)


def problem(name):
    return importlib.import_module(f"fastslow.discover.problems.{name}")


def solve(name):
    names = {}
    exec(problem(name).seed, names)
    return names["solve"]()


def score(name, solution):
    return problem(name).score(solution)[0]


def refused(name, solution):
    with pytest.raises(Invalid) as refusal:
        problem(name).score(solution)
    return str(refusal.value)


# Forged solutions ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize(
    "forged", [None, "abc", b"", 7, {}, {"solution": [1.0]}, set(), iter([1.0]), [], object(), ((),)]
)
def test_what_is_no_list_of_the_right_length_is_refused(name, forged):
    assert "must" in refused(name, forged)


@pytest.mark.parametrize("name", SCORERS)
@pytest.mark.parametrize(
    "cell",
    [
        math.nan,
        math.inf,
        -math.inf,
        True,
        "0.5",
        None,
        10**400,
        -(10**16),
        1e300,
        1j,
        [0.5],
        np.bool_(1),
        np.float64("nan"),
    ],
)
def test_a_cell_that_is_no_ordinary_number_is_refused_with_its_place(name, cell):
    solution = [list(row) if isinstance(row, tuple) else row for row in solve(name)]
    if isinstance(solution[0], list):
        solution[1][0] = cell
    else:
        solution[1] = cell
    words = refused(name, solution)
    assert " 1" in words
    assert len(words) < 300


@pytest.mark.parametrize("name", SCORERS)
def test_one_row_too_few_or_too_many_is_refused(name):
    solution = solve(name)
    if name in ("min_overlap", "autocorrelation_first", "autocorrelation_second", "autocorrelation_third"):
        assert "2 to 50000" in refused(name, solution[:1])
        assert "2 to 50000" in refused(name, [0.5] * 50001)
    else:
        assert "must have" in refused(name, solution[:-1])
        assert "must have" in refused(name, [*solution, solution[0]])


@pytest.mark.parametrize("name", SCORERS)
def test_arrays_tuples_and_numpy_numbers_score_as_lists_do(name):
    solution = solve(name)
    assert score(name, np.array(solution)) == score(name, tuple(solution)) == score(name, solution)


# Circle packing --------------------------------------------------------------------------------------------------------


def grid(radius=0.1, last=0.04):
    return [(0.1 + 0.2 * (k % 5), 0.1 + 0.2 * (k // 5), radius) for k in range(25)] + [(0.2, 0.2, last)]


def is_packing(circles):
    """The definition, in rational numbers."""
    inside = all(r >= 0 and r <= x <= 1 - r and r <= y <= 1 - r for x, y, r in circles)
    return inside and all(
        (x - u) ** 2 + (y - v) ** 2 >= (r + s) ** 2 for (x, y, r), (u, v, s) in combinations(circles, 2)
    )


@quick
@given(st.floats(-1e-5, 1e-5), st.integers(0, 25), st.integers(0, 2))
def test_no_packing_scores_more_than_its_valid_part(change, which, column):
    packing = problem("circle_packing")
    circles = [list(circle) for circle in grid(0.0999, 0.0408)]
    circles[which][column] += change
    exact = [[Fraction(cell) for cell in circle] for circle in circles]
    scale = packing.valid_scale(exact)
    if 1 - scale > packing.ROUNDING:
        assert "would be valid" in refused("circle_packing", circles)
        return
    value, _ = packing.score(circles)
    shrunk = [(x, y, r * scale) for x, y, r in exact]
    assert is_packing(shrunk)
    assert Fraction(value) <= sum(r for *_, r in shrunk)
    assert scale == 1 or not is_packing(exact)
    assert (scale == 1) == is_packing(exact)


@pytest.mark.parametrize("by", [1e-7, 1e-9, 1e-12, 1e-15, 5e-324])
def test_an_overlap_by_rounding_is_shrunk_away_and_never_pays(by):
    valid = score("circle_packing", grid(0.0999))
    overlapping = grid(0.0999)
    overlapping[0] = (0.1, 0.1, 0.1 + by)  # past two sides
    alone = [(x, y, 0.1 if k == 0 else r) for k, (x, y, r) in enumerate(grid(0.0999))]
    assert valid <= score("circle_packing", overlapping) <= score("circle_packing", alone)


def test_a_real_overlap_is_refused_with_the_pair_and_the_size():
    circles = grid(0.09)
    circles[25] = (0.2, 0.2, 0.06)
    words = refused("circle_packing", circles)
    assert "overlap by 0.00858" in words
    assert "Circles 0 and 25" in words
    assert "0.0514" not in words  # one number for all radii, not a radius
    assert "would be valid" in words


@pytest.mark.parametrize(
    ("circle", "said"),
    [
        ((0.5, 0.5, -0.1), "radius -0.1"),
        ((-0.2, 0.5, 0.1), "outside"),
        ((0.05, 0.3, 0.1), "left side by 0.05"),
        ((0.1, 0.1, 0.001), "overlap"),
    ],
)
def test_each_broken_rule_of_a_packing_has_its_words(circle, said):
    assert said in refused("circle_packing", [*grid(0.09)[:25], circle])


def test_the_words_name_circles_that_could_grow():
    words = problem("circle_packing").score(grid(0.1 - 1e-3))[1]
    assert "circle 25 by 0.00242" in words


# Heilbronn -------------------------------------------------------------------------------------------------------------

coordinates = st.floats(0, 1)


@quick
@given(st.lists(st.tuples(coordinates, coordinates), min_size=10, max_size=10))
def test_the_smallest_triangle_of_a_square_is_the_oracle_s(points):
    def area(a, b, c):  # the shoelace formula on rationals
        ring = [a, b, c, a]
        exact = [tuple(map(Fraction, point)) for point in ring]
        return abs(sum(p[0] * q[1] - q[0] * p[1] for p, q in pairwise(exact))) / 2

    least = min(area(*triple) for triple in combinations(points, 3))
    if least:
        value = score("heilbronn_square", points)
        assert Fraction(value) <= least
        assert value == pytest.approx(float(least), rel=1e-15, abs=5e-324)
    else:
        assert "one line" in refused("heilbronn_square", points)


def test_a_triangle_of_another_shape_has_the_same_score():
    points = solve("heilbronn_triangle")
    flipped = [(y, x) for x, y in points]
    turned = [(1 - x - y, x) for x, y in points]
    assert score("heilbronn_triangle", points) == score("heilbronn_triangle", flipped)
    assert score("heilbronn_triangle", turned) == pytest.approx(score("heilbronn_triangle", points), rel=1e-12)


@pytest.mark.parametrize("name", ["heilbronn_square", "heilbronn_triangle"])
def test_a_point_outside_by_rounding_never_pays_and_one_further_out_is_named(name):
    points = solve(name)
    points[4] = (0.0, 0.5)
    inside = score(name, points)
    for by in (5e-324, 1e-15, 1e-10):
        points[4] = (-by, 0.5)
        assert score(name, points) <= inside + 2 * by + 1e-17
    points[4] = (-1e-6, 0.5)
    assert "Point 4" in refused(name, points)


# Autocorrelation -------------------------------------------------------------------------------------------------------


@quick
@given(heights.filter(lambda values: max(values) > 1e-300))
def test_the_constants_of_autocorrelation_are_those_of_a_float_oracle(values):
    f = np.array(values) / max(values)
    conv = np.convolve(f, f)
    assert score("autocorrelation_first", values) == pytest.approx(2 * len(f) * conv.max() / f.sum() ** 2, rel=1e-9)
    fine = np.interp(np.linspace(0, 2 * len(f), 64 * len(f) + 1), np.arange(2 * len(f) + 1), [0, *conv, 0])
    flat = np.trapezoid(fine**2) / (np.trapezoid(fine) * conv.max())  # 32 points a step: an error of less than 1e-3
    assert score("autocorrelation_second", values) == pytest.approx(flat, rel=2e-3)
    g = f - 0.3 * f[::-1] ** 2
    if abs(g.sum()) > 1e-3:
        expected = 2 * len(g) * np.abs(np.convolve(g, g)).max() / g.sum() ** 2
        assert score("autocorrelation_third", list(g)) == pytest.approx(expected, rel=1e-6)


@quick
@given(heights.filter(lambda values: max(values) > 1e-3), st.sampled_from([1e-290, 0.1, 3.0, 1e9]))
def test_scale_and_mirror_do_not_matter(values, factor):
    for name in ("autocorrelation_first", "autocorrelation_second", "autocorrelation_third"):
        mirrored = [value * factor for value in reversed(values)]
        assert score(name, mirrored) == pytest.approx(score(name, values), rel=1e-10)


def test_bounds_that_are_proven_hold_for_every_function():
    draw = np.random.default_rng(3)
    for steps in (2, 3, 17, 60):
        values = list(draw.random(steps) ** 3)
        assert score("autocorrelation_first", values) >= 1.28
        assert score("autocorrelation_second", values) <= 1
        assert score("min_overlap", list((np.array(values) - np.mean(values)) / 2 + 0.5)) >= 0.379005


def test_a_negative_peak_counts_in_the_third_and_a_negative_height_not_at_all_in_the_others():
    values = [1.0, -3.0, 1.0, 3.0, -1.0, 2.0]
    expected = 2 * 6 * np.abs(np.convolve(values, values)).max() / sum(values) ** 2
    assert score("autocorrelation_third", values) == pytest.approx(expected)
    for name in ("autocorrelation_first", "autocorrelation_second"):
        assert "height 1: -3" in refused(name, values)
    assert "sum to 0" in refused("autocorrelation_third", [1.0, -1.0])
    for name in ("autocorrelation_first", "autocorrelation_second", "autocorrelation_third"):
        assert "All heights are 0" in refused(name, [0.0, 0, 0.0])


def test_long_functions_and_extreme_heights_are_scored():
    values = [5e-324, *np.random.default_rng(0).random(3000), 0.0]
    f = np.array(values)
    expected = 2 * len(f) * np.convolve(f, f).max() / f.sum() ** 2
    assert score("autocorrelation_first", values) == pytest.approx(expected, rel=1e-9)
    assert score("autocorrelation_first", [5e-324, 5e-324]) == 2
    assert score("autocorrelation_first", [1e15, 1]) == pytest.approx(4, rel=1e-9)


# Minimum overlap -------------------------------------------------------------------------------------------------------


@quick
@given(st.lists(st.floats(0, 1), min_size=1, max_size=20))
def test_the_overlap_is_the_oracle_s(half):
    values = [*half, *(1 - value for value in half)]  # the mean is 1/2
    h = np.array(values)
    expected = np.correlate(h, 1 - h, "full").max() * 2 / len(h)
    assert score("min_overlap", values) == pytest.approx(expected, rel=1e-9)


def test_a_mean_away_from_one_half_is_corrected_or_refused():
    fair = score("min_overlap", [0.25, 0.75, 0.75, 0.25])
    for by in (-1e-8, -1e-12, 1e-12, 1e-8):
        assert score("min_overlap", [0.25, 0.75, 0.75 + by, 0.25]) == pytest.approx(fair, abs=2e-8)
    assert "must be 0.5" in refused("min_overlap", [0.25, 0.75, 0.75, 0.2])
    assert "Height 2 is 1.2" in refused("min_overlap", [0.5, 0.3, 1.2, 0.0])
    assert "Height 0 is -0.1" in refused("min_overlap", [-0.1, 1.0, 0.6, 0.5])


# Signs and distances ---------------------------------------------------------------------------------------------------


def test_the_merit_factor_of_the_barker_code_is_known():
    merit = problem("low_autocorrelation").merit
    assert merit([1, 1, 1, 1, 1, -1, -1, 1, 1, -1, 1, -1, 1])[0] == pytest.approx(169 / 12)


@quick
@given(st.lists(st.sampled_from([1, -1, 1.0, -1.0]), min_size=101, max_size=101))
def test_the_merit_factor_is_the_oracle_s(signs):
    spectrum = np.abs(np.fft.fft(signs, 256)) ** 2  # the energy from the spectrum
    shifts = np.fft.ifft(spectrum).real[1:101]
    assert score("low_autocorrelation", signs) == pytest.approx(101**2 / (2 * (shifts**2).sum()), rel=1e-9)


@pytest.mark.parametrize("sign", [0, 2, 1.0000001, -1e-9])
def test_another_value_than_a_sign_is_refused(sign):
    assert "Sign 7" in refused("low_autocorrelation", [*([1] * 7), sign, *([1] * 93)])


@quick
@given(st.lists(st.tuples(st.floats(-9, 9), st.floats(-9, 9)), min_size=16, max_size=16, unique=True))
def test_the_ratio_is_the_oracle_s_and_never_below(points):
    squares = [
        sum((Fraction(a) - Fraction(b)) ** 2 for a, b in zip(p, q, strict=True)) for p, q in combinations(points, 2)
    ]
    if min(squares) == 0:
        assert "are the same" in refused("distance_ratio", points)
    elif max(squares) / min(squares) < 10**300:
        assert Fraction(score("distance_ratio", points)) >= max(squares) / min(squares)


def test_a_ratio_too_large_for_a_float_is_refused():
    assert "too large" in refused("distance_ratio", [(5e-324 * k, 0.0) for k in range(15)] + [(9.0, 0.0)])


# Arithmetic ------------------------------------------------------------------------------------------------------------

whole = st.integers(-(10**30), 10**30)


@quick
@given(st.lists(whole, min_size=1, max_size=9), st.lists(whole, min_size=1, max_size=9))
def test_the_product_of_polynomials_is_exact(left, right):
    expected = [0] * (len(left) + len(right) - 1)
    for i, a in enumerate(left):
        for j, b in enumerate(right):
            expected[i + j] += a * b
    assert convolve(left, right) == expected


@quick
@given(st.fractions(0, 10**9) | st.floats(0, 1e9).map(Fraction))
def test_the_root_is_below_and_close(value):
    root = root_below(value)
    assert root**2 <= value
    assert not value or root**2 >= value * (1 - Fraction(1, 2**90))


@quick
@given(st.fractions(-1000, 1000))
def test_a_reported_score_is_never_better_than_the_exact_one(value):
    assert Fraction(never_better(value, "maximize")) <= value <= Fraction(never_better(value, "minimize"))

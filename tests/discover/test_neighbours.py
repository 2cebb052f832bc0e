"""Problems written for OpenEvolve and for gepa's optimize_anything, as those libraries' users write them."""

import textwrap

import pytest
from discover_helpers import recipe, search_of
from fake_engine import END, FakeEngine
from fake_runs import run

from fastslow.base.errors import TaskError
from fastslow.discover import Failed, neighbours
from fastslow.discover.neighbours import openevolve
from fastslow.discover.neighbours.export import export
from fastslow.discover.problem import load_problem
from fastslow.records import Completion
from fastslow.runs.folder import RunFolder

PROGRAM = """\
# EVOLVE-BLOCK-START
def guess():
    return 2.0
# EVOLVE-BLOCK-END


def run():
    return guess()
"""
EVALUATOR = """\
import importlib.util
from pathlib import Path

from helper import best
from openevolve.evaluation_result import EvaluationResult


def evaluate(program_path):
    spec = importlib.util.spec_from_file_location("program", program_path)
    program = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(program)
    value = program.run()
    if value is None:
        return {"combined_score": 0.0, "error": "run() returned nothing"}
    score = -abs(value - best(Path(__file__).parent))
    return EvaluationResult(metrics={"combined_score": score, "closeness": 1.0}, artifacts={"hint": "try more"})
"""
HELPER = "def best(folder):\n    return float((folder / 'best.txt').read_text())\n"


@pytest.fixture
def folder(tmp_path):
    files = {"initial_program.py": PROGRAM, "evaluator.py": EVALUATOR, "helper.py": HELPER, "best.txt": "5"}
    files["config.yaml"] = "evaluator: {timeout: 7}\nprompt: {system_message: Find the number.}\n"
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def script(folder, text, name="main.py"):
    place = folder / name
    place.write_text(textwrap.dedent(text))
    return place


# OpenEvolve ------------------------------------------------------------------------------------------------------------


def test_a_folder_of_openevolve_is_a_problem(folder):
    problem = load_problem(folder)
    assert (problem.goal, problem.seed, problem.suffix, problem.seconds) == ("maximize", PROGRAM, ".py", 7)
    assert problem.about.startswith("Find the number. Only the lines between EVOLVE-BLOCK-START")
    scored = problem.evaluate(PROGRAM)
    assert scored.score == -3
    assert "hint: try more" in scored.words
    assert problem.evaluate(PROGRAM.replace("2.0", "4.5")).score == -0.5


def test_an_error_among_the_metrics_makes_a_candidate_invalid(folder):
    problem = load_problem(folder)
    nothing = problem.evaluate(PROGRAM.replace("return 2.0", "pass"))  # its 0.0 would be a record among negative scores
    assert nothing.score is None
    assert "run() returned nothing" in nothing.words
    assert "division" in problem.evaluate(PROGRAM.replace("2.0", "1 / 0")).words


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("return guess()", "return 5"), "'return guess()' became 'return 5'"),
        (("# EVOLVE-BLOCK-END\n", ""), "must alternate"),
        (("def run", "best = 5\n\n\ndef run"), "became 'best = 5'"),
    ],
)
def test_only_the_block_evolves(change, said):
    with pytest.raises(Failed, match=said.replace("(", r"\(").replace(")", r"\)")):
        openevolve.check_fixed(PROGRAM, PROGRAM.replace(*change))


def test_what_is_in_blocks_and_blank_lines_outside_may_change():
    two = PROGRAM + "# EVOLVE-BLOCK-START\nb = 1\n# EVOLVE-BLOCK-END\n"
    openevolve.check_fixed(
        two, two.replace("2.0", "9\n\nx = 4").replace("b = 1", "").replace("\n\n\ndef run", "\n\ndef run")
    )
    openevolve.check_fixed("no markers = 1", "anything")
    with pytest.raises(Failed, match="must keep 2"):
        openevolve.check_fixed(two, PROGRAM)


def test_metrics_without_a_combined_score_count_by_their_mean(folder):
    (folder / "evaluator.py").write_text("def evaluate(path):\n    return {'a': 1.0, 'b': 2, 'c': 'text', 'd': True}\n")
    assert load_problem(folder).evaluate(PROGRAM).score == 1.5
    (folder / "evaluator.py").write_text("def evaluate(path):\n    return {'c': 'text'}\n")
    assert "returned no number" in load_problem(folder).evaluate(PROGRAM).words


def test_an_evaluator_may_start_python(folder):
    if not load_problem(folder).processes:
        assert "processes = False" in neighbours.find(folder).source
    (folder / "evaluator.py").write_text(
        "import subprocess, sys\n\n\ndef evaluate(path):\n"
        "    command = [sys.executable, '-c', 'import numpy; print(numpy.float64(7))']\n"
        "    said = subprocess.run(command, capture_output=True, text=True)\n"
        "    return {'combined_score': float(said.stdout)}\n"
    )
    problem = load_problem(folder)
    assert problem.processes
    assert problem.evaluate(PROGRAM).score == 7


class Guesses(FakeEngine):
    """A policy that writes the program with another number, or with a line changed that does not evolve."""

    def _completion(self, text, draw):
        number = draw.randrange(10)
        change = ("2.0", f"{number}.0") if number else ("return guess()", "return 5")
        self.tokenizer.words[1 + number] = f"```python\n{PROGRAM.replace(*change)}```"
        return Completion((1 + number, END), (-0.5, -0.5))


def test_a_search_in_a_folder_of_openevolve_improves_its_block_and_is_exported(folder, tmp_path):
    (folder / "best.txt").write_text("5")
    place = tmp_path / "run"
    changes = recipe("rl", slow={"problems": 1, "group": 8, "steps": 2, "advantage": "entropic", "patience": None})
    run(place, changes, Guesses(), task=search_of(folder))
    done = RunFolder.open(place)
    best, rows = done.read_json("best.json"), list(done.rows("candidates"))
    assert best["score"] > -3
    assert any("became 'return 5'" in row.get("words", "").replace("    ", "") for row in rows)
    program = export("openevolve", load_problem(folder), best, rows, place / "openevolve")
    assert program.read_text() == (place / "best.py").read_text()
    openevolve.check_fixed(PROGRAM, program.read_text())


# gepa ------------------------------------------------------------------------------------------------------------------


def test_a_script_that_calls_optimize_anything_is_a_problem(tmp_path):
    place = script(
        tmp_path,
        """
        import gepa.optimize_anything as oa
        from gepa.optimize_anything import EngineConfig, GEPAConfig, optimize_anything

        def evaluate(candidate, opt_state=None):
            assert opt_state.best_example_evals == []
            oa.log("length", len(candidate))
            if "!" in candidate:
                return 99.0, {"error": "no exclamation marks"}
            return float(len(candidate)), {"text": candidate, "hint": "longer"}

        def main():
            try:
                optimize_anything("abc", evaluator=evaluate, objective="Write much.",
                                  config=GEPAConfig(engine=EngineConfig(max_metric_calls=3)))
            except Exception:
                pass

        if __name__ == "__main__":
            main()
        """,
    )
    problem = load_problem(place)
    assert (problem.goal, problem.seed, problem.about, problem.suffix) == ("maximize", "abc", "Write much.", ".txt")
    scored = problem.evaluate("abcd")
    assert scored.score == 4
    assert "hint: longer" in scored.words
    assert "length 4" in scored.words
    assert "text" not in scored.words  # the candidate itself is no news
    assert problem.evaluate("abc!").score is None


def test_examples_count_by_their_mean_and_a_valset_verifies(tmp_path):
    place = script(
        tmp_path,
        """
        from gepa.optimize_anything import optimize_anything

        def evaluate(candidate, example):
            return len(candidate["a"]) * example - len(candidate["b"])

        optimize_anything(seed_candidate={"a": "xx", "b": "y"}, evaluator=evaluate, dataset=[1, 3], valset=[10])
        """,
    )
    problem = load_problem(place)
    assert problem.suffix == ".json"
    assert problem.evaluate(problem.seed).score == 3
    assert problem.verify(problem.seed).score == 19
    assert "a text for each of a, b" in problem.evaluate('{"a": "x"}').words
    assert "no JSON" in problem.evaluate("x").words


def test_a_script_that_is_part_of_a_package_finds_it(tmp_path):
    package = tmp_path / "examples" / "one"
    package.mkdir(parents=True)
    (package / "parts.py").write_text("SEED = 'seed text'\n")
    place = script(
        package,
        """
        from examples.one.parts import SEED
        from gepa.optimize_anything import optimize_anything
        optimize_anything(SEED, batch_evaluator=lambda pairs: [(float(len(text)), {}) for text, _ in pairs])
        """,
    )
    problem = load_problem(place)
    assert problem.seed == "seed text"
    assert problem.evaluate("four").score == 4


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("optimize_anything(evaluator=len)", "no seed_candidate"),
        ("optimize_anything('a')", "no evaluator"),
        ("if False: optimize_anything('a')", "ends without a call"),
        ("raise SystemExit(2)\noptimize_anything('a')", r"ended itself \(2\) before it called .* without arguments"),
    ],
)
def test_a_script_that_is_no_problem_is_refused_in_one_line(tmp_path, call, said):
    place = script(tmp_path, f"from gepa.optimize_anything import optimize_anything\n{call}\n")
    with pytest.raises(TaskError, match=said) as refusal:
        load_problem(place)
    assert "\n" not in str(refusal.value)


def test_a_folder_with_one_script_is_that_script(tmp_path):
    text = "from gepa.optimize_anything import optimize_anything\noptimize_anything('a', evaluator=len)\n"
    script(tmp_path, text)
    script(tmp_path, "def helper(): return 1\n", "utils.py")
    assert load_problem(tmp_path).evaluate("abc").score == 3.0
    script(tmp_path, text, "other.py")
    assert neighbours.find(tmp_path) is None


def test_other_folders_and_files_are_not_taken_for_theirs(tmp_path):
    assert neighbours.find(tmp_path) is None
    assert neighbours.find(script(tmp_path, "goal = 'maximize'  # no optimize_anything\n")) is None
    assert neighbours.find(tmp_path / "missing.py") is None

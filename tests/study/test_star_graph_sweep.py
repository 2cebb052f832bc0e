"""The sweep over star graphs measures every setting once and resumes."""

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("star_graph_sweep", ROOT / "benchmarks" / "star_graph_sweep.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_sweep_measures_what_is_new_and_keeps_the_rest(
    script: ModuleType,
    tiny_folder: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def sweep(degrees: str, *more: str) -> list[list[str]]:
        """The rows of the table that is printed."""
        small = ["evaluation.problems=4", "evaluation.k=2", "sampling.max_tokens=4", f"model={tiny_folder}"]
        script.main(["--degrees", degrees, "--paths", "2", "--nodes", "9", "--out", str(tmp_path), *small, *more])
        lines = capsys.readouterr().out.splitlines()
        return [[cell.strip() for cell in line.split("│")[1:-1]] for line in lines if line.startswith("│")]

    monkeypatch.setenv("COLUMNS", "120")
    nothing = "0.000 [0.000, 0.490]"  # none of four: Wilson's interval reaches up to 3.84 / (4 + 3.84)
    assert sweep("3") == [["3", "2", "0.333", nothing, nothing]]
    score = json.loads((tmp_path / "untrained" / "degree-3-path-2.json").read_text())["score"]
    assert (score["problems"], score["k"], score["mean"]) == (4, 2, 0)
    measured = []
    real = script.evaluate
    monkeypatch.setattr(
        script, "evaluate", lambda player, *rest, **more: measured.append(player) or real(player, *rest, **more)
    )
    assert sweep("3,2", "evaluation.every=5") == [
        ["2", "2", "0.500", nothing, nothing],
        ["3", "2", "0.333", nothing, nothing],
    ]
    assert [player.task.options.degree for player in measured] == [2]
    assert sweep("3,400") == [["3", "2", "0.333", nothing, nothing], ["400", "2", "0.003", "does not fit", ""]]
    with pytest.raises(SystemExit):
        sweep("3", "evaluation.k=3")
    assert "measured with other settings; give the same ones, or another --out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--degrees", "2,x", "--paths", "2"], "'2,x' are not whole numbers, as in 2,5,25"),
        (
            ["--degrees", "2", "--paths", "2", "--methods", "ppo"],
            "there is no method ['ppo']; expected some of fst,rl,gepa",
        ),
        (["--degrees", "1", "--paths", "2", "model=nano"], "degree=1 leaves nothing to choose between"),
        (["--degrees", "2", "--paths", "2", "slow.step=3"], "slow.step"),
    ],
)
def test_mistakes_are_told(
    script: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        script.main([*arguments, "--out", str(tmp_path / "out")])
    assert message in capsys.readouterr().err

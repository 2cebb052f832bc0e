"""The result of a search as OpenEvolve and gepa write theirs."""

import json

import pytest
from gepa.core.result import GEPAResult

from fastslow.discover.neighbours.export import export
from fastslow.discover.problem import load_problem


def row(number, name, parent, score, text, **others):
    return {"number": number, "id": name, "parent": parent, "by": "policy", "score": score, "text": text, **others}


ROWS = [
    row(1, "seed", "", 18.0, "def solve(): ..."),
    row(2, "invalid", "seed", None, "x"),
    row(3, "child", "seed", 17.0, "better"),
    row(4, "false", "child", None, "a false record", first=1.0, checks=[17.0, None], reason="unverified"),
    row(5, "best", "child", 16.0, "the best", first=16.0, checks=[16.0, 16.0]),
    {"number": 5, "id": "best", "announced": 16.0},
]
BEST = {"id": "best", "score": 16.0}


def test_openevolve_reads_the_best_program_and_its_lineage(tmp_path):
    file = export("openevolve", load_problem("distance-ratio"), BEST, ROWS, tmp_path / "out")
    assert file.name == "best_program.py"
    assert file.read_text() == "the best"
    info = json.loads((tmp_path / "out" / "best_program_info.json").read_text())
    assert set(info) == {"id", "generation", "iteration", "timestamp", "parent_id", "metrics", "language", "saved_at"}
    assert (info["id"], info["parent_id"], info["generation"], info["iteration"]) == ("best", "child", 2, 5)
    assert info["metrics"] == {"combined_score": -16.0, "score": 16.0}
    assert info["language"] == "python"


@pytest.mark.parametrize("again", [1, 2])
def test_gepa_reads_the_result_and_finds_the_same_best(tmp_path, again):
    for _ in range(again):
        file = export("gepa", load_problem("distance-ratio"), BEST, ROWS, tmp_path)
    result = GEPAResult.from_dict(json.loads(file.read_text()))
    assert result.best_candidate == "the best"
    assert result.val_aggregate_scores == [-18.0, -17.0, -16.0]
    assert result.parents == [[None], [0], [1]]
    assert result.total_metric_calls == 5
    assert "a false record" not in file.read_text()

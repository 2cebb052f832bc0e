from __future__ import annotations

from pathlib import Path

from fastslow.runs.reading import Place, Places


def make(*folders: Path) -> None:
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")


def test_runs_are_found_below_the_named_folders_and_named_uniquely(tmp_path: Path) -> None:
    make(tmp_path / "a/one", tmp_path / "a/deep/er/two", tmp_path / "b/one", tmp_path / ".hidden/three")
    places = Places([tmp_path / "a", tmp_path / "b", tmp_path / "a/one"])
    found = places.find()
    assert {name: place.path for name, place in found.items()} == {
        "one": tmp_path / "a/one",
        "deep/er/two": tmp_path / "a/deep/er/two",
        "b/one": tmp_path / "b/one",
    }
    assert places.find()["one"] is found["one"]
    make(tmp_path / "b/new")
    assert "new" in places.find()


def test_no_link_leads_out_of_a_named_folder(tmp_path: Path) -> None:
    make(tmp_path / "runs/a", tmp_path / "elsewhere/b")
    (tmp_path / "secret.jsonl").write_text('{"secret": 1}\n')
    (tmp_path / "runs/linked").symlink_to(tmp_path / "elsewhere/b")
    (tmp_path / "runs/a/metrics.jsonl").symlink_to(tmp_path / "secret.jsonl")
    (tmp_path / "runs/a/contexts").symlink_to(tmp_path / "elsewhere")
    (place,) = Places([tmp_path / "runs"]).find().values()
    assert place.file("metrics.jsonl") is None
    assert place.file("../../secret.jsonl") is None
    assert place.file("contexts/b/run.json") is None
    assert place.file("run.json") == tmp_path / "runs/a/run.json"


def test_damaged_json_is_noted(tmp_path: Path) -> None:
    place = Place("run", tmp_path, tmp_path)
    (tmp_path / "run.json").write_text("{")
    (tmp_path / "list.json").write_text("[]")
    assert (place.json("run.json"), place.json("list.json"), place.json("missing.json")) == ({}, {}, {})
    assert set(place.notes) == {"run.json", "list.json"}
    (tmp_path / "run.json").write_text('{"status": "running"}')
    assert place.json("run.json") == {"status": "running"}
    assert set(place.notes) == {"list.json"}

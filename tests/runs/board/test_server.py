from __future__ import annotations

import asyncio
import json
import re
import shutil
import threading
from pathlib import Path
from typing import Any

import httpx
import pytest
from board_helpers import HOSTILE, Hostile, make_run, serving

from fastslow.base.errors import RunError
from fastslow.runs.board.page import FILES, LONGEST, _shortened, write_snapshot
from fastslow.runs.board.server import EVERY, Watch, is_local
from fastslow.runs.board.views import Views

VIEWS = ("runs", "run", "curves", "spending", "text", "matrix", "rollouts")


@pytest.fixture(scope="module")
def url(finished: Path) -> object:
    with serving(finished.parent) as url:
        yield url


def test_every_view_answers_and_nothing_can_be_written(url: str) -> None:
    with httpx.Client(base_url=url) as client:
        for path in ("/", *(f"/static/{name}" for name in FILES), *(f"/api/{view}?run=fst" for view in VIEWS)):
            answer = client.get(path)
            assert answer.status_code == 200, path
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "unsafe" not in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert client.post(path).status_code == 405


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/api/run?run=../fst", 404),
        ("/api/run?run=/etc", 404),
        ("/api/run", 404),
        ("/api/rollout?run=fst&file=../run.json&row=0", 404),
        ("/api/rollout?run=fst&file=step-000001&row=x", 400),
        ("/api/rollouts?run=fst&from=two", 400),
        ("/api/context?run=fst&id=../../x", 404),
        ("/static/../server.py", 404),
        ("/static/%2e%2e/server.py", 404),
        ("/static/vendor/../../page.py", 404),
        ("/etc/passwd", 404),
    ],
)
def test_nothing_else_is_served(url: str, path: str, status: int) -> None:
    answer = httpx.get(url[:-1] + path)
    assert answer.status_code == status
    assert "Traceback" not in answer.text


def test_two_contexts_are_compared_over_http(finished: Path, tmp_path: Path) -> None:
    shutil.copytree(finished, tmp_path / "other")
    with serving(finished, tmp_path) as url, httpx.Client(base_url=url) as client:
        nodes = client.get("/api/text?run=fst").json()["nodes"]
        best, seed = next(node["id"] for node in nodes if node["best"]), nodes[0]["id"]
        found = client.get(f"/api/difference?run=fst&id={best}&against={seed}").json()["difference"]
        assert ["new", "say yes"] in found[0]["lines"]
        assert client.get(f"/api/difference?run=fst&id={best}&other=other&against={seed}").json()["difference"] == found
        same = client.get(f"/api/difference?run=fst&id={best}&other=other&against={best}").json()["difference"]
        assert {kind for part in same for kind, _ in part["lines"]} == {"same"}
        for query in (f"id={best}&other=nobody&against={seed}", f"id={best}&against=nobody", f"id=../x&against={seed}"):
            assert client.get(f"/api/difference?run=fst&{query}").status_code == 404


def test_a_name_that_was_pointed_at_this_machine_gets_nothing(url: str) -> None:
    assert httpx.get(url, headers={"host": "evil.example"}).status_code == 400


def test_beyond_this_machine_a_token_is_needed(finished: Path) -> None:
    with serving(finished, hosts=["*"], token="secret") as url, httpx.Client(base_url=url) as client:
        assert client.get("/api/runs").status_code == 401
        assert client.get("/?token=wrong").status_code == 401
        entered = client.get("/?token=secret")
        assert entered.status_code == 303
        assert "token" not in entered.headers["location"]
        assert "httponly" in entered.headers["set-cookie"].lower()
        assert client.get("/api/runs").status_code == 200
    assert [is_local(host) for host in ("127.0.0.1", "localhost", "::1", "0.0.0.0", "10.0.0.1", "here")] == [
        *(True, True, True, False, False, False)
    ]


def test_a_change_is_told_to_every_viewer(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / "run.json").write_text("{}")
    looked = threading.Event()

    class Looks(Watch):
        def _versions(self) -> dict[str, dict[str, Any]]:
            found = super()._versions()
            looked.set()
            return found

    watch = Looks(Views([tmp_path]))

    async def viewer(ready: asyncio.Semaphore) -> str:
        events = watch.events()
        await anext(events)
        ready.release()
        told = await asyncio.wait_for(anext(events), 60)
        await events.aclose()  # type: ignore[attr-defined]
        return told

    async def both() -> list[str]:
        ready = asyncio.Semaphore(0)
        viewers = [asyncio.create_task(viewer(ready)) for _ in range(3)]
        for _ in viewers:
            await ready.acquire()
        assert await asyncio.to_thread(looked.wait, 60)  # the first look at the folders
        (run / "metrics.jsonl").write_text('{"step": 1}\n')
        (tmp_path / "another").mkdir()
        (tmp_path / "another/run.json").write_text("{}")
        return await asyncio.gather(*viewers)

    assert EVERY < 1, "with the fetch that follows, new rows are to show within two seconds"
    for told in asyncio.run(both()):
        changed = json.loads(told.partition("data: ")[2])
        assert changed["run"] == ["metrics"]
        assert "run" in changed["another"]
    assert not watch.viewers


def test_a_snapshot_holds_everything_and_runs_nothing_foreign(tmp_path: Path) -> None:
    folder = make_run(tmp_path / "runs/hostile", task=Hostile())
    path = tmp_path / "out.html"
    assert write_snapshot(Views([folder]), path) == 1
    page = path.read_text()
    assert "<script>window.hacked" not in page
    assert page.count("<script") == page.count("</script>") == len([name for name in FILES if name.endswith("js")]) + 1
    assert not re.findall(r"""(?:src|href)=["']?https?:""", page)
    policy = re.search(r'content-security-policy" content="([^"]*)"', page)
    assert policy is not None
    assert "unsafe" not in policy[1]
    data = json.loads(page.partition('id="snapshot">')[2].partition("</script>")[0])
    (run,) = data["runs"]
    assert HOSTILE in run["rollouts"][0]["full"]["example"]
    assert set(run["contexts"]) == {node["id"] for node in run["text"]["nodes"]}
    with pytest.raises(RunError, match="no run under"):
        write_snapshot(Views([tmp_path / "nothing"]), path)


def test_a_snapshot_has_the_beginning_of_a_long_text() -> None:
    long, short = "a" * (LONGEST + 5), "b" * LONGEST
    turns = [{"question": long, "answer": short, "tokens": [1]}, {"question": None, "answer": long, "tokens": [1]}]
    found = _shortened({"turns": turns, "feedback": long})
    cut = f"{long[:LONGEST]} … (5 more characters are not in this snapshot)"
    assert found["feedback"] == cut
    assert found["turns"] == [
        {"question": cut, "answer": short, "tokens": [1]},
        {"question": None, "answer": cut, "tokens": []},
    ]

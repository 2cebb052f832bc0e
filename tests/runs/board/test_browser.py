"""The board in a real browser: every view of finished, growing, failed, damaged and hostile runs; no console error."""

from __future__ import annotations

import base64
import csv
import json
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest
from board_helpers import HOSTILE, Hostile, expecting, make_run, serving

from fastslow.runs.board.page import write_snapshot
from fastslow.runs.board.server import Watch
from fastslow.runs.board.views import Views
from fastslow.runs.folder import RunFolder

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")
DRAWN = {
    **{"curves": ".u-over", "text": ".tree button", "rollouts": ".list .row", "spending": "table.spend"},
    "recipe": ".diff > div",
}


def sync_api() -> Any:
    api = pytest.importorskip("playwright.sync_api")
    api.expect.set_options(timeout=60_000)
    return api


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    make_run(folder / "fst")
    make_run(folder / "rl", "rl")
    make_run(folder / "failed", fails_at=5)
    make_run(folder / "hostile", task=Hostile())
    seed = json.loads((folder / "hostile/contexts/seed.json").read_text())
    seed["texts"]["system"] += f"\n{HOSTILE}"
    (folder / "hostile/contexts/seed.json").write_text(json.dumps(seed))
    shutil.copytree(folder / "fst", folder / "damaged")
    (folder / "damaged/contexts/cycle-0001.json").write_text('{"cycle": 1')
    (folder / "damaged/rollouts/step-000003.parquet").write_bytes(b"PAR1 no")
    with (folder / "damaged/metrics.jsonl").open("a") as file:
        file.write('garbage\n{"step": 8')
    (folder / "starting").mkdir()
    (folder / "starting/run.json").write_text('{"status": "running"}')
    shutil.copytree(folder / "fst", folder / "growing")
    state = json.loads((folder / "growing/run.json").read_text())
    (folder / "growing/run.json").write_text(json.dumps({**state, "status": "running"}))
    return folder


@pytest.fixture(scope="module")
def url(folder: Path) -> Iterator[str]:
    with serving(folder) as url:
        yield url


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_api().sync_playwright() as started:
        browser = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page whose console must stay empty."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    page.set_default_timeout(60_000)
    yield page
    page.close()
    assert told == []


def test_the_list_of_runs_leads_to_overlaid_curves(page: Page, url: str) -> None:
    page.goto(url)
    sync_api().expect(page.locator("table.runs tbody tr")).to_have_count(7)
    assert "failed" in page.locator('tr[data-run="failed"]').inner_text()
    assert "damaged" in page.locator('tr[data-run="damaged"] .pill.warn').all_inner_texts()
    page.get_by_label("choose fst").check()
    page.get_by_label("choose rl").check()
    page.get_by_text("Overlay 2 runs").click()
    page.wait_for_selector('[data-chart="Reward"] .u-over')
    legend = page.locator('[data-chart="Reward"] .u-legend').inner_text()
    assert "fst, validation" in legend
    assert "rl, validation" in legend
    drawn = """name => [...document.querySelectorAll('[data-chart="Answer length"] .u-legend tr')]
        .filter(row => row.innerText.trim().startsWith(name))
        .map(row => getComputedStyle(row.querySelector(".u-marker")).backgroundColor)"""
    assert page.evaluate(drawn, "fst") == ["rgb(213, 94, 0)"]  # as in the list, the docs and the figures of compare
    assert page.evaluate(drawn, "rl") == ["rgb(0, 114, 178)"]


@pytest.mark.parametrize("run", ["fst", "failed", "damaged", "hostile"])
def test_every_view_of_every_kind_of_run(page: Page, url: str, run: str) -> None:
    page.goto(f"{url}#/curves?run={run}")
    for view, drawn in DRAWN.items():
        page.locator("nav a", has_text=view.capitalize()).click()
        page.wait_for_selector(drawn)
        if run == "failed":
            assert "the power is out" in page.locator(".note.bad").inner_text()
        if run == "damaged" and view == "curves":
            assert "metrics.jsonl: 1 damaged line skipped" in page.locator(".note").inner_text()
    assert page.evaluate("window.hacked") is None


def test_hover_shows_numbers_and_the_axis_can_be_chosen(page: Page, url: str, folder: Path) -> None:
    page.goto(f"{url}#/curves?run=fst")
    rows = [json.loads(line) for line in (folder / "fst/metrics.jsonl").read_text().splitlines()]
    plot = page.locator('[data-chart="Reward"] .u-over')
    box = plot.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    expect = sync_api().expect
    legend = page.locator('[data-chart="Reward"] .u-legend tr', has_text="training")
    expect(legend).to_contain_text(f"{rows[-1]['reward']:.3f}".rstrip("0"))
    page.get_by_role("button", name="rollouts", exact=True).click()
    expect(page.locator('[data-chart="Reward"] .u-legend tr').first).to_contain_text("rollouts")
    assert "x=rollouts" in page.url


def test_the_text_view_answers_what_was_learnt(page: Page, url: str, folder: Path) -> None:
    page.goto(f"{url}#/text?run=fst")
    rule = page.locator("table.rules tbody tr", has_text="say yes").first
    assert "cycle" in rule.inner_text()
    rule.locator("button.mono").click()
    page.wait_for_selector("#context .diff .new")
    assert "say yes" in page.locator("#context .diff .new").all_inner_texts()
    said = page.locator("#context").inner_text()
    assert "on the minibatch" in said
    assert "The feedback that led to it" in said
    page.get_by_label("also rejected and dropped ones").check()
    cycles = [json.loads(path.read_text()) for path in sorted((folder / "fst/contexts").glob("cycle-*.json"))]
    shown = {button.get_attribute("data-node") for button in page.locator(".tree button").all()}
    assert shown >= {edit["child"] for cycle in cycles for edit in cycle["edits"]}
    assert page.locator(".matrix tr").count() == len(cycles[-1]["population"]) + len(cycles[-1]["dropped"])


def test_an_expected_score_is_not_shown_as_measured(page: Page, folder: Path, tmp_path: Path) -> None:
    run = expecting(folder / "fst", tmp_path / "digest")
    last = RunFolder(run).cycles()[-1]
    played = last["population"][1]
    with serving(run) as url:
        page.goto(f"{url}#/text?run=digest&context={played['id']}")
        page.wait_for_selector("#context h2")
        said = page.locator("main").inner_text()
        assert "on the minibatch" not in said
        assert "Who solves what" not in said
        assert "not a measurement" in said
        node = page.locator(f'.tree [data-node="{played["id"]}"]').inner_text()
        assert "expected, measured 0.000 in 36 rollouts" in node
        other = page.locator(f'.tree [data-node="{last["population"][0]["id"]}"]').inner_text()
        assert "expected, not played in this cycle" in other
        scores = page.locator("#context table", has_text="expected score")
        assert scores.locator("th").all_inner_texts()[2:5] == ["expected score", "anchors", "measured"]
        cells = scores.locator("tbody tr").last.locator("td").all_inner_texts()
        assert cells[2:5] == [f"{played['score']:.3f}", str(len(last["anchors"])), "0.000 in 36 rollouts"]
        row = page.locator(".matrix tr", has_text=played["id"])
        assert "measured 0.000 in 36 rollouts" in row.inner_text()
        cell = row.locator("td button").first
        assert ": expected " in (cell.get_attribute("title") or "")
        assert "--rl" not in (cell.get_attribute("style") or "")
        page.goto("about:blank")
    with serving(folder / "fst") as url:
        page.goto(f"{url}#/text?run=fst")
        page.wait_for_selector("#context h2")
        said = page.locator("main").inner_text()
        assert "Who solves what" in said
        assert "expected" not in said
        page.goto("about:blank")


def test_a_link_leads_to_the_difference_of_two_runs(page: Page, url: str, folder: Path) -> None:
    expect = sync_api().expect
    page.goto(f"{url}#/text?run=fst")
    page.wait_for_selector("#context h2")
    page.get_by_role("button", name="difference from another").click()
    page.get_by_label("run of the other context").select_option("hostile")
    expect(page.locator(".against .diff").first).to_be_visible()
    seed = json.loads((folder / "hostile/contexts/seed.json").read_text())["id"]
    page.get_by_label("other context", exact=True).select_option(seed)
    expect(page.locator(".against .diff .new", has_text="say yes")).to_be_visible()
    assert "<script>" in page.locator(".against .diff .gone").inner_text()
    assert {"other=hostile", f"against={seed}"} <= set(page.url.split("&"))
    page.set_viewport_size({"width": 390, "height": 800})
    address, shown = page.url, page.locator(".against .diff").all_inner_texts()
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator(".against .diff .new", has_text="say yes")).to_be_visible()
    assert page.locator(".against .diff").all_inner_texts() == shown
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.evaluate("window.hacked") is None
    page.get_by_role("button", name="difference from its parent").click()
    expect(page.locator(".against")).to_have_count(0)
    assert "against=" not in page.url


def test_rollouts_can_be_filtered_read_and_compared(page: Page, url: str) -> None:
    page.goto(f"{url}#/rollouts?run=fst")
    page.wait_for_selector("#rollout .turn.answer")
    page.get_by_label("played for").select_option("slow")
    page.get_by_label("to step").fill("2")
    sync_api().expect(page.get_by_text("32 of ")).to_be_visible()
    row = page.locator(".list .row").first
    row.click()
    row.press("ArrowDown")
    page.wait_for_selector('.list .row[aria-current][data-index="1"]')
    page.get_by_label("shade tokens by log-probability").check()
    assert page.locator("#rollout .shade span[title]").count() >= 1
    page.get_by_text("the same problem under all contexts").click()
    page.wait_for_selector(".side > div")
    assert "One problem, every context" in page.locator("main").inner_text()


def test_two_runs_are_read_side_by_side(page: Page, url: str, folder: Path) -> None:
    expect = sync_api().expect
    page.goto(f"{url}#/text?run=fst")
    page.get_by_label("run beside it").select_option("hostile")
    left, right = (page.locator(f'main > [data-run="{name}"]') for name in ("fst", "hostile"))
    cycles = [json.loads(path.read_text()) for path in sorted((folder / "hostile/contexts").glob("cycle-*.json"))]
    expect(left.locator("#context h2")).to_be_visible()
    expect(right.locator("#context2 h2")).to_contain_text(cycles[-1]["best"])
    shown = left.locator("#context").inner_text()
    right.locator(".tree button").first.click()
    expect(right.locator("#context2")).to_contain_text("<script>")
    assert left.locator("#context").inner_text() == shown
    assert "context2=" in page.url
    address = page.url
    page.locator("nav a", has_text="Rollouts").click()
    expect(right.locator("#rollout2 h2")).to_be_visible()
    page.get_by_label("problem").fill("train-25")
    for column, name in ((left, "fst"), (right, "hostile")):
        found = httpx.get(f"{url}api/rollouts", params={"run": name, "problem": "train-25"}).json()
        assert found["total"] < found["all"]
        expect(column.get_by_role("status").last).to_contain_text(f"{found['total']} of {found['all']} rollouts")
        expect(column.locator("h2").nth(1)).to_contain_text("train-25")
    right.locator(".list .row").nth(1).click()
    expect(right.locator('.list .row[aria-current][data-index="1"]')).to_be_visible()
    expect(left.locator('.list .row[aria-current][data-index="0"]')).to_be_visible()
    assert "rollout2=" in page.url
    page.set_viewport_size({"width": 390, "height": 800})
    for place in (page.url, address):
        page.goto("about:blank")
        page.goto(place)
        expect(right.locator("h2").nth(1)).to_be_visible()
        page.wait_for_timeout(300)
        assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    assert page.evaluate("window.hacked") is None
    page.get_by_label("run beside it").select_option("")
    expect(page.locator("main > [data-run]")).to_have_count(0)


def test_words_are_found_and_one_rollout_has_an_address(page: Page, url: str, folder: Path) -> None:
    expect = sync_api().expect
    page.goto(f"{url}#/rollouts?run=fst")
    page.get_by_label("words", exact=True).fill("nobody ever said this")
    expect(page.locator(".list")).to_contain_text("No rollout passes these filters.")
    expect(page.locator("#rollout")).to_be_empty()
    page.get_by_label("words", exact=True).fill("say yes")
    expect(page.locator("#rollout h2")).to_be_visible()
    first = page.locator("#rollout").inner_text()
    page.locator(".list .row").nth(1).click()
    page.wait_for_function("first => document.querySelector('#rollout').innerText !== first", arg=first)
    assert "words=say" in page.url
    assert "rollout=" in page.url
    shown, address = page.locator("#rollout").inner_text(), page.url
    page.goto("about:blank")
    page.goto(address)
    expect(page.locator("#rollout h2")).to_be_visible()
    assert page.locator("#rollout").inner_text() == shown


def test_what_is_drawn_can_be_downloaded(page: Page, url: str, folder: Path) -> None:
    page.goto(f"{url}#/curves?run=fst&run=rl")
    page.wait_for_selector('[data-chart="Reward"] .u-over')
    sync_api().expect(page.locator('[data-chart="Reward"] .u-legend tr').first).to_contain_text("rollouts")
    with page.expect_download() as started:
        page.get_by_role("button", name="CSV").click()
    rows = list(csv.DictReader(Path(started.value.path()).read_text().splitlines()))
    drawn = [float(row["value"]) for row in rows if (row["chart"], row["curve"]) == ("Reward", "rl")]
    metrics = [json.loads(line) for line in (folder / "rl/metrics.jsonl").read_text().splitlines()]
    assert drawn == pytest.approx([row["reward"] for row in metrics], abs=1e-3)


def test_rollouts_and_charts_can_be_downloaded(page: Page, url: str, tmp_path: Path, folder: Path) -> None:
    snapshot = tmp_path / "out.html"
    write_snapshot(Views([folder / "fst"]), snapshot)
    found, tables = [], []
    for address in (url, snapshot.as_uri()):
        page.goto(f"{address}#/rollouts?run=fst&high=0&from=6")
        page.wait_for_selector(".list .row")
        with page.expect_download() as started:
            page.get_by_role("button", name="JSONL").click()
        assert started.value.suggested_filename == "fst.jsonl"
        found.append([json.loads(line) for line in Path(started.value.path()).read_text().splitlines()])
        with page.expect_download() as started:
            page.get_by_role("button", name="CSV").click()
        assert started.value.suggested_filename == "fst.csv"
        with Path(started.value.path()).open(newline="") as file:
            tables.append(sorted([cell.removesuffix(".0") for cell in row] for row in csv.reader(file)))
    assert tables[0] == tables[1]
    assert len(tables[0]) == len(found[0]) + 1
    assert found[0]
    assert {each["score"] for each in found[0]} == {0}
    key = lambda each: (each["file"], each["row"])  # noqa: E731
    assert sorted(found[1], key=key) == sorted(({**each} for each in found[0]), key=key)
    page.goto(f"{url}#/curves?run=fst")
    page.wait_for_selector('[data-chart="Reward"] .u-over')
    with page.expect_download() as started:
        page.get_by_role("button", name="PNG of Reward", exact=True).click()
    expect = sync_api().expect
    expect(page.get_by_role("button", name="PNG of Answer length")).to_be_visible()
    expect(page.get_by_role("button", name="PNG of Entropy")).to_have_count(0)  # nothing is drawn there
    image = Path(started.value.path()).read_bytes()
    assert image.startswith(b"\x89PNG")
    pixels = """async (data) => {
        const image = new Image(), canvas = document.createElement("canvas"), ctx = canvas.getContext("2d");
        image.src = "data:image/png;base64," + data;
        await image.decode();
        [canvas.width, canvas.height] = [image.width, image.height];
        ctx.drawImage(image, 0, 0);
        const found = ctx.getImageData(0, 0, image.width, 60).data, colours = {};
        for (let at = 0; at < found.length; at += 4) colours[found.slice(at, at + 3).join(" ")] = true;
        return Object.keys(colours);
    }"""
    colours = page.evaluate(pixels, base64.b64encode(image).decode())
    assert {"255 255 255", "125 125 125", "213 94 0"} <= set(
        colours
    )  # the page, and the keys of training and validation


def test_rows_arrive_by_themselves(page: Page, url: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expect = sync_api().expect
    looked, look = threading.Event(), Watch._versions

    def looks(watch: Watch) -> Any:
        found = look(watch)
        looked.set()
        return found

    monkeypatch.setattr(Watch, "_versions", looks)
    page.goto(f"{url}#/runs")
    page.wait_for_selector('.live[data-state="live"]')
    rows = (folder / "growing/metrics.jsonl").read_text().splitlines()

    def append(step: int) -> None:
        with (folder / "growing/metrics.jsonl").open("a") as file:
            file.write(json.dumps({**json.loads(rows[-1]), "step": step, "reward": 0.5 ** (step - 5)}) + "\n")

    assert looked.wait(60)  # the board's first look at the folders
    append(8)
    expect(page.locator('tr[data-run="growing"]')).to_contain_text("8 / 7")
    page.goto(f"{url}#/curves?run=growing&x=steps")
    page.wait_for_selector('[data-chart="Reward"] .u-over')
    page.wait_for_timeout(300)
    box = page.locator('[data-chart="Reward"] .u-over').bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] - 1, box["y"] + 20)
    append(9)
    expect(page.locator('[data-chart="Reward"] .u-legend tr', has_text="training")).to_contain_text("0.063")


def test_hostile_texts_are_shown_as_text(page: Page, url: str) -> None:
    page.goto(f"{url}#/rollouts?run=hostile&low=1&purpose=slow&problem=train-25")
    page.wait_for_selector("#rollout .turn.grader .text")
    said = page.locator("#rollout .turn.grader .text")
    assert "<script>window.hacked=1</script><img src=x onerror=" in said.inner_text()
    assert {"U+202E", "U+001B", "U+0000"} <= set(said.locator(".control").all_inner_texts())
    assert len(said.inner_text()) < 30_000
    said.get_by_text("show the other").click()
    said.get_by_text("show the other").wait_for(state="detached")
    assert len(said.inner_text()) > 1_000_000
    assert page.locator("main img, main script").count() == 0
    assert page.evaluate("window.hacked") is None
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        ("interrupted", "Stopped: SIGTERM", "This run was interrupted: SIGTERM (step 7 is saved)"),
        ("stopped", "nothing is learnt", "This run stopped: nothing is learnt (step 7 is saved)"),
    ],
)
def test_how_a_run_ended_is_said_in_one_word(
    page: Page, folder: Path, tmp_path: Path, status: str, error: str, said: str
) -> None:
    for name in ("ended", "other"):  # one run alone would be opened at once
        shutil.copytree(folder / "fst", tmp_path / name)
    RunFolder(tmp_path / "ended").set_status(status, error=error)
    with serving(tmp_path) as url:
        page.goto(url)
        sync_api().expect(page.locator('tr[data-run="ended"] .pill').first).to_contain_text(status)
        page.goto(f"{url}#/curves?run=ended")
        sync_api().expect(page.locator(".note")).to_have_text(said)
        assert (page.locator(".note.bad").count() == 0) == (status == "interrupted")
        page.goto("about:blank")  # before its server ends


def test_curves_of_frozen_weights_say_where_the_rollouts_are(page: Page, tmp_path: Path) -> None:
    run = make_run(tmp_path / "gepa", "gepa")
    with serving(run) as url:
        page.goto(f"{url}#/curves?run=gepa")
        page.wait_for_selector('[data-chart="Reward"] .u-over')
        sync_api().expect(page.locator('[data-chart="Rollouts by purpose"]')).to_contain_text("Spending has")
        (run / "evals.jsonl").unlink()
        page.reload()
        sync_api().expect(page.locator(".empty")).to_contain_text("No evaluation yet")
        page.goto("about:blank")


@pytest.mark.parametrize("run", ["starting", "rl"])
def test_what_is_missing_is_said(page: Page, url: str, run: str) -> None:
    page.goto(f"{url}#/text?run={run}")
    page.wait_for_selector(".empty")
    page.goto(f"{url}#/curves?run={run}")
    page.wait_for_selector(".empty" if run == "starting" else ".u-over")


def test_the_list_and_the_curves_take_the_whole_window(page: Page, url: str) -> None:
    page.set_viewport_size({"width": 1400, "height": 900})
    width = "each => each.getBoundingClientRect().width"
    page.goto(f"{url}#/runs")
    page.wait_for_selector("table.runs tbody tr")
    assert page.locator("table.runs").evaluate(width) <= page.locator("main .scroll").evaluate(width)
    assert page.locator("main .scroll").evaluate(width) == 1400 - 48
    for runs in ("run=fst", "run=fst&run=rl"):
        page.goto(f"{url}#/curves?{runs}")
        page.wait_for_selector('[data-chart="Reward"] .u-over')
        assert page.locator('[data-chart="Reward"]').evaluate(width) == 1400 - 48
        columns = "each => getComputedStyle(each).gridTemplateColumns.split(' ').length"
        assert page.locator(".charts").evaluate(columns) == 3


@pytest.mark.parametrize("ratio", [1, 2])
def test_long_labels_of_an_axis_are_not_clipped(browser: Browser, folder: Path, tmp_path: Path, ratio: int) -> None:
    shutil.copytree(folder / "rl", tmp_path / "rl")
    path = tmp_path / "rl/metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text("".join(json.dumps({**row, "kl": -1e-4 * row["step"]}) + "\n" for row in rows))
    page = browser.new_page(viewport={"width": 1400, "height": 900}, device_scale_factor=ratio)
    with serving(tmp_path) as url:
        page.goto(f"{url}#/curves?run=rl")
        page.wait_for_selector('[data-chart="KL from the base model"] .u-over')
        edge = """each => {
            const ctx = each.getContext("2d"), ink = x => ctx.getImageData(x, 0, 1, each.height).data.some(value => value);
            return [...Array(60 * devicePixelRatio).keys()].findIndex(ink);
        }"""
        for chart in ("KL from the base model", "Reward"):
            assert page.locator(f'[data-chart="{chart}"] canvas').evaluate(edge) > 0, chart
        page.close()


@pytest.mark.parametrize("width", [1440, 1024, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_view_of_one_run_or_two_is_wider_than_the_screen(page: Page, url: str, width: int, scheme: Any) -> None:
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme)
    fits = "document.documentElement.scrollWidth - innerWidth"
    page.goto(f"{url}#/runs")
    page.wait_for_selector("table.runs tbody tr")
    assert page.evaluate(fits) <= 0
    page.locator('tr[data-run="fst"] .runname').click()
    for view, drawn in DRAWN.items():
        page.locator("nav a", has_text=view.capitalize()).click()
        page.wait_for_selector(drawn)
        assert page.evaluate(fits) <= 0, view
    for view in set(DRAWN) - {"curves"}:
        page.locator("nav a", has_text=view.capitalize()).click()
        page.wait_for_selector(DRAWN[view])
        page.get_by_label("run beside it").select_option("hostile")
        for name in ("fst", "hostile"):
            sync_api().expect(page.locator(f'main > [data-run="{name}"] {DRAWN[view]}').first).to_be_visible()
        assert page.evaluate(fits) <= 0, f"{view} of two runs"
        page.get_by_label("run beside it").select_option("")
        sync_api().expect(page.locator("main > [data-run]")).to_have_count(0)
    dark = page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(17, 20, 23)"
    assert dark == (scheme == "dark")


def test_runs_are_found_by_tags_and_words(page: Page, url: str, folder: Path) -> None:
    expect = sync_api().expect
    page.goto(url)
    rows = page.locator("table.runs tbody tr")
    expect(rows).to_have_count(7)
    RunFolder(folder / "fst").tag(["best-of-all"])
    RunFolder(folder / "rl").tag(["best-of-all"])
    page.locator('tr[data-run="rl"]').get_by_role("button", name="best-of-all").click()  # it came by itself
    expect(rows).to_have_count(2)
    assert "filter=best-of-all" in page.url
    page.get_by_label("choose fst").check()
    page.get_by_label("filter").fill("BEST rl only")
    expect(rows).to_have_count(1)
    expect(rows).to_contain_text("RL only")
    page.reload()
    expect(rows).to_have_count(1)
    expect(page.get_by_text("Overlay 1 run")).to_be_visible()
    page.get_by_label("filter").fill("nobody")
    expect(rows).to_contain_text("No run passes this filter.")


def test_spending_and_recipes_of_two_runs_stand_side_by_side(page: Page, url: str) -> None:
    expect = sync_api().expect
    page.goto(f"{url}#/spending?run=fst&run=rl")
    left, right = (page.locator(f'main > [data-run="{name}"]') for name in ("fst", "rl"))
    expect(left.locator("table.spend").first).to_contain_text("anchors")
    expect(right.locator("table.spend").first).to_contain_text("slow loop")
    page.get_by_role("button", name="tokens", exact=True).click()
    for column in (left, right):
        expect(column.locator('[data-chart="Tokens by purpose"]')).to_be_visible()
    page.locator("nav a", has_text="Recipe").click()
    expect(left.locator(".diff .new", has_text="method: fst")).to_be_visible()
    expect(right.locator(".diff .new", has_text="method: rl")).to_be_visible()
    expect(right.locator(".diff .new")).to_have_count(1)


def test_a_snapshot_works_without_a_server(page: Page, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "out.html"
    write_snapshot(Views([folder / "fst", folder / "hostile"]), path)
    page.goto(path.as_uri())
    for view, drawn in {"runs": "table.runs tbody tr", **DRAWN}.items():
        page.goto(f"{path.as_uri()}#/{view}?run=hostile")
        page.wait_for_selector(drawn)
    page.goto(f"{path.as_uri()}#/rollouts?run=fst&high=0")
    page.wait_for_selector("#rollout .turn.answer")
    assert "snapshot of" in page.locator(".live").inner_text()
    assert page.evaluate("window.hacked") is None

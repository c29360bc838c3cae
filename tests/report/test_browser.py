"""The page in a real browser, without a network."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cpdispatch import cli
from cpdispatch.analyze import metrics
from cpdispatch.simulator import Run

pytest.importorskip("bokeh", reason="Bokeh is not installed", exc_type=ImportError)
playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome") or ""
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no Chromium on this machine")
ARGUMENTS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def opened(chromium: Any, page: Path) -> Iterator[tuple[Any, list[str], list[str]]]:
    """A tab with the page, what it says, and what it asks for."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, offline=True)
    tab = context.new_page()
    said: list[str] = []
    asked: list[str] = []
    tab.on("console", lambda m: said.append(m.text) if m.type in ("error", "warning") else None)
    tab.on("pageerror", lambda error: said.append(str(error)))
    tab.on("request", lambda request: asked.append(request.url))
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-drawn]")
    yield tab, said, asked
    context.close()


@pytest.fixture
def shown(opened: tuple[Any, list[str], list[str]], page: Path) -> Iterator[Any]:
    """The page as it was when it was opened; fails if it complains or asks for anything."""
    tab, said, asked = opened
    tab.evaluate(
        """() => { theme("light"); element("filters").reset(); element("run").value = 0;
        gantt.alone = 4000; filter(); gantt.home(); drawTimes(); }"""
    )
    yield tab
    assert said == []
    assert asked == [page.as_uri()]


def until(tab: Any, expression: str) -> None:
    """Wait until something is so; the page's own policy forbids Playwright's way of waiting."""
    for _ in range(250):
        if tab.evaluate(expression):
            return
        tab.wait_for_timeout(20)
    raise AssertionError(f"never: {expression}")


@pytest.fixture(scope="module")
def saf(folder: Path) -> Run:
    return Run.load(folder / "easy-saf-saf")


def test_the_page_has_every_plot_and_no_empty_box(shown: Any) -> None:
    names = ("users", "queue", "use", "ecdf_wait", "box_wait", "decisions", "steps", "gap")
    for name in names:
        assert shown.evaluate(f"documents.{name}.all_models.size") > 5
        assert shown.locator(f"#plot-{name}").bounding_box()["height"] > 200
    assert shown.evaluate("gantt.mode") == "jobs"
    assert shown.evaluate("source('queue', 'queue-0').data.y.some((y) => y > 0)")


def test_waits_and_percentiles_are_those_of_the_run(shown: Any, saf: Run) -> None:
    schedule = saf.schedule()
    wait, slow = metrics.wait_s(schedule), metrics.bounded_slowdown(schedule)
    assert shown.evaluate("[...runs[1].slow]") == slow.tolist()
    strips = shown.evaluate("source('box_wait', 'box_wait-1').data")
    for name, share in (("p25", 25), ("p50", 50), ("p95", 95)):
        assert strips[name][0] == pytest.approx(max(np.percentile(wait, share), 1), rel=1e-12)
    assert strips["mean"][0] == pytest.approx(saf.metrics["wait_s_mean"], rel=1e-12)


def test_queue_and_utilisation_are_exact_means(shown: Any, saf: Run) -> None:
    schedule = saf.schedule()
    end = shown.evaluate("gantt.end")
    for plot, total in (
        ("queue", metrics.wait_s(schedule).sum() / end),
        ("use", (metrics.runtime_s(schedule) * schedule.units).sum() / 8 / end),
    ):
        drawn = shown.evaluate(f"source('{plot}', '{plot}-1').data.y")
        assert np.mean(drawn) == pytest.approx(total, rel=1e-9)


def test_a_filter_applies_to_figures_and_pictures(shown: Any, saf: Run) -> None:
    shown.fill("#user", "2")
    of = (saf.jobs["user"].astype(str) == "2").to_numpy()
    wait = metrics.wait_s(saf.schedule())[of]
    assert f"{of.sum()} jobs" in shown.inner_text("#chosen")
    strips = shown.evaluate("source('box_wait', 'box_wait-1').data")
    assert strips["mean"][0] == pytest.approx(wait.mean(), rel=1e-12)
    assert shown.evaluate("runs[0].bars.faded.some((x) => x)")
    shown.fill("#user", "nobody")
    assert "has no user nobody" in shown.inner_text("#chosen")
    shown.click("text=all jobs")
    until(shown, "chosen === null")
    assert "All jobs are shown" in shown.inner_text("#chosen")


def test_zoom_goes_down_to_seconds_and_back_by_buttons_and_keys(shown: Any) -> None:
    whole = shown.evaluate("gantt.end - gantt.begin")
    shown.click("[data-act=in]")
    assert shown.evaluate("gantt.end - gantt.begin") == pytest.approx(whole / 2)
    shown.focus("#gantt")
    for _ in range(25):
        shown.keyboard.press("+")
    assert shown.evaluate("gantt.end - gantt.begin") == 5
    until(shown, "document.querySelector('#window').textContent.includes('(5 s)')")
    shown.keyboard.press("Home")
    assert shown.evaluate("gantt.end - gantt.begin") == whole
    shown.locator("#gantt").dblclick(position={"x": 500, "y": 100})
    assert shown.evaluate("gantt.end - gantt.begin") == pytest.approx(whole / 4)


def test_many_bars_are_drawn_as_shares_of_use(shown: Any) -> None:
    seen = shown.evaluate(
        """() => { gantt.alone = 0; gantt.draw();
        const pen = gantt.canvas.getContext("2d"), colours = new Set();
        const [w, h] = gantt.size, image = pen.getImageData(gantt.left, 0, w, h).data;
        for (let k = 0; k < image.length; k += 4) colours.add(image[k]);
        return [gantt.mode, colours.size]; }"""
    )
    assert seen[0] == "raster"
    assert seen[1] > 10


def test_long_names_of_nodes_have_room(shown: Any) -> None:
    lefts = shown.evaluate(
        """() => { const { spans } = gantt, left = gantt.left, found = [];
        for (const name of ["16core-2gpu-16384mb 62", "x".repeat(200)]) {
          gantt.spans = () => [{ first: 0, name }]; gantt.fit(); found.push(gantt.left);
        }
        gantt.spans = spans; gantt.fit();
        return [left, gantt.left, ...found, gantt.canvas.clientWidth / 6]; }"""
    )
    assert lefts[0] == lefts[1] == 66
    assert lefts[2] > 130
    assert lefts[3] == pytest.approx(lefts[4], abs=1)


def test_a_click_on_a_bar_and_a_search_show_a_job_s_life(shown: Any, saf: Run) -> None:
    shown.select_option("#run", "1")
    row = int(np.argmax(metrics.wait_s(saf.schedule())))
    job = saf.jobs.iloc[row]
    shown.fill("#job", str(job["id"]))
    shown.click("#find button")
    life = shown.inner_text("#life")
    assert f"Job {job['id']}, user {job['user']}" in life
    assert f"Requested: {job['units']} × (1 core)" in life
    assert "why it waited" in life
    assert "not enough core was free" in life or "others had come before it" in life
    place = shown.evaluate(
        """() => { const b = gantt.bars, k = b.job.findIndex((j) => j !== gantt.selected
        && b.start[b.job.indexOf(j)] < gantt.end && b.end[b.job.indexOf(j)] > gantt.begin);
        const x = (Math.max(b.start[k], gantt.begin) + Math.min(b.end[k], gantt.end)) / 2;
        return [gantt.x(x), gantt.y(b.first[b.offset[k]] + 0.5), columns.id[b.job[k]]]; }"""
    )
    shown.locator("#gantt").click(position={"x": place[0], "y": place[1]})
    assert f"Job {place[2]}," in shown.inner_text("#life")
    shown.fill("#job", "99999")
    shown.click("#find button")
    assert "has no job 99999" in shown.inner_text("#life")


def test_a_life_says_when_there_was_room_first(shown: Any, saf: Run) -> None:
    """Against a count second by second, of every job that waited."""
    jobs = saf.jobs
    held = np.zeros(int(jobs["end"].max()) + 1, dtype=np.int64)
    for job in jobs.itertuples():
        held[job.start : job.end] += job.units
    none = rooms = 0
    for row, job in enumerate(jobs.itertuples()):
        if job.start == job.submit:
            continue
        fits = held[job.submit : job.start] + job.units <= 8
        found = shown.evaluate(f"firstRoom(runs[1], {row})")
        if not fits.any():
            assert found is None
            none += 1
            continue
        first = int(np.argmax(fits))
        length = int(np.argmin(fits[first:])) or len(fits) - first
        begin = job.submit + first - int(jobs["submit"].min())
        assert found == [begin, begin + length]
        rooms += 1
    assert none > 10
    assert rooms > 10


def test_what_was_free_at_a_submission_is_beside_attempts_that_were_lost(
    chromium: Any, tmp_path: Path
) -> None:
    log = tmp_path / "small.csv"
    rows = "".join(f"{k},{k * 5},{20 + k * 37 % 50},100,{1 + k % 5},1\n" for k in range(1, 61))
    log.write_text(f"id,submit,runtime,requested,units,core\n{rows}")
    given = ["--system", "8", "--restartable", "all", "-d", "easy:test=10,tests=turn"]
    assert cli.run(["simulate", str(log), *given, "--out", str(tmp_path / "runs")]) == 0
    page = tmp_path / "page.html"
    assert cli.run(["report", str(tmp_path / "runs"), "--out", str(page)]) == 0
    run = Run.load(tmp_path / "runs")
    ids = run.jobs["id"].tolist()
    units = dict(zip(ids, run.jobs["units"], strict=True))
    spans = [(job.id, job.start, job.end) for job in run.jobs.itertuples()]
    lost = run.jobs[run.jobs["lost_start"] >= 0]
    spans += [(job.id, job.lost_start, job.lost_end) for job in lost.itertuples()]
    tab = chromium.new_page()
    tab.goto(page.as_uri())
    tab.wait_for_selector("html[data-drawn]")
    beside_lost = 0
    for row, job in enumerate(run.jobs.itertuples()):
        now = job.submit
        held = [
            k for k, (id, start, end) in enumerate(spans)
            if start <= now < end and id != job.id and (start < now or id < job.id)
        ]  # fmt: skip
        beside_lost += any(k >= len(ids) for k in held)
        free = 8 - sum(units[spans[k][0]] for k in held)
        said = tab.evaluate(f"new Map(fact(runs[0], {row})).get('at its submission')")
        assert said.startswith(f"core: {free} free, {job.units} asked for")
    assert beside_lost > 5
    tab.close()


def test_light_and_dark_follow_the_system_and_the_switch(shown: Any) -> None:
    def ground() -> str:
        return str(shown.evaluate("getComputedStyle(document.body).backgroundColor"))

    def line() -> str:
        return str(
            shown.evaluate(
                "[...documents.queue.all_models].find((m) => m.type === 'Step' && m.tags[0] === 1)"
                ".line_color.value ?? ''"
            )
        )

    assert ground() == "rgb(255, 255, 255)"
    light = line()
    shown.click("#theme")
    assert ground() == "rgb(20, 24, 30)"
    assert line() != light
    shown.click("#theme")
    for theme in ("dark", "light"):
        shown.emulate_media(color_scheme=theme)
        until(shown, f"document.documentElement.dataset.theme === '{theme}'")


def test_text_has_contrast_enough(shown: Any) -> None:
    """WCAG 2 AA: 4.5 to 1 for text."""
    for _ in range(2):
        for name in ("--ink", "--soft", "--accent", "--better", "--worse"):
            for back in ("--back", "--plot"):
                pair = shown.evaluate(
                    f"""['{name}', '{back}'].map((n) =>
                    getComputedStyle(document.documentElement).getPropertyValue(n).trim())"""
                )
                assert contrast(*pair) >= 4.5, (name, back, pair)
        shown.click("#theme")


def contrast(one: str, other: str) -> float:
    def light(colour: str) -> float:
        parts = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
        linear = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    high, low = sorted((light(one), light(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_a_telephone_needs_no_scrolling_sideways(shown: Any) -> None:
    shown.set_viewport_size({"width": 390, "height": 844})
    until(shown, "document.documentElement.scrollWidth <= 390")
    shown.set_viewport_size({"width": 1280, "height": 900})


def test_every_control_and_picture_has_a_name(shown: Any) -> None:
    nameless = shown.evaluate(
        """[...document.querySelectorAll("button, input, select, canvas#gantt, figure")]
        .filter((e) => !(e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length))
        .map((e) => e.outerHTML)"""
    )
    assert nameless == []

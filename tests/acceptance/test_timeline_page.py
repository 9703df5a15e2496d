"""The timeline's page in a real browser: hover, zoom, pan, filter, keys, hostile text, 50,000 tasks (A6)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Literal, NamedTuple, Protocol

import pytest
from playwright.sync_api import Browser, Page, expect

from penstock.diagnosis.recording import Recording
from penstock.diagnosis.timeline.bars import timeline_of
from penstock.diagnosis.timeline.page import page as drawn
from penstock.diagnosis.timeline.page import page_data
from penstock.model import State, Verdict
from tests.acceptance import browser_rig
from tests.acceptance.browser_rig import Watched
from tests.unit.timeline_rig import BEGIN, attempt, huge, record, recording, small, task, wait

AXIS = 20  # pixels above the first row
EVIL = "<img src=x onerror=\"document.title='taken'\">"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("pages")


class View(NamedTuple):
    start: float
    end: float
    rows: int
    row_height: float
    top: float


class Shown:
    """A timeline in a tab."""

    def __init__(self, page: Page, watched: Watched, url: str) -> None:
        self.page = page
        self.watched = watched
        self.url = url
        self.canvas = page.locator("#bars")
        self.story = page.locator("#story")
        page.wait_for_selector("#bars[data-ready=yes][data-rows]")

    def view(self) -> View:
        """After what was asked for has been drawn."""
        told = self.page.evaluate(
            "() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame("
            "() => done({...document.getElementById('bars').dataset}))))"
        )
        names = ("from", "to", "rows", "rowHeight", "top")
        start, end, rows, height, top = (float(told[name]) for name in names)
        return View(start, end, int(rows), height, top)

    def place(self, row: int, time: float) -> tuple[float, float]:
        """Where on the screen a row is at a time."""
        view = self.view()
        box = self.canvas.bounding_box()
        assert box is not None
        left, plot = self.page.evaluate("() => [view.left, view.plot]")
        x = box["x"] + left + (time - view.start) / (view.end - view.start) * plot
        return x, box["y"] + AXIS + (row + 0.5 - view.top) * view.row_height

    def point(self, row: int, time: float) -> None:
        self.page.mouse.move(*self.place(row, time))

    def colour(self, row: int, time: float) -> list[int]:
        x, y = self.place(row, time)
        box = self.canvas.bounding_box()
        assert box is not None
        found: list[int] = self.page.evaluate(
            "([x, y]) => [...document.getElementById('bars').getContext('2d').getImageData(x, y, 1, 1).data]",
            [x - box["x"], y - box["y"]],
        )
        return found[:3]

    def choose(self, name: str, label: str) -> int:
        self.page.select_option(f"#{name}", label=label)
        return self.view().rows

    def good(self) -> None:
        """Nothing was asked for but the file itself, and nobody complained."""
        assert self.watched.requests == [self.url]
        assert not self.watched.complaints


class Show(Protocol):
    def __call__(
        self, source: Recording, scheme: Literal["light", "dark"] = "light"
    ) -> AbstractContextManager[Shown]: ...


@pytest.fixture
def show(browser: Browser, folder: Path) -> Show:
    """`with show(recording) as shown`: in a tab of its own."""

    @contextmanager
    def opened(source: Recording, scheme: Literal["light", "dark"] = "light") -> Iterator[Shown]:
        path = folder / f"{id(source)}.html"
        path.write_text(drawn(timeline_of(source)), encoding="utf-8")
        with browser_rig.opened(browser, path.as_uri(), scheme=scheme) as (page, watched):
            yield Shown(page, watched, path.as_uri())

    return opened


# ---- looking


def test_hovering_tells_the_whole_story(show: Show) -> None:
    with show(small()) as shown:
        shown.point(1, 5)
        expect(shown.story).to_be_visible()
        words = shown.story.inner_text()
        for part in (
            "second",
            "kind translate · lane fast · priority 2 · done",
            "8.00 s",
            "slots:fenrir",
            "held by lane default ×1",
            "attempt 1 on fenrir",
            "temporary: server error 500",
            "scheduled",
            "attempt 2 on surtr",
            "total 20.0 s: waited 12.0 s, ran 8.00 s",
        ):
            assert part in words
        shown.point(2, 20)
        expect(shown.story).to_contain_text("gate:vram")
        shown.page.mouse.move(5, 5)
        expect(shown.story).to_be_hidden()
        shown.good()


def test_what_is_underneath_tells_its_figures(show: Show) -> None:
    with show(small()) as shown:
        box = shown.page.locator("#under").bounding_box()
        assert box is not None
        x, _ = shown.place(0, 9)
        shown.page.mouse.move(x, box["y"] + AXIS + 20)
        expect(shown.story).to_contain_text("1 task waiting at 9.00 s")
        shown.page.mouse.move(x, box["y"] + AXIS + 46 + 20)
        expect(shown.story).to_contain_text("surtr")
        expect(shown.story).to_contain_text("1 of 2 slots in use")
        shown.good()


def test_hundreds_of_hosts_are_scrolled_through(show: Show) -> None:
    with show(huge(600, hosts=300, slots=1)) as shown:
        frame = shown.page.locator("#under-frame")
        box = frame.bounding_box()
        assert box is not None
        assert box["height"] < 300
        frame.evaluate("(one) => { one.scrollTop = one.scrollHeight; }")
        shown.view()
        x, _ = shown.place(0, 2)
        shown.page.mouse.move(x, box["y"] + box["height"] - 10)
        expect(shown.story.locator("h2")).to_have_text("host-299")
        shown.good()


def test_hosts_and_waits_have_their_looks(show: Show) -> None:
    with show(small()) as shown:
        assert shown.colour(0, 9) == [0x00, 0x72, 0xB2], "surtr, solid"
        inside = {tuple(shown.colour(2, 20 + n / 40)) for n in range(20)}
        assert len(inside) > 1, "a wait has a pattern"
        legend = shown.page.locator(".legend").all_inner_texts()
        assert "gate:vram 20.0 s, 63 %" in legend[0]
        assert legend[1].split("\n") == ["surtr", "fenrir"]
        expect(shown.page.locator("#running")).to_have_text("Running, by host")


def test_waits_for_two_hosts_look_different(show: Show) -> None:
    source = small()
    with show(replace(source, waits={**source.waits, "third": [wait("slots:surtr", 5, 25)]})) as shown:
        pixels = shown.page.locator("#legend-waits canvas").evaluate_all(
            """(all) => all.map((one) => [...one.getContext('2d')
            .getImageData(0, 0, one.width, one.height).data].join())"""
        )
        assert len(pixels) == len(set(pixels)) == 3


def crowd(hosts: tuple[str, ...]) -> Recording:
    """Three lanes in turn, too many tasks for names."""
    lanes = ("fpf", "gptr", "ma")
    tasks = [task(f"t{n:03}", "same", lane=lanes[n % 3]) for n in range(120)]
    attempts = [attempt(one.id, 1, hosts[n % len(hosts)], n, n + 40) for n, one in enumerate(tasks)]
    records = [record(one, n + 1, State.DONE, n, n + 40) for n, one in enumerate(tasks)]
    return recording(records, attempts, {one.id: [] for one in tasks}, end=160, hosts=None)


def test_thin_rows_stand_by_lane_and_the_gutter_names_the_lanes(show: Show) -> None:
    with show(crowd(("a", "b"))) as shown:
        assert shown.view().row_height < 10
        assert shown.page.evaluate("() => view.gutter") == [
            *("fpf", "40 tasks", "gptr", "40 tasks", "ma", "40 tasks")
        ]
        assert shown.page.input_value("#order") == "lane"
        shown.page.select_option("#order", "arrival")
        shown.view()
        names = shown.page.evaluate("() => view.gutter")
        assert len(names) > 10
        assert names[0] == "t000", "now and then a name"
        shown.good()


def test_on_one_host_the_colours_tell_the_lane(show: Show) -> None:
    with show(crowd(("runner",))) as shown:
        expect(shown.page.locator("#running")).to_have_text("Running on runner, by lane")
        assert shown.page.locator("#legend-hosts").inner_text().split("\n") == ["fpf", "gptr", "ma"]
        colours = [tuple(shown.colour(row, start + 20)) for row, start in ((0, 0), (40, 1), (80, 2))]
        assert colours == [(0x00, 0x72, 0xB2), (0xE6, 0x9F, 0x00), (0x00, 0x9E, 0x73)]
        assert shown.watched.requests == [shown.url]


# ---- moving


def test_zoom_by_wheel_buttons_and_keys(show: Show) -> None:
    with show(small()) as shown:
        whole = shown.view()
        shown.point(1, 10)
        shown.page.mouse.wheel(0, -400)
        near = shown.view()
        assert near.end - near.start < (whole.end - whole.start) / 2
        share = (10 - whole.start) / (whole.end - whole.start)
        assert (10 - near.start) / (near.end - near.start) == pytest.approx(share, abs=0.01), (
            "what is pointed at stays"
        )
        shown.page.click("#zoom-out")
        assert shown.view().end - shown.view().start > near.end - near.start
        shown.page.click("#fit")
        assert shown.view()[:2] == whole[:2]
        shown.canvas.focus()
        shown.page.keyboard.press("+")
        closer = shown.view()
        assert closer.end - closer.start < whole.end - whole.start
        shown.page.keyboard.press("-")
        assert shown.view().end - shown.view().start == pytest.approx(whole.end - whole.start)
        shown.page.keyboard.press("]")
        assert shown.view().row_height > whole.row_height
        shown.page.keyboard.press("0")
        assert shown.view() == whole
        shown.good()


def test_pan_by_dragging_and_by_arrows(show: Show) -> None:
    with show(small()) as shown:
        shown.canvas.focus()
        for _ in range(3):
            shown.page.keyboard.press("+")
        before = shown.view()
        shown.point(1, 12)
        shown.page.mouse.down()
        x, y = shown.place(1, 10)
        shown.page.mouse.move(x, y, steps=4)
        shown.page.mouse.up()
        moved = shown.view()
        assert moved.start == pytest.approx(before.start + 2, abs=0.05)
        shown.page.keyboard.press("ArrowLeft")
        assert shown.view().start < moved.start
        shown.page.keyboard.press("Home")
        assert shown.view().start < 0
        shown.page.keyboard.press("End")
        assert shown.view().end > 25
        expect(shown.story).to_be_hidden()
        shown.good()


def test_keys_alone_reach_every_task_and_control(show: Show) -> None:
    with show(small()) as shown:
        reached = []
        for _ in range(40):
            shown.page.keyboard.press("Tab")
            reached.append(shown.page.evaluate("() => document.activeElement.id"))
        assert {
            "search",
            "lane",
            "host",
            "kind",
            "state",
            "reason",
            "order",
            "zoom-in",
            "fit",
            "bars",
        } <= set(reached)
        shown.canvas.focus()
        for name in ("first", "second", "third"):
            shown.page.keyboard.press("n")
            expect(shown.story.locator("h2")).to_have_text(name)
        expect(shown.page.locator("#spoken")).to_contain_text("third; queued; waited 20.0 s for gate:vram")
        shown.page.keyboard.press("p")
        expect(shown.story.locator("h2")).to_have_text("second")
        shown.page.keyboard.press("Enter")
        view = shown.view()
        assert view.end - view.start == pytest.approx(24), "20 s and a little around"
        shown.page.keyboard.press("Escape")
        expect(shown.story).to_be_hidden()
        shown.page.keyboard.press("/")
        shown.page.keyboard.type("thi")
        assert shown.view().rows == 1
        shown.good()


def test_keys_work_wherever_the_focus_is_but_not_in_a_field(show: Show) -> None:
    with show(small()) as shown:
        whole = shown.view()
        shown.page.keyboard.press("+")
        assert shown.view().end - shown.view().start < whole.end - whole.start, "on a fresh page"
        for button in ("#fit", "#reset"):
            shown.page.click(button)
            shown.page.keyboard.press("n")
            expect(shown.story.locator("h2")).to_have_text("first")
            shown.page.keyboard.press("Escape")
            expect(shown.story).to_be_hidden()
            shown.page.keyboard.press("0")
            assert shown.view() == whole
        shown.page.focus("#zoom-in")
        shown.page.keyboard.press("Enter")
        assert shown.view().end - shown.view().start < whole.end - whole.start, "Enter presses the button"
        shown.page.keyboard.press("0")
        shown.page.keyboard.press("/")
        shown.page.keyboard.type("0+n")
        assert shown.page.input_value("#search") == "0+n"
        assert shown.view()[:2] == whole[:2]
        expect(shown.story).to_be_hidden()
        shown.good()


def test_everything_that_is_there_has_a_name(show: Show) -> None:
    with show(small()) as shown:
        nameless = shown.page.evaluate(
            """() => [...document.querySelectorAll('button, select, input, canvas[tabindex], [role=region]')]
            .filter((one) => !(one.labels?.length || one.textContent.trim() || one.getAttribute('aria-label')
            || one.getAttribute('aria-labelledby'))).map((one) => one.outerHTML)"""
        )
        assert nameless == []


# ---- choosing


def test_filters_by_lane_host_kind_state_reason_and_text(show: Show) -> None:
    with show(small()) as shown:
        assert shown.choose("lane", "fast") == 1
        expect(shown.page.locator("#status")).to_contain_text("1 of 3 tasks")
        shown.page.click("#reset")
        assert shown.view().rows == 3
        assert shown.choose("host", "surtr") == 2
        assert shown.choose("kind", "translate") == 1
        shown.page.click("#reset")
        assert shown.choose("state", "queued") == 1
        shown.page.click("#reset")
        assert shown.choose("reason", "scheduled") == 1
        shown.page.click("#reset")
        shown.page.fill("#search", "IR")
        assert shown.view().rows == 2, "first and third"
        shown.page.fill("#search", "nobody")
        assert shown.view().rows == 0
        shown.good()


def test_orders_and_outliers(show: Show) -> None:
    with show(huge(2000, hosts=2)) as shown:
        shown.page.select_option("#order", "waited")
        shown.page.keyboard.press("Escape")
        first = shown.page.evaluate("() => data.waited[view.rows[0]] - Math.max(...data.waited)")
        assert first == 0
        expect(shown.page.locator("#legend-signs")).to_contain_text("beside a name: an outlier")
        shown.page.check("#outliers")
        count = shown.view().rows
        assert 0 < count < 100
        shown.page.click("#reset")
        shown.page.locator("#marked summary").click()
        button = shown.page.locator("#marked button").first
        name = button.inner_text().removeprefix("◆ ").split(":")[0]
        button.click()
        expect(shown.story.locator("h2")).to_have_text(name)
        expect(shown.story).to_contain_text("half of its kind")
        shown.good()


# ---- evidence and change


def test_evidence_is_marked_by_frame_number_and_words(show: Show) -> None:
    """Tasks, stretches of time and hosts: without colours, and in a list that leads to each (A6)."""
    with show(small()) as shown:
        before = shown.page.evaluate("() => [picture.part.bars.toDataURL(), picture.part.under.toDataURL()]")
        marks = [
            {"task": "second", "words": "failed first"},
            {"host": "fenrir", "from": BEGIN + 8, "to": BEGIN + 12},
            {"from": BEGIN + 5, "to": BEGIN + 25},
            {"task": "of another run"},
        ]
        shown.page.evaluate("(marks) => picture.mark(marks)", marks)
        shown.view()
        entries = shown.page.locator("#evidence li")
        assert entries.all_inner_texts() == [
            "1 task second: failed first",
            "2 fenrir, 8.00 s to 12.0 s",
            "3 5.00 s to 25.0 s",
            "4 task of another run (not shown)",
        ]
        after = shown.page.evaluate("() => [picture.part.bars.toDataURL(), picture.part.under.toDataURL()]")
        assert after[0] != before[0]
        assert after[1] != before[1]
        entries.nth(1).get_by_role("button").click()
        view = shown.view()
        assert [view.start, view.end] == pytest.approx([7.6, 12.4])
        shown.page.click("#fit")
        shown.page.evaluate("() => picture.mark([])")
        shown.view()
        expect(shown.page.locator("#evidence")).to_be_hidden()
        assert shown.page.evaluate("() => picture.part.bars.toDataURL()") == before[0]
        shown.good()


def test_a_picture_goes_on_and_is_told_anew_without_losing_its_place(show: Show) -> None:
    """What has not ended grows by itself; zoom, order, filter and selection survive other data (A6)."""
    with show(small()) as shown:
        shown.page.evaluate("(now) => picture.grow(now)", BEGIN + 30)
        whole = shown.view()
        assert whole.end == pytest.approx(30.3), "the end is still in view"
        assert shown.page.evaluate("() => [data.ended[2], data.waited[2], data.ended[0]]") == [30, 25, 10]
        shown.page.select_option("#state", label="queued")
        shown.canvas.focus()
        shown.page.keyboard.press("n")
        shown.page.keyboard.press("Home")
        for _ in range(3):
            shown.page.keyboard.press("+")
        shown.page.keyboard.press("ArrowLeft")
        near = shown.view()
        later = replace(small(), begin=small().begin - 100, end=BEGIN + 40)
        earlier = record(task("zeroth", queued=-100), 1, State.DONE, -99, -98)
        later = replace(later, tasks=[earlier, *later.tasks], waits={**later.waits, "zeroth": []})
        shown.page.evaluate("(raw) => picture.update(raw)", page_data(timeline_of(later)))
        moved = shown.view()
        assert [moved.start, moved.end] == pytest.approx([near.start + 100, near.end + 100])
        assert shown.page.input_value("#state") == "=queued"
        assert moved.rows == 1
        expect(shown.story.locator("h2")).to_have_text("third")
        assert shown.page.evaluate("() => document.activeElement.id") == "bars"
        shown.good()


def test_the_same_as_a_table(show: Show) -> None:
    with show(small()) as shown:
        shown.page.locator("#table summary").click()
        rows = shown.page.locator("#table tbody tr")
        expect(rows).to_have_count(3)
        expect(rows.nth(1)).to_contain_text("slots:fenrir (8.00 s)")
        shown.choose("lane", "fast")
        expect(rows).to_have_count(1)
        shown.good()


# ---- safety and looks


def test_hostile_text_is_shown_as_text(show: Show) -> None:
    source = recording(
        [record(task(EVIL, EVIL, lane=EVIL), 1, State.FAILED, 1, 2)],
        [attempt(EVIL, 1, EVIL, 1, 2, Verdict.PERMANENT, f"</script>{EVIL}")],
        {EVIL: [wait(f"gate:{EVIL}", 0, 1, EVIL)]},
        end=2,
        hosts=None,
    )
    with show(replace(source, name=f"</title>{EVIL}")) as shown:
        assert EVIL in shown.page.title()
        shown.point(0, 0.5)
        expect(shown.story.locator("h2")).to_have_text(EVIL)
        expect(shown.story).to_contain_text(f"attempt 1 on {EVIL}")
        expect(shown.page.locator("#kind")).to_contain_text(EVIL)
        assert shown.page.locator("img").count() == 0
        shown.good()


def test_the_page_lets_no_other_script_run_and_nothing_be_fetched(show: Show) -> None:
    with show(small()) as shown:
        ran = shown.page.evaluate(
            """async () => {
              const script = document.createElement('script');
              script.textContent = 'window.taken = true';
              document.body.append(script);
              const fetched = await fetch('https://example.invalid/').then(() => true, () => false);
              return [window.taken === true, fetched];
            }"""
        )
        assert ran == [False, False]
        assert all("Content Security Policy" in words for words in shown.watched.complaints)
        assert shown.watched.requests == [shown.url]


def test_light_and_dark(show: Show) -> None:
    with show(small(), "dark") as shown:
        assert shown.colour(0, 21) == [0x14, 0x17, 0x1B]
        assert shown.colour(0, 9) == [0x3B, 0x9F, 0xD8]
        shown.page.click("#theme")
        shown.view()
        assert shown.colour(0, 21) == [0xFF, 0xFF, 0xFF]
        assert shown.colour(0, 9) == [0x00, 0x72, 0xB2]


def test_the_theme_that_was_chosen_stays(show: Show) -> None:
    with show(small(), "dark") as shown:
        shown.page.click("#theme")
        shown.page.reload()
        shown.page.wait_for_selector("#bars[data-ready=yes][data-rows]")
        shown.view()
        assert shown.colour(0, 21) == [0xFF, 0xFF, 0xFF]
        assert not shown.watched.complaints


def test_a_browser_that_keeps_nothing_shows_the_page_all_the_same(show: Show) -> None:
    with show(small()) as shown:
        shown.page.add_init_script(
            "Object.defineProperty(window, 'localStorage', {"
            " get() { throw new DOMException('no', 'SecurityError'); } });"
        )
        shown.page.reload()
        shown.page.wait_for_selector("#bars[data-ready=yes][data-rows]")
        shown.page.click("#theme")
        shown.view()
        assert shown.colour(0, 21) == [0x14, 0x17, 0x1B]
        assert not shown.watched.complaints


def test_a_story_breaks_between_words(show: Show) -> None:
    detail = "every slot is held: " + ", ".join(f"lane number-{n} ×{n}" for n in range(12))
    source = small()
    waits = {**source.waits, "second": [wait("slots:runner-of-the-north", 0, 8, detail)]}
    with show(replace(source, waits=waits)) as shown:
        shown.page.set_viewport_size({"width": 1280, "height": 800})
        shown.point(1, 4)
        cell = shown.story.locator("td.what").first
        expect(cell).to_have_text("slots:runner-of-the-north")
        lines = cell.evaluate(
            """(one) => { const range = document.createRange(); range.selectNodeContents(one);
            return new Set([...range.getClientRects()].map((box) => box.top)).size; }"""
        )
        assert lines == 1


def test_an_axis_has_one_form(show: Show) -> None:
    with show(small()) as shown:
        labels = shown.page.evaluate(
            "() => [[75, 15, 130], [120, 15, 130], [90, 15, 105], [1800, 1800, 7200], [97200, 600, 99000]]"
            ".map((one) => tickLabel(...one))"
        )
        assert labels == ["1m15s", "2m00s", "90 s", "0h30m", "1d03h00m"]


def test_an_empty_run_is_a_page_too(show: Show) -> None:
    with show(replace(small(), tasks=[], attempts=[], waits={})) as shown:
        assert shown.view().rows == 0
        shown.canvas.focus()
        for name in ("n", "+", "0", "Enter"):
            shown.page.keyboard.press(name)
        shown.good()


# ---- many


def test_fifty_thousand_tasks_stay_usable(show: Show) -> None:
    count = 50_000
    with show(huge(count)) as shown:
        whole = shown.view()
        assert whole.rows == count
        assert whole.row_height < 0.1, "all of them are in view"
        drawn_pixels = shown.page.evaluate(
            """() => { const canvas = document.getElementById('bars');
              const pixels = canvas.getContext('2d').getImageData(view.left, 20, view.plot, view.height - 20).data;
              const colours = new Set();
              for (let i = 0; i < pixels.length; i += 4) colours.add(pixels.slice(i, i + 3).join());
              return colours.size; }"""
        )
        assert drawn_pixels > 100, "what is thinner than a pixel is mixed"
        shown.canvas.focus()
        for _ in range(20):
            shown.page.keyboard.press("]")
        tall = shown.view()
        assert tall.row_height > 10
        assert tall.top > 20_000, "the middle stays in the middle"
        shown.page.fill("#search", "1m7f049999")
        assert shown.view().rows == 1
        shown.point(0, 499.99)
        expect(shown.story.locator("h2")).to_have_text("1m7f049999")
        shown.page.click("#reset")
        assert shown.choose("lane", "lane-1") == 16_667
        shown.good()

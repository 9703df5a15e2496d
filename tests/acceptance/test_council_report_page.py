"""A council's report in a real browser: on a phone, light and dark, with hostile texts (D8)."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Browser, expect

from penstock.council.recorded import read_record
from penstock.council.report_page import page as report_page
from tests.acceptance import browser_rig
from tests.unit.council_rig import record, response

EVIL = "<img src=x onerror=\"document.title='taken'\"><script>document.title='taken'</script>"
TABLE = f"| a | b |\n|---|---|\n| {'y' * 80} | 2 |"
WORDS = f"{EVIL}\n\n![x](http://127.0.0.1:9/x.png)\n\n```\n{'x' * 300}\n```\n\n{TABLE}"


def hostile() -> str:
    told = record(query=f"Does it hold? {EVIL}")
    told["responses"][0] = response("GOKU", answer=WORDS, role=EVIL)
    told["synthesis"]["text"] = f"{WORDS}\n\nIt holds [1]."
    told["retrieval"]["passages"][0]["text"] = WORDS
    return report_page(read_record(told, "here"))


def test_a_report_is_readable_and_does_nothing_behind_ones_back(tmp_path: Path, browser: Browser) -> None:
    """D8: nothing is fetched, nothing runs, nothing is wider than a phone, and marks lead to their passages."""
    file = tmp_path / "report.html"
    file.write_text(hostile(), encoding="utf-8")
    grounds = set()
    for scheme, width in (("light", 1200), ("dark", 360)):
        with browser_rig.opened(browser, file.as_uri(), scheme=scheme, width=width) as (page, watched):  # type: ignore[arg-type]
            expect(page.locator("h2").first).to_have_text("Answer")
            expect(page.locator(".answer img, .answer script, .answer a[href^=http]")).to_have_count(0)
            expect(page.locator("svg rect")).to_have_count(5)
            assert page.title().startswith("Does it hold? <img")
            assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), width
            page.get_by_role("link", name="[1]", exact=True).first.click()
            assert page.evaluate("location.hash") == "#passage-1"
            grounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
            assert watched.requests == [file.as_uri()]
            assert watched.complaints == []
    assert len(grounds) == 2, "light and dark look the same"

"""Whether everybody can use a page: axe-core's findings, the Tab key's way, a phone's width, injected text."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page

PHONE_PX = 375

_REACHABLE = """
() => {
  const wanted = "a[href], button, input:not([type=hidden], [type=radio]), select, textarea, summary, [tabindex]";
  return [...document.querySelectorAll(wanted)].filter((element) =>
    element.tabIndex >= 0 && !element.disabled && !element.closest("[inert]") &&
    element.checkVisibility({ visibilityProperty: true }) && !element.closest("dialog:not([open])"));
}
"""
# From a page that has no focus yet. Each thing that gets the focus is remembered, with whether one can see it.
_BEGIN = f"""
() => {{
  window.__reachable = ({_REACHABLE})();
  window.__walk = [];
  document.activeElement?.blur();
  document.addEventListener("focusin", (event) => {{
    const style = getComputedStyle(event.target);
    const ring = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) > 0;
    window.__walk.push({{ element: event.target, seen: ring || style.boxShadow !== "none" }});
  }});
  return window.__reachable.length;
}}
"""
_END = """
() => {
  const told = (element) => element.outerHTML.slice(0, 140);
  const all = window.__walk.filter(({ element }) => element.isConnected);
  const again = all.findIndex(({ element }, place) => place > 0 && element === all[0].element);
  const walk = again > 0 ? all.slice(0, again) : all; // the rest is the same way once more
  const reached = new Set(walk.map(({ element }) => element));
  const still = window.__reachable.filter((element) => element.isConnected && element.checkVisibility());
  const back = walk.filter(({ element }, place) => place > 0 &&
    !(walk[place - 1].element.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING));
  return {
    missed: still.filter((element) => !reached.has(element)).map(told),
    unseen: walk.filter(({ seen }) => !seen).map(({ element }) => told(element)),
    back: back.map(({ element }) => told(element)),
    reached: reached.size,
  };
}
"""


def findings(page: Page, *rules: str) -> list[str]:
    """What axe-core finds serious or critical: of all its rules, or of some."""
    options: dict[str, Any] = {"resultTypes": ["violations"]}
    if rules:
        options["runOnly"] = {"type": "rule", "values": list(rules)}
    told = Axe().run(page, options=options).response["violations"]
    return [
        f"{one['impact']} {one['id']}: {one['help']}: {[node['html'][:200] for node in one['nodes'][:3]]}"
        for one in told
        if one["impact"] in ("serious", "critical")
    ]


def walked(page: Page) -> dict[str, Any]:
    """With the Tab key from the top of the page to its end: what was missed, came too early, or was not seen."""
    count = page.evaluate(_BEGIN)
    for _ in range(count - 1):  # to look after each of them takes as long as they do
        page.keyboard.press("Tab")
    for _ in range(41):  # what scrolls can be reached as well, and more may appear meanwhile
        page.keyboard.press("Tab")
        if page.evaluate("window.__walk.length > 0 && document.activeElement === document.body"):
            break
    told: dict[str, Any] = page.evaluate(_END)
    return told


def overflow(page: Page) -> int:
    """By how many pixels the document is wider than the window."""
    found: int = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return found


def injected(page: Page) -> list[str]:
    """What hostile text has become an element, or has run."""
    found: list[str] = page.evaluate(
        """() => [
          ...(window.__pwned === undefined ? [] : ["it ran"]),
          ...[...document.querySelectorAll("#app img, #app script, #app iframe, #app object, #app [onerror]")]
            .map((element) => element.outerHTML.slice(0, 140)),
        ]"""
    )
    return found

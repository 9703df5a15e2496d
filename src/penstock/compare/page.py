"""A comparison as one HTML page that needs nothing else: no script, no server, no network.

All texts are escaped, and the page's own policy lets nothing run and nothing be fetched.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape

from penstock.compare.contenders import CONTENDERS, OURS
from penstock.compare.judge import Figures
from penstock.compare.machine import Machine
from penstock.compare.match import Comparison
from penstock.compare.picture import picture
from penstock.compare.told import COLUMNS, FATES, fates, rows
from penstock.diagnosis.timeline.palette import HOSTS, host_looks
from penstock.diagnosis.timeline.policy import fit_for_text, ground, part, policy

GENERATOR = '<meta name="generator" content="penstock compare">'  # by which a page of ours is known
_PACKAGE = "penstock.compare"
_MARGIN = 1.02  # of the time axis beyond the longest


def page(comparisons: Sequence[Comparison]) -> str:
    """The whole file."""
    style = ground() + part("compare.css", _PACKAGE) + _kind_style()
    values = {
        "POLICY": escape(policy(style)),
        "STYLE": style,
        "SCALES": _scales(comparisons),
        "MACHINE": escape(_machine(comparisons[0].machine)),
        "CONTENTS": "".join(_entry(comparison) for comparison in comparisons),
        "STORIES": "\n".join(_article(comparison) for comparison in comparisons),
        "COLUMNS": "".join(_meanings({**COLUMNS, **FATES})),
    }
    # In one pass over the template: what is put in is never looked at again.
    return fit_for_text(
        re.sub(r"\{\{([A-Z]+)\}\}", lambda found: values[found[1]], part("compare.html", _PACKAGE))
    )


def _kind_style() -> str:
    looks = list(host_looks(map(str, range(3 * len(HOSTS)))).values())
    light = "".join(f".k{n}{{fill:{look.colour}}}" for n, look in enumerate(looks))
    dark = "".join(f".k{n}{{fill:{look.dark}}}" for n, look in enumerate(looks))
    return f"{light}\n@media (prefers-color-scheme: dark) {{ {dark} }}\n"


def _scales(comparisons: Iterable[Comparison]) -> str:
    lasts = sorted({round(c.scale * 1000, 1) for c in comparisons})
    if lasts == [1000.0]:
        return "they were played in real time"
    told = f"{lasts[0]:g}" if len(lasts) == 1 else f"{lasts[0]:g} to {lasts[-1]:g}"
    return f"when it was played, one lasted {told} ms"


def _machine(machine: Machine) -> str:
    cores = f"{machine.cores} core{'s' if machine.cores > 1 else ''}"
    busy = "; it was busy with other work, so makespans are too long" if machine.busy else ""
    return (
        f"Penstock {machine.version} on Python {machine.python}, a machine with {cores}, "
        f"its load {machine.load:.1f} at the start{busy}."
    )


def _entry(comparison: Comparison) -> str:
    name = escape(comparison.story.name)
    return f'<li><a href="#{name}">{escape(comparison.story.workload.title)}</a></li>'


def _article(comparison: Comparison) -> str:
    story = comparison.story
    kinds = {kind: n % (3 * len(HOSTS)) for n, kind in enumerate(_kinds(comparison))}
    longest = max([story.ideal_s, *(f.makespan_s for f in comparison.figures)]) * _MARGIN
    figures = "".join(_figure(comparison, one, longest, kinds) for one in comparison.figures)
    tables = _table(COLUMNS, rows(comparison), comparison)
    if story.death is not None:
        tables += _table(FATES, fates(comparison)[1], comparison)
    return (
        f'<article id="{escape(story.name)}"><h2>{escape(story.workload.title)} '
        f"<small>{escape(story.name)}: {len(story.workload.tasks)} tasks, ideal {story.ideal_s:g} s</small></h2>"
        f"<p>{escape(comparison.shows)}</p>"
        f'<ul class="kinds">{"".join(_legend(kinds))}</ul>'
        f'<div class="pictures">{figures}</div>'
        f'<p class="verdict">{escape(comparison.verdict)}</p>'
        f'<p class="claimed">{escape(comparison.claimed)}</p>'
        f'<div class="wide">{tables}</div></article>'
    )


def _kinds(comparison: Comparison) -> list[str]:
    return list(dict.fromkeys(task.kind for task in comparison.story.workload.tasks))


def _legend(kinds: dict[str, int]) -> Iterable[str]:
    for kind, number in kinds.items():
        sign = f'<svg viewBox="0 0 12 10" aria-hidden="true"><rect class="k{number}" width="12" height="10"/></svg>'
        yield f"<li>{sign}{escape(kind)}</li>"


def _figure(comparison: Comparison, figures: Figures, longest: float, kinds: dict[str, int]) -> str:
    name = escape(CONTENDERS[figures.contender])
    if figures.error is not None:
        return f"<figure><figcaption>{name}</figcaption><p>{escape(figures.error)}</p></figure>"
    total = len(comparison.story.workload.tasks)
    undone = "" if figures.all_done else f", {total - figures.done} not done"
    told = f"{figures.makespan_s:.0f} s, {figures.to_ideal:.2f} ×{undone}"
    drawn = picture(comparison.story, figures, longest, kinds)
    return f"<figure><figcaption>{name} <span>{escape(told)}</span></figcaption>{drawn}</figure>"


def _table(columns: Iterable[str], lines: Iterable[Sequence[str]], comparison: Comparison) -> str:
    columns = list(columns)
    numbers = [' class="number"' if column.startswith(">") else "" for column in columns]
    head = "".join(
        f'<th scope="col"{number}>{escape(column.lstrip(">"))}</th>'
        for column, number in zip(columns, numbers, strict=True)
    )
    body = "".join(
        f"<tr{_ours(line)}>"
        + "".join(f"<td{number}>{escape(cell)}</td>" for cell, number in zip(line, numbers, strict=True))
        + "</tr>"
        for line in lines
    )
    caption = escape(comparison.story.workload.title)
    return f'<table aria-label="{caption}"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'


def _ours(line: Sequence[str]) -> str:
    return ' class="ours"' if line[0] == CONTENDERS[OURS] else ""


def _meanings(columns: dict[str, str]) -> Iterable[str]:
    for column, meaning in columns.items():
        yield f"<dt>{escape(column.lstrip('>'))}</dt><dd>{escape(meaning)}</dd>"

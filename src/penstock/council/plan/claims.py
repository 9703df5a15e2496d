"""An answer in Markdown → the claims it makes: its sentences and bullet points, as plain text.

Code and headings make no claims, nor do questions and phrases of courtesy. Sentences are told apart by rules that
serve languages with spaces between words and those without; what looks doubtful stays whole, since a claim of two
sentences can still be matched, and half a sentence cannot.

Answers may be long, and are written by models that can be talked into anything: so every repeat of a pattern that
is searched for has a bound, and the time this takes grows with the text and no faster.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

MAX_CLAIMS = 40  # of one answer
MAX_CHARACTERS = 400  # of one claim
_MAX_TEXT = 200_000  # what is read of one answer
_MAX_BLOCK = 20_000  # of one paragraph: more than all claims of an answer may have
_MAX_LINE = 1_000  # of a heading, a rule and their like
_LONGEST_WORD = 64  # before the end of a sentence: longer ones are no abbreviations
_FEWEST_WORDS = 3


class Claims(NamedTuple):
    texts: tuple[str, ...]
    is_cut: bool = False  # there were more


_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_HEADING = re.compile(r"^ {0,3}#{1,6}(?:\s|$)")
_UNDERLINE = re.compile(r"^ {0,3}(?:=+|-{2,})\s*$")
_RULE = re.compile(r"^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$")
_BULLET = re.compile(r"^\s*(?:[-*+•‣◦–]|\d{1,3}[.)]|[a-zA-Z][)])\s+(?:\[[ xX]\]\s+)?")
_QUOTE = re.compile(r"^\s*(?:>\s?)+")
_BORDER_CELL = re.compile(r":?-{2,}:?")

# In this order: what a mark leaves behind may be another mark. No opening mark is looked for inside another's.
_MARKS = (
    (re.compile(r"!\[[^\[\]\n]{0,400}\]\([^()\n]{0,800}(?:\([^()\n]{0,200}\)[^()\n]{0,200})?\)"), " "),
    (re.compile(r"\[([^\[\]\n]{1,400})\]\([^()\n]{0,800}(?:\([^()\n]{0,200}\)[^()\n]{0,200})?\)"), r"\1"),
    (re.compile(r"\s?\[\^?\d{1,4}(?:\s{0,2}[,;–-]\s{0,2}\d{1,4}){0,40}\]"), ""),
    (re.compile(r"</?[A-Za-z][^<>\n]{0,200}>"), " "),
    (re.compile(r"`{1,3}([^`\n]{1,400})`{1,3}"), r"\1"),
    (re.compile(r"(\*\*\*|\*\*|__|~~)(?=\S)(.{1,400}?)(?<=\S)\1"), r"\2"),
    (re.compile(r"(?<![\w*])\*(?=\S)([^*\n]{1,400}?)(?<=\S)\*(?![\w*])"), r"\1"),
    (re.compile(r"(?<!\w)_(?=\S)([^_\n]{1,400}?)(?<=\S)_(?!\w)"), r"\1"),
)

_ABBREVIATIONS_LISTED = """
mr mrs ms dr prof st sr jr rev gen col lt capt vs approx fig figs eq no nos vol ch sec pp p ed eds al cf e.g
i.e ca inc ltd co dept est jan feb mar apr jun jul aug sep sept oct nov dec u.s u.k z.b d.h u.a bzw bspw
evtl ggf nr str hr fr ing inkl exkl max min vgl sog m mme mlle mm env ex p.ex c.-à-d sra srta ud uds p.ej
núm pág av gral dott sig ecc
"""
_ABBREVIATIONS = frozenset(_ABBREVIATIONS_LISTED.split())
_MAY_END = frozenset({"etc", "usw", "u.s.w", "a.m", "p.m"})  # abbreviations that sentences end with
_BEFORE_FIGURES = frozenset({"no", "nos", "nr"})
_GERMAN_MONTHS_LISTED = """
januar februar märz april mai juni juli august september oktober november dezember jahrhundert
"""
_GERMAN_MONTHS = frozenset(_GERMAN_MONTHS_LISTED.split())
_END = re.compile(r"[.!?…]{1,20}[\"'”’»)\]]{0,10}(?=\s|$)|[。！？｡।॥؟۔።]{1,20}[”’」』）)]{0,10}")
_BEFORE_WORD = re.compile(r"[\s(\[\"'“‘«]")
_FOLLOWING = re.compile(r"\S\w{0,40}")
_ALWAYS_END = frozenset("!?。！？｡।॥؟۔።")
_QUESTION = ("?", "？", "؟")
_OPENERS = re.compile(
    r"^(?:sure|certainly|of course|absolutely|great question|good question|here(?:'s|’s| is| are)\b|let me\b"
    r"|let['’]s\b|i hope\b|hope this\b|thanks?\b|thank you|i['’]m happy|feel free|in summary:?$|in short:?$"
    r"|as an ai\b|gerne\b|natürlich[,!.]|voici\b|bien sûr|claro\b|aquí tienes)",
    re.IGNORECASE,
)
_PLAIN_ANSWERS_LISTED = """
yes no true false correct incorrect ja nein oui non sí si sì não sim はい いいえ 是 否 да нет
"""
_PLAIN_ANSWERS = frozenset(_PLAIN_ANSWERS_LISTED.split())


def claims_of(text: str) -> Claims:
    """Each once, in the order of the text."""
    found: dict[str, None] = {}
    short: dict[str, None] = {}
    is_cut = len(text) > _MAX_TEXT
    for block in _blocks(text[:_MAX_TEXT].replace("\r\n", "\n").replace("\r", "\n")):
        is_cut = is_cut or len(block) > _MAX_BLOCK
        for sentence in _sentences(_plain(block[:_MAX_BLOCK])):
            if not _is_claim(sentence):
                continue
            kept = found if _says_enough(sentence) else short
            kept[_bounded(sentence)] = None
            if len(found) > MAX_CLAIMS:
                return Claims(tuple(found)[:MAX_CLAIMS], is_cut=True)
    # "Paris." is an answer where there is nothing else.
    texts = tuple(found) or tuple(short)
    return Claims(texts[:MAX_CLAIMS], is_cut or len(texts) > MAX_CLAIMS)


# ---- Markdown


def _blocks(text: str) -> Iterator[str]:
    """Paragraphs, bullet points and rows of tables, each on one line."""
    block: list[str] = []
    for line in _prose_lines(text):
        starts = _BULLET.match(line) is not None or _is_row(line)
        if block and (not line.strip() or starts):
            yield " ".join(block)
            block = []
        if _is_row(line):
            cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
            yield ", ".join(cell for cell in cells if cell)
        elif line.strip():
            block.append(_BULLET.sub("", line, count=1).strip())
    if block:
        yield " ".join(block)


def _prose_lines(text: str) -> Iterator[str]:
    """Without code, headings and rules; an empty line stands for what was left out."""
    fence = ""
    was_blank, in_list = True, False
    lines = [_QUOTE.sub("", line) for line in text.split("\n")]
    for number, line in enumerate(lines):
        following = lines[number + 1] if number + 1 < len(lines) else ""
        if fence:
            if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
                fence = ""
            continue
        if mark := _FENCE.match(line):
            fence = mark[1]
            yield ""
            continue
        is_code = line.startswith(("    ", "\t")) and was_blank and not in_list and not _BULLET.match(line)
        in_list = _BULLET.match(line) is not None or (in_list and (not line.strip() or line[:1].isspace()))
        is_title = bool(line.strip()) and was_blank and _UNDERLINE.match(following[:_MAX_LINE]) is not None
        is_head = _is_row(line) and _is_border(following)
        is_mark = _UNDERLINE.match(line[:_MAX_LINE]) or _RULE.match(line[:_MAX_LINE]) or _is_border(line)
        was_blank = not line.strip() or (is_code and was_blank)
        skipped = is_code or is_title or is_head or is_mark or _HEADING.match(line)
        yield "" if skipped else line


def _is_row(line: str) -> bool:
    """Of a table."""
    told = line.strip()
    return len(told) > 1 and told.startswith("|") and told.endswith("|")


def _is_border(line: str) -> bool:
    """Below the head of a table."""
    told = line.strip()
    return "|" in told and all(_BORDER_CELL.fullmatch(cell.strip()) for cell in _inside(told).split("|"))


def _inside(row: str) -> str:
    return row.removeprefix("|").removesuffix("|")


def _plain(text: str) -> str:
    text = _without_comments(text)
    for mark, instead in _MARKS:
        text = mark.sub(instead, text)
    return " ".join(text.split())


def _without_comments(text: str) -> str:
    kept, at = [], 0
    while (start := text.find("<!--", at)) >= 0 and (end := text.find("-->", start)) >= 0:
        kept.append(text[at:start])
        at = end + len("-->")
    return " ".join((*kept, text[at:]))


# ---- sentences


def _sentences(text: str) -> Iterator[str]:
    start = 0
    for end in _END.finditer(text):
        if _ends(text, start, end):
            yield text[start : end.end()].strip()
            start = end.end()
    if rest := text[start:].strip():
        yield rest


def _ends(text: str, start: int, end: re.Match[str]) -> bool:
    """Whether a sentence ends with these marks."""
    if _ALWAYS_END & set(end.group()):
        return True
    found = _FOLLOWING.search(text, end.end(), end.end() + _LONGEST_WORD)
    if found is None:
        return True
    following = found.group()
    word = _BEFORE_WORD.split(text[max(start, end.start() - _LONGEST_WORD) : end.start()])[-1].casefold()
    is_small = following[0].islower()
    if word in _MAY_END:
        return not is_small
    if word in _BEFORE_FIGURES and not following[0].isdigit():
        return True  # "No." is an answer, and "no. 5" is not
    if word in _ABBREVIATIONS or (len(word) == 1 and word.isalpha()):
        return False
    if word.isdigit() and len(word) <= 2:
        first = re.split(r"\W", following, maxsplit=1)[0].casefold()
        return not is_small and first not in _GERMAN_MONTHS
    return not is_small or (len(word) > 3 and word.isalpha() and end.group() != "…")


def _is_claim(sentence: str) -> bool:
    if not any(character.isalnum() for character in sentence):
        return False
    if sentence.rstrip("\"'”’»)").endswith((*_QUESTION, ":", "：")):
        return False
    return _OPENERS.match(sentence) is None


def _says_enough(sentence: str) -> bool:
    words = re.findall(r"\w+", sentence)
    if len(words) >= _FEWEST_WORDS or (words and words[0].casefold() in _PLAIN_ANSWERS):
        return True
    # Where words have no spaces between them, their letters are counted instead.
    return sum(ord(character) > 0x2E80 for character in sentence) > _FEWEST_WORDS


def _bounded(sentence: str) -> str:
    if len(sentence) <= MAX_CHARACTERS:
        return sentence
    cut = sentence[: MAX_CHARACTERS - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[MAX_CHARACTERS // 2 :] else cut) + "…"

"""What could be a secret, and the text of a config fit for showing: line for line the same, with that masked.

Secrets do not belong in the file and most are refused; but a file that is refused is shown too, with its errors,
and headers and environments may hold anything. So this reads lines, not TOML: what is not TOML yet is masked as
well.

Whether a single value may go where others read it is asked here too. In doubt it is a secret.
"""

from __future__ import annotations

import re

from penstock.config.keys import SECRET_WORDS, SECRETS

MASK = "•••"
_WHOLE = ("env", "headers")  # tables of names that others chose: all of their values are masked
_MORE_WORDS = frozenset(
    {"auth", "authorization", "bearer", "cookie", "credential", "pass", "pwd", "passphrase"}
)
_NAMES_ONE = ("_env", "_file")  # these say where a secret is

_KEY = r"""(?:"[^"\n]*"|'[^'\n]*'|[A-Za-z0-9_-]+)"""
_PAIR = re.compile(
    rf"""(?P<key>{_KEY}(?:\s*\.\s*{_KEY})*)(?P<is>\s*=\s*)(?P<value>"(?:[^"\\\n]|\\.)*"?|'[^'\n]*'?|[^\s,\]}}#"'\[{{]+)"""
)
_BEGIN = re.compile(rf"^(?P<head>[\s#]*(?P<key>{_KEY}(?:\s*\.\s*{_KEY})*)\s*=\s*)(?P<value>.*)$")
_OPENED = re.compile(rf"(?P<key>{_KEY}(?:\s*\.\s*{_KEY})*)\s*=\s*(?=[\[{{])")  # anywhere in a line
_HEADER = re.compile(r"^\s*#?\s*\[{1,2}(?P<key>.*?)\]{1,2}\s*(?:#.*)?$")
_LONG = ('"""', "'''")
_USER = re.compile(r"(://)[^/\s\"'@]*@")
_QUERY = re.compile(r"([?&](?P<key>[A-Za-z0-9_-]+)=)[^&\s\"'#]+")
_FORMS = re.compile(
    r"\b(?:(?i:bearer|basic)\s+[^\s\"']{8,}|(?:sk|pk|rk|ps|hf|ghp|gho|glpat|xox[abps])[-_][A-Za-z0-9_-]{8,}|AKIA[A-Z0-9]{12,})"
)
_RANDOM = re.compile(
    r"(?<![A-Za-z0-9_./-])(?=[A-Za-z0-9_-]*\d)(?=[A-Za-z0-9_-]*[A-Za-z])[A-Za-z0-9_-]{32,}(?![A-Za-z0-9_./-])"
)

_SECRET_PARTS = (
    "apikey",
    "credential",
    "passphrase",
    "passw",
    "pwd",
    "secret",
    "token",
)  # of names, as PGPASSWORD
_LOGIN = re.compile(
    r"""://[^\s@]*:[^\s@]*@ | https?://[^\s/@]+@            # in an address; who logs in to the web may be a token
      | (?<![^\s"'=])[^\s/:@="']+:[^\s/:@]+@                # in one without its scheme, as proxies may be given
      | (?:^|\s)(?:-u|--(?:proxy-)?user)[\s=]+[^\s:]+:\S    # as programs are told
    """,
    re.IGNORECASE | re.VERBOSE,
)
_GIVEN = re.compile(
    r"""(?P<key>[A-Za-z0-9_.-]+)(?:["']?\s*=\s*|["']\s*:\s*|:\s+)(?=["']?[^\s"'])  # name=value, "name": value
      | (?:^|\s)--?(?P<option>[A-Za-z][A-Za-z0-9_-]*)\s+(?=[^\s-])                # --name value
    """,
    re.VERBOSE,
)


def may_hold_secret(text: str) -> bool:
    """Whether a value gives a password or a key away, by its form or by the name before it."""
    if _LOGIN.search(text) or _FORMS.search(text) or _RANDOM.search(text):
        return True
    names = (found["key"] or found["option"] for found in _GIVEN.finditer(text))
    return any(is_secret_name(name) or _is_secret_in_part(name.lower()) for name in names)


def _is_secret_in_part(name: str) -> bool:
    return not name.endswith(_NAMES_ONE) and any(part in name for part in _SECRET_PARTS)


def masked(text: str) -> str:
    """The same lines."""
    scan = _Scan()
    return "\n".join(scan.line(line) for line in text.split("\n"))


def is_secret_name(name: str) -> bool:
    """Whether what a key of this name holds could be a secret."""
    lowered = name.strip("\"' ").lower()
    if "\\" in lowered:  # written so that it cannot be read here
        return True
    if lowered.endswith(_NAMES_ONE):
        return False
    words = set(re.split(r"[^a-z0-9]+", lowered))
    return (
        lowered in SECRETS
        or bool(words & (SECRET_WORDS | _MORE_WORDS))
        or lowered.endswith(("apikey", "token"))
    )


class _Scan:
    """Line after line, knowing what an earlier one has begun."""

    def __init__(self) -> None:
        self._all = False  # the table that lines belong to is masked as a whole
        self._until = ""  # a long text that ends with this
        self._depth = 0  # brackets of a masked value that are open
        self._hides = False  # what is open is masked

    def line(self, line: str) -> str:
        if self._until:
            return self._in_long_text(line)
        if self._depth:
            self._depth = max(0, self._depth + _depth_of(line))
            return MASK
        if header := _HEADER.match(line):
            self._all = _names(header["key"]).isdisjoint(_WHOLE) is False
            return _plain(line)
        begin = _BEGIN.match(line)
        if begin is None:
            if (hidden := self._inside(line)) is not None:
                return hidden
            return _plain(line) if not self._all or line.strip().startswith("#") or not line.strip() else MASK
        return self._assigned(line, begin)

    def _in_long_text(self, line: str) -> str:
        hides = self._hides
        if self._until in line:
            self._until = ""
        return MASK if hides else _plain(line)

    def _assigned(self, line: str, begin: re.Match[str]) -> str:
        names = _names(begin["key"])
        value = begin["value"]
        hides = self._all or _hides(names)
        if value.startswith(_LONG) and value[:3] not in value[3:]:
            self._until, self._hides = value[:3], hides
        elif hides and value[:1] in "[{" and value:
            self._depth = max(0, _depth_of(value))
        if hides:
            return f"{begin['head']}{MASK}"
        hidden = self._inside(line)
        return _plain(line) if hidden is None else hidden

    def _inside(self, line: str) -> str | None:
        """A table within a table that is masked, with what follows it; None where there is none."""
        for opened in _OPENED.finditer(line):
            if _hides(_names(opened["key"])):
                self._depth = max(0, _depth_of(line[opened.end() :]))
                return f"{_plain(line[: opened.end()])}{MASK}"
        return None


def _names(key: str) -> set[str]:
    return {part.strip().strip("\"'").lower() for part in key.split(".")}


def _hides(names: set[str]) -> bool:
    return not names.isdisjoint(_WHOLE) or any(is_secret_name(name) for name in names)


def _depth_of(text: str) -> int:
    bare = re.sub(r'"(?:[^"\\]|\\.)*"|\'[^\']*\'|#.*', "", text)
    return sum(bare.count(c) for c in "[{") - sum(bare.count(c) for c in "]}")


def _plain(line: str) -> str:
    """What is secret by its name or its form, wherever it stands in a line."""
    line = _PAIR.sub(_pair, line)
    line = _USER.sub(rf"\1{MASK}@", line)
    line = _QUERY.sub(lambda found: f"{found[1]}{MASK}" if is_secret_name(found["key"]) else found[0], line)
    return _RANDOM.sub(MASK, _FORMS.sub(MASK, line))


def _pair(found: re.Match[str]) -> str:
    names = _names(found["key"])
    return f'{found["key"]}{found["is"]}"{MASK}"' if _hides(names) else found[0]

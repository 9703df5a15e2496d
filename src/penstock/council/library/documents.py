"""Which files of a folder are documents, what is left out of it and why, and reading one of them safely.

A source is a file's path below the folder, with "/" on every system. Nothing outside the folder is read: links that
lead out are left out, and told. What is left out by rule is told apart from what should have been read and could
not be: only the latter is a failure.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from penstock.council.library.formats import Unreadable, is_binary
from penstock.council.library.sections import Form
from penstock.errors import UsageError

MOST_BYTES = 32 * 1024 * 1024
_HEAD_BYTES = 8192

_MARKDOWN = "md markdown mdown mkd mdx qmd rmd"
_HTML = "html htm xhtml"
_TEXT = "txt text log org adoc asciidoc tex csv tsv"
_CODE = (
    "py pyi pyx ipynb js mjs cjs jsx ts tsx vue svelte java kt kts scala groovy go rs c h cc cpp cxx hh hpp hxx m "
    "mm cs fs vb swift dart rb php pl pm lua r jl hs ml mli clj cljs ex exs erl hrl elm nim zig sh bash zsh fish "
    "ps1 bat sql graphql proto thrift css scss sass less xml xsd xsl yaml yml toml json jsonl ini cfg conf "
    "properties gradle cmake tf hcl nix vim el lisp scm asm s"
)
_BY_ENDING: dict[str, Form] = {
    "pdf": Form.PDF,
    "rst": Form.RST,
    **dict.fromkeys(_MARKDOWN.split(), Form.MARKDOWN),
    **dict.fromkeys(_HTML.split(), Form.HTML),
    **dict.fromkeys(_TEXT.split(), Form.TEXT),
    **dict.fromkeys(_CODE.split(), Form.CODE),
}
_PLAIN_NAMES = "readme changelog license licence copying notice authors contributing todo"
_CODE_NAMES = "makefile dockerfile containerfile jenkinsfile justfile cmakelists.txt"
_BY_NAME: dict[str, Form] = {
    **dict.fromkeys(_PLAIN_NAMES.split(), Form.TEXT),
    **dict.fromkeys(_CODE_NAMES.split(), Form.CODE),
}
# Folders whose files nobody wrote, or wrote for another folder.
_FOREIGN = frozenset({"node_modules", "__pycache__", "venv", "site-packages"})


@dataclass(frozen=True, slots=True)
class File:
    source: str  # below the folder
    path: Path  # as it is opened: whole, and no part of it is a link
    form: Form
    size_bytes: int


@dataclass(frozen=True, slots=True)
class Aside:
    """A file, or a folder with all it holds ("docs/"), that is not read, and why."""

    source: str
    reason: str


@dataclass(slots=True)
class Found:
    files: list[File] = field(default_factory=list)  # by source
    left_out: list[Aside] = field(default_factory=list)
    failed: list[Aside] = field(default_factory=list)  # should have been read; a folder ends with "/"

    def is_unseen(self, source: str) -> bool:
        """Whether that file may be there, though it could not be looked at."""
        return any(
            source == one.source or (one.source.endswith("/") and source.startswith(one.source))
            for one in self.failed
        )


def form_of(name: str) -> Form | None:
    """How a file of that name is read; None: it is no document."""
    lower = name.lower()
    if lower in _BY_NAME:
        return _BY_NAME[lower]
    return _BY_ENDING.get(PurePosixPath(lower).suffix.removeprefix("."))


def resolved(folder: Path) -> Path:
    """The folder itself, whatever links lead to it."""
    try:
        root = folder.resolve(strict=True)
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror}; give a folder that is there") from None
    if not root.is_dir():
        raise UsageError(f"{folder}: is not a folder; give the one that the documents are in")
    return root


def find(folder: Path, *, most_bytes: int = MOST_BYTES) -> Found:
    """All documents below a folder, in the order of their sources."""
    root = resolved(folder)
    found = Found()
    links: list[tuple[str, Path]] = []
    for source, entry in _walk(root, found):
        if entry.is_symlink():
            links.append((source, Path(entry.path)))
        else:
            _take(found, source, Path(entry.path), most_bytes)
    taken = {file.path: file.source for file in found.files}
    for source, path in links:
        _take_link(found, root, source, path, taken, most_bytes)
    for some in (found.files, found.left_out, found.failed):
        some.sort(key=lambda one: one.source)
    return found


def _walk(root: Path, found: Found) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Every file and link of the folders that are entered, by source."""
    waiting: list[tuple[str, str]] = [("", str(root))]
    while waiting:
        above, path = waiting.pop()
        try:
            with os.scandir(path) as entries:
                here = list(entries)
        except OSError as error:
            if not above:
                raise UsageError(f"{root}: cannot be listed: {error.strerror}") from None
            found.failed.append(Aside(above, f"cannot be listed: {error.strerror}"))
            continue
        for entry in here:
            source = above + entry.name
            if (wrong := _wrong_name(entry.name)) is not None:
                found.failed.append(Aside(_shown(source), wrong))
            elif not entry.is_dir(follow_symlinks=False):
                yield source, entry
            elif (reason := _not_entered(entry)) is not None:
                found.left_out.append(Aside(source + "/", reason))
            else:
                waiting.append((source + "/", entry.path))


def _wrong_name(name: str) -> str | None:
    try:
        name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8; rename it"
    return None if name.isprintable() else "its name has signs that cannot be printed; rename it"


def _shown(source: str) -> str:
    plain = source.encode("utf-8", "replace").decode()
    return "".join(sign if sign.isprintable() else "�" for sign in plain)


def _not_entered(entry: os.DirEntry[str]) -> str | None:
    if entry.name.startswith("."):
        return "hidden"
    if entry.name in _FOREIGN or os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
        return "not its own files"
    return None


def _take(found: Found, source: str, path: Path, most_bytes: int) -> None:
    name = path.name if PurePosixPath(source).name == path.name else PurePosixPath(source).name
    form = form_of(name)
    if name.startswith("."):
        found.left_out.append(Aside(source, "hidden"))
        return
    if form is None:
        found.left_out.append(Aside(source, "not a document"))
        return
    try:
        seen = os.lstat(path)
    except OSError as error:
        found.failed.append(Aside(source, f"cannot be read: {error.strerror}"))
        return
    if not stat.S_ISREG(seen.st_mode):
        found.left_out.append(Aside(source, "not a plain file"))
    elif seen.st_size > most_bytes:
        found.left_out.append(Aside(source, f"over {most_bytes / 1024**2:g} MiB"))
    elif not seen.st_size:
        found.left_out.append(Aside(source, "empty"))
    else:
        found.files.append(File(source, path, form, seen.st_size))


def _take_link(
    found: Found, root: Path, source: str, path: Path, taken: dict[Path, str], most_bytes: int
) -> None:
    try:
        target = path.resolve(strict=True)
    except (OSError, RuntimeError):
        found.left_out.append(Aside(source, "a link to nothing"))
        return
    if not target.is_relative_to(root):
        found.left_out.append(Aside(source, "a link out of the folder"))
    elif target.is_dir():
        found.left_out.append(Aside(source, "a link to a folder"))
    elif target in taken:
        found.left_out.append(Aside(source, f"a link to {taken[target]}, which is read"))
    else:
        taken[target] = source
        _take(found, source, target, most_bytes)


def load(file: File, *, most_bytes: int = MOST_BYTES) -> bytes:
    """What is in a file that was found; `Unreadable` where it is gone, no file any more, or binary."""
    try:
        with open(_opened(file.path), "rb") as opened:
            if not stat.S_ISREG(os.fstat(opened.fileno()).st_mode):
                raise Unreadable("is no plain file any more")
            data = opened.read(most_bytes + 1)
    except OSError as error:
        raise Unreadable(f"cannot be read: {error.strerror}") from None
    if len(data) > most_bytes:
        raise Unreadable(f"has grown over {most_bytes / 1024**2:g} MiB")
    return data


def _opened(path: Path) -> int:
    """Part by part, and no part may be a link: it may have become one since the file was found."""
    never_a_link = os.O_NOFOLLOW | os.O_CLOEXEC
    to_pass = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | never_a_link
    above = os.open(path.anchor, to_pass)
    try:
        for part in path.parts[1:-1]:
            below = os.open(part, to_pass, dir_fd=above)
            os.close(above)
            above = below
        return os.open(path.name, os.O_RDONLY | os.O_NONBLOCK | never_a_link, dir_fd=above)
    finally:
        os.close(above)


def is_text(file: File, data: bytes) -> bool:
    """Whether it is what its name says, as far as its beginning tells."""
    return file.form is Form.PDF or not is_binary(data[:_HEAD_BYTES])

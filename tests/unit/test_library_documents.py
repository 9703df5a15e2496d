"""Documents of a folder: which files are read and how, what is left out, and what cannot be read is told."""

from __future__ import annotations

import os
from io import BytesIO
from pathlib import Path

import pytest

from penstock.council.library.documents import Aside, File, find, form_of, is_text, load
from penstock.council.library.formats import Unreadable, decoded, read
from penstock.council.library.sections import Form
from penstock.errors import UsageError
from tests.unit.pdf_rig import pdf


def write(folder: Path, name: str, data: str | bytes = "text") -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def reasons(asides: list[Aside]) -> dict[str, str]:
    return {one.source: one.reason for one in asides}


# ---- which files


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("a.md", Form.MARKDOWN),
        ("A.MARKDOWN", Form.MARKDOWN),
        ("a.rst", Form.RST),
        ("notes.txt", Form.TEXT),
        ("README", Form.TEXT),
        ("a.PDF", Form.PDF),
        ("a.htm", Form.HTML),
        ("a.py", Form.CODE),
        ("Makefile", Form.CODE),
        ("a.png", None),
        ("a", None),
    ],
)
def test_files_are_documents_by_their_names(name: str, form: Form | None) -> None:
    assert form_of(name) is form


def test_a_folder_is_searched_whole_and_in_order(tmp_path: Path) -> None:
    """D2: the documents of a folder, with "/" in their sources, and each thing left out with its reason."""
    for name in ("b.md", "a.txt", "deep/er/c.py", "deep/d.pdf"):
        write(tmp_path, name)
    for name in (".git/config.md", ".venv/x.md", "node_modules/x/y.js", "env/pyvenv.cfg", "env/lib/x.py"):
        write(tmp_path, name)
    write(tmp_path, ".hidden.md")
    write(tmp_path, "picture.png")
    write(tmp_path, "empty.md", "")
    write(tmp_path, "large.txt", "x" * 2049)
    os.mkfifo(tmp_path / "pipe.txt")
    found = find(tmp_path, most_bytes=2048)
    assert [(file.source, file.form) for file in found.files] == [
        ("a.txt", Form.TEXT),
        ("b.md", Form.MARKDOWN),
        ("deep/d.pdf", Form.PDF),
        ("deep/er/c.py", Form.CODE),
    ]
    assert reasons(found.left_out) == {
        ".git/": "hidden",
        ".hidden.md": "hidden",
        ".venv/": "hidden",
        "empty.md": "empty",
        "env/": "not its own files",
        "large.txt": "over 0.00195312 MiB",
        "node_modules/": "not its own files",
        "picture.png": "not a document",
        "pipe.txt": "not a plain file",
    }
    assert not found.failed


def test_links_never_lead_out(tmp_path: Path) -> None:
    folder = tmp_path / "docs"
    write(tmp_path, "secret.md")
    write(tmp_path, "other/x.md")
    write(folder, "real.md")
    write(folder, "..data/kept.md")
    (folder / "out.md").symlink_to(tmp_path / "secret.md")
    (folder / "out").symlink_to(tmp_path / "other")
    (folder / "gone.md").symlink_to(tmp_path / "nothing.md")
    (folder / "loop.md").symlink_to("loop.md")
    (folder / "again.md").symlink_to("real.md")
    (folder / "up").symlink_to(folder)
    (folder / "kept.md").symlink_to("..data/kept.md")
    (tmp_path / "door").symlink_to(folder)
    found = find(tmp_path / "door")
    assert [file.source for file in found.files] == ["kept.md", "real.md"]
    assert reasons(found.left_out) == {
        "..data/": "hidden",
        "again.md": "a link to real.md, which is read",
        "gone.md": "a link to nothing",
        "loop.md": "a link to nothing",
        "out": "a link out of the folder",
        "out.md": "a link out of the folder",
        "up": "a link to a folder",
    }


def test_a_file_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    secret = write(tmp_path, "secret.txt", "secret")
    path = write(tmp_path, "docs/a.txt", "text")
    (file,) = find(tmp_path / "docs").files
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(Unreadable, match="cannot be read"):
        load(file)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(Unreadable, match="no plain file"):
        load(file)
    path.unlink()
    with pytest.raises(Unreadable, match="No such file"):
        load(file)


def test_a_folder_that_became_a_link_is_not_followed(tmp_path: Path) -> None:
    """D2: nothing outside the folder is read, also when it is exchanged between finding and reading."""
    write(tmp_path, "elsewhere/deep/a.txt", "secret")
    write(tmp_path, "docs/sub/deep/a.txt", "text")
    (file,) = find(tmp_path / "docs").files
    assert load(file) == b"text"
    (tmp_path / "docs/sub").rename(tmp_path / "away")
    (tmp_path / "docs/sub").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(Unreadable, match="cannot be read: Not a directory"):
        load(file)


def test_a_file_that_grew_too_large_is_told(tmp_path: Path) -> None:
    path = write(tmp_path, "a.txt", "x" * 11)
    with pytest.raises(Unreadable, match="has grown over"):
        load(File("a.txt", path, Form.TEXT, 1), most_bytes=10)


def test_what_should_have_been_read_is_told_apart(tmp_path: Path) -> None:
    write(tmp_path, "fine.md")
    (tmp_path / os.fsdecode(b"bad\xff.md")).write_text("x")
    (tmp_path / "two\nlines.md").write_text("x")
    found = find(tmp_path)
    assert [file.source for file in found.files] == ["fine.md"]
    assert reasons(found.failed) == {
        "bad?.md": "its name is not UTF-8; rename it",
        "two�lines.md": "its name has signs that cannot be printed; rename it",
    }


def test_a_folder_that_cannot_be_listed_hides_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "a.md")
    write(tmp_path, "shut/b.md")
    scandir = os.scandir

    def shut(path: str) -> object:
        if path.endswith("shut"):
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", shut)
    found = find(tmp_path)
    assert reasons(found.failed) == {"shut/": "cannot be listed: Permission denied"}
    assert found.is_unseen("shut/b.md")
    assert not found.is_unseen("a.md")
    assert not found.is_unseen("shutter.md")


def test_what_is_no_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        find(tmp_path / "none")
    with pytest.raises(UsageError, match="is not a folder"):
        find(write(tmp_path, "a.md"))


# ---- text


@pytest.mark.parametrize(
    ("data", "text", "note"),
    [
        ("grün\r\nblau\rrot".encode(), "grün\nblau\nrot", None),
        ("grün".encode("utf-8-sig"), "grün", None),
        ("grün".encode("utf-16"), "grün", None),
        ("grün".encode("utf-32"), "grün", None),
        ("grün".encode("latin-1"), "grün", "is not UTF-8 (byte 2); read as Latin-1"),
    ],
)
def test_encodings(data: bytes, text: str, note: str | None) -> None:
    assert decoded(data) == (text, note)
    assert is_text(File("a.txt", Path("a.txt"), Form.TEXT, 1), data)


def test_binary_files_are_seen(tmp_path: Path) -> None:
    file = File("a.txt", tmp_path, Form.TEXT, 1)
    assert not is_text(file, b"\x7fELF\0\0")
    assert is_text(File("a.pdf", tmp_path, Form.PDF, 1), b"%PDF\0")
    with pytest.raises(Unreadable, match="begins as UTF-16 but is not"):
        read(Form.TEXT, b"\xff\xfea")


def test_what_nobody_sees_is_taken_out() -> None:
    (section,) = read(Form.TEXT, b"a\x00b \x1b[31m" + b" " * 5000 + b"c\n\n\n \n\nd").sections
    assert section.text.split() == ["a", "b", "[31m", "c", "d"]
    assert len(section.text) < 200


def test_nothing_but_blanks_is_told() -> None:
    with pytest.raises(Unreadable, match="holds no text"):
        read(Form.MARKDOWN, b" \n\n\t")


# ---- HTML

HTML = b"""<!doctype html><html><head><title>The Guide</title><style>p { color: red }</style>
<script>var hidden = 1</script></head><body>
<nav><a href="/">Home</a></nav><!-- a comment -->
<p>Before   all,<b>bold</b>.</p>
<h1>The Guide</h1><p>One<br>two</p>
<h2>On <em>Linux</em></h2><ul><li>apt</li><li>dpkg</li></ul>
<pre>x = 1
    y = 2</pre><table><tr><td>a</td><td>b</td></tr></table>
<script>more()</script><h2>&Uuml;ber</h2><p>Ende</p></body></html>"""


def test_html_keeps_headings_and_leaves_out_what_is_not_read() -> None:
    """D2: of a page its text, under its headings; no script, no style, no navigation."""
    sections = read(Form.HTML, HTML).sections
    assert [section.heading for section in sections] == [
        "The Guide",
        "The Guide",
        "The Guide › On Linux",
        "The Guide › Über",
    ]
    assert sections[0].text == "Before all,bold.\n"
    assert "One\ntwo" in sections[1].text
    assert "apt\n" in sections[2].text
    assert "x = 1\n    y = 2" in sections[2].text
    whole = "".join(section.text for section in sections)
    assert not any(word in whole for word in ("hidden", "color", "Home", "comment", "more()"))


def test_html_that_is_broken_is_read_as_far_as_it_goes() -> None:
    (section,) = read(Form.HTML, b"<head><title>x</title><body><div><p>text <b>and").sections
    assert "text and" in section.text


def test_html_may_be_nested_deeply() -> None:
    (section,) = read(Form.HTML, b"<div>" * 5_000 + b"found").sections
    assert section.text.strip() == "found"


def test_blanks_of_html_are_no_trouble() -> None:
    (section,) = read(Form.HTML, b"<pre>" + b" " * 2_000_000 + b"x  \n y</pre>").sections
    assert section.text.split() == ["x", "y"]
    assert "x\ny" in section.text


# ---- PDF


def test_pdf_pages_are_headings() -> None:
    """D2: a PDF is read page by page."""
    sections = read(Form.PDF, pdf(["First page (one)\nwith a line", "", "Third"])).sections
    assert [(s.heading, s.text.split()) for s in sections] == [
        ("page 1", ["First", "page", "(one)", "with", "a", "line"]),
        ("page 2", []),
        ("page 3", ["Third"]),
    ]


def encrypted() -> bytes:
    import pypdf

    writer = pypdf.PdfWriter(clone_from=BytesIO(pdf(["secret"])))
    writer.encrypt("a password", algorithm="RC4-128")
    out = BytesIO()
    writer.write(out)
    return out.getvalue()


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (pdf(["", ""]), "holds no text on its 2 pages: scanned"),
        (pdf(["x"])[:200], "is damaged or no PDF"),
        (b"no pdf at all", "is damaged or no PDF"),
        (b"%PDF-1.4\n" + b"\0" * 500, "is damaged or no PDF"),
        (encrypted(), "is encrypted"),
    ],
    ids=["scanned", "cut short", "another file", "zeros", "encrypted"],
)
def test_pdfs_that_cannot_be_read_are_told(data: bytes, told: str) -> None:
    with pytest.raises(Unreadable, match=told):
        read(Form.PDF, data)

"""E9: how tools/first_hour.sh reads the first pages, and what it takes for the same output."""

from __future__ import annotations

import pytest

from tools.first_hour import PAGES, ROOT, Command, Ends, File, Python, difference, downloads_s, shape, steps

_PAGE = """\
Write `penstock.toml`:

```toml
store = "a.db"
```

```console
$ penstock init
wrote penstock.toml

$ penstock submit summarize \\
    --wait
done
^C
stopped
```

Some text.

```python
print(1)
```

```json
{}
```
"""


def test_a_page_is_files_commands_and_python_in_its_order() -> None:
    assert list(steps(_PAGE)) == [
        File("penstock.toml", 'store = "a.db"\n'),
        Command("penstock init", ("wrote penstock.toml",)),
        Command("penstock submit summarize --wait", ("done",)),
        Ends(("stopped",)),
        Python("print(1)\n"),
    ]


def test_the_first_pages_say_how_to_get_an_answer_a_batch_and_a_reason() -> None:
    for page in PAGES:
        commands = [step.words for step in steps((ROOT / page).read_text()) if isinstance(step, Command)]
        begun = [" ".join(words.split()[:2]) for words in commands]
        asked = [begun.index(f"penstock {name}") for name in ("init", "ask", "run", "why")]
        assert asked == sorted(asked), page
        assert begun[0] == "make install", page


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        ("run r-1m7r7n0ambxnhgcx: 4 tasks, 4 done", "run r-1m8aaaaaaaaaaaaa: 4 tasks, 4 done"),
        ("makespan 14.11 s, 1.02 × ideal", "makespan 954 ms, 1.1 × ideal"),
        ("local      2         4  28 s      99 %", "local  2  4  1m02s  100 %"),
        (
            "18:12:54.671 ready    dispatching penstock.db to 2 hosts",
            "01:02:03.4 ready dispatching /x/y/penstock.db to 2 hosts",
        ),
        (
            "a is done; it waited 12 s: slots:local",
            "a is done; it waited 10 ms: order (the dispatcher was taking it in)",
        ),
        ("queue    A queue is …", "queue    Queues are lists."),
    ],
)
def test_times_numbers_and_ids_may_differ(expected: str, printed: str) -> None:
    assert difference([expected], [printed]) is None


@pytest.mark.parametrize(
    ("expected", "printed"),
    [
        (["4 tasks, 4 done"], ["4 tasks, 3 done, 1 failed"]),
        (["one", "two"], ["one"]),
        (["one"], ["one", "two"]),
        (["one", "three"], ["one", "two", "three"]),
        (["one", "…", "four"], ["one", "two", "three"]),
        (["queue  …"], ["river  A river"]),
        (["up  host"], ["down  host"]),
    ],
)
def test_what_is_printed_otherwise_is_found(expected: list[str], printed: list[str]) -> None:
    assert difference(expected, printed) is not None


def test_dots_stand_for_any_lines() -> None:
    assert difference(["one", "…"], ["one", "two", "three"]) is None
    assert difference(["…", "three"], ["one", "two", "three"]) is None
    assert difference(["one", "…", "three"], ["one", "three"]) is None


def test_a_shape_has_no_colors() -> None:
    assert shape("\x1b[1mhost \x1b[0m  12 ms") == "host N"


def test_downloads_are_what_uv_says() -> None:
    printed = (
        "install: fetched uv in 4 s",
        "Resolved 39 packages in 2.62s",
        "Prepared 2 packages in 776ms",
        "Installed 39 packages in 5s",
    )
    assert downloads_s("\n".join(printed)) == pytest.approx(4 + 2.62 + 0.776)
    assert downloads_s("Prepared 3 packages in 1m 02s\n") == 62

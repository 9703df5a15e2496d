"""Whether two claims that are alike can both be true: figures, units, and what is denied."""

from __future__ import annotations

import pytest

from penstock.council.plan.contradictions import contradict, doubtful, quantities
from penstock.council.plan.words_alike import alike


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("5 mg", {(0.005, "g")}),
        ("0.5 g, or 500 mg", {(0.5, "g")}),
        ("two hours", {(7200.0, "s")}),
        ("90 minutes", {(5400.0, "s")}),
        ("1,000 and 1.000,5 and 3,14", {(1000.0, ""), (1000.5, ""), (3.14, "")}),
        ("3.14159", {(3.14159, "")}),
        ("3 million people", {(3e6, "")}),
        ("three million euros", {(3e6, "eur")}),
        ("$20 and 20 %", {(20.0, "usd"), (20.0, "percent")}),
        ("-5 °C", {(-5.0, "celsius")}),
        ("10 GB, 10-minute", {(1e10, "byte"), (600.0, "s")}),
        ("version2 of IPv6", set()),
        ("no figures here", set()),
    ],
)
def test_figures_are_read_with_their_units(text: str, found: set[tuple[float, str]]) -> None:
    assert {(round(one.value, 9), one.unit) for one in quantities(text)} == found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It takes 5 mg.", "It takes 50 mg."),
        ("It was in 1945.", "It was in 1944."),
        ("The file is 10 MB.", "The file is 10 GB."),
        ("It works.", "It doesn't work."),
        ("It doesn’t work.", "It works."),
        ("Prices rise in May.", "Prices fall in May."),
        ("Der Server ist sicher.", "Der Server ist nicht sicher."),
        ("Le serveur est sûr.", "Le serveur n'est pas sûr."),
        ("El servidor es seguro.", "El servidor nunca es seguro."),
        ("Yes.", "No."),
    ],
)
def test_what_cannot_both_be_true(one: str, other: str) -> None:
    assert contradict(one, other)
    assert contradict(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It takes two hours.", "It takes 120 minutes."),
        ("About 300,000 km/s.", "299,792 km/s."),
        ("It is 5 mg.", "It is little."),
        ("It is closed today.", "It is not open today."),
        ("It never works.", "It does not work."),
        ("It is not only fast but cheap.", "It is fast and cheap."),
        ("In 1945, 3 people met.", "In 1945, they met."),
        ("It costs 20 $ or 18 €.", "It costs 18 €."),
    ],
)
def test_what_can_both_be_true(one: str, other: str) -> None:
    assert not contradict(one, other)
    assert not contradict(other, one)


def test_a_no_about_something_else_is_only_doubtful() -> None:
    one = "Aspirin eases headaches in most adults."
    other = "Aspirin is not for people who bleed easily, and children under medical care."
    assert not contradict(one, other)
    assert doubtful(one, other)
    assert not doubtful(one, one)


def test_words_alike_see_words() -> None:
    same, stemmed, other, none = alike(
        ["The cats are sleeping", "the cat is sleeping", "Dogs bark", "日本語の文"]
    )[0]
    assert same == 1.0
    assert 0.8 < stemmed < 1.0
    assert (other, none) == (0.0, 0.0)
    assert alike(["水は百度で沸騰する", "水は百度で沸く"])[0][1] > 0.5
    assert alike(["...", "it"]) == [[0.0, 0.0], [0.0, 1.0]]

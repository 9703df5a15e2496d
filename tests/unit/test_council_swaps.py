"""Whether claims that share their words have another one in the same place, and which ones exclude each other."""

from __future__ import annotations

import pytest

from penstock.council.plan.swaps import swaps_of


@pytest.mark.parametrize(
    ("one", "other", "swapped"),
    [
        ("The capital is Sydney.", "The capital is Canberra.", ("Sydney", "Canberra")),
        ("The answer is B.", "The answer is C.", ("B", "C")),
        ("A is right.", "B is right.", ("A", "B")),
        ("It ended in May.", "It ended in August.", ("May", "August")),
        ("It is done in the morning.", "It is done in the evening.", ("morning", "evening")),
        ("Back it up every day.", "Back it up every week.", ("day", "week")),
        ("Written by Jane Austen.", "Written by Charles Dickens.", ("Jane Austen", "Charles Dickens")),
        ("I strongly recommend Rust for it.", "I recommend Java for it.", ("Rust", "Java")),
    ],
)
def test_names_letters_and_times_exclude_each_other(one: str, other: str, swapped: tuple[str, str]) -> None:
    for pair, expected in (((one, other), swapped), ((other, one), swapped[::-1])):
        found = swaps_of(*pair)
        assert found is not None
        assert found.are_certain
        assert expected in found.open


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The patient has pneumonia.", "The patient has tuberculosis."),
        ("Use a large cache.", "Use a big cache."),
        ("Sydney is the capital.", "Canberra is the capital."),
        ("Der Server ist langsam.", "Der Rechner ist langsam."),
        ("You may march on.", "You may walk on."),
    ],
)
def test_of_other_words_nothing_is_certain(one: str, other: str) -> None:
    found = swaps_of(one, other)
    assert found is not None
    assert not found.are_certain


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Paris is the capital of France.", "France's capital city is Paris."),
        ("The disk is the bottleneck.", "The bottleneck is clearly the slow disk."),
        ("It was made in the United States.", "It was made in the US."),
        ("Use Postgres for it.", "Use PostgreSQL for it."),
        ("It takes 5 mg.", "It takes five milligrams."),
        ("Rust prevents races at compile time.", "The population of the city grew a lot in the last years."),
        ("...", "..."),
        ("A", ""),
    ],
)
def test_order_additions_and_short_forms_are_no_other_things(one: str, other: str) -> None:
    assert swaps_of(one, other) is None
    assert swaps_of(other, one) is None


def test_what_may_be_one_of_several_is_told() -> None:
    several = swaps_of("Many tourists visit Rome.", "Many tourists visit Venice.")
    only = swaps_of("The pope lives in Rome.", "The pope lives in Venice.")
    assert several is not None
    assert only is not None
    assert (several.may_both_be, only.may_both_be) == (True, False)


def test_first_words_without_an_article_may_be_names() -> None:
    names = swaps_of("Lisbon hosted the fair.", "Madrid hosted the fair.")
    things = swaps_of("The car needs oil.", "The van needs oil.")
    assert names is not None
    assert things is not None
    assert (names.may_be_names, things.may_be_names) == (True, False)

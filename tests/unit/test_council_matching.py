"""What two claims that are alike are to each other: the same, unless figures, names or a denial speak against."""

from __future__ import annotations

import pytest

from penstock.council.plan.matching import ALIKE, Relation, relation

SAME, CONFLICT, NEITHER = Relation.SAME, Relation.CONFLICT, Relation.NEITHER


def between(one: str, other: str, cosine: float) -> Relation:
    """The order of the two makes no difference."""
    found = relation(one, other, cosine)
    assert relation(other, one, cosine) is found
    return found


def test_claims_that_are_not_alike_are_neither() -> None:
    assert between("It is safe.", "It is not safe.", ALIKE - 0.01) is NEITHER
    assert between("The dose is 5 mg.", "The dose is 50 mg.", ALIKE - 0.01) is NEITHER
    assert between("Blood pressure is lowered.", "Sport reduces it.", ALIKE - 0.01) is NEITHER


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("It takes 5 mg.", "It takes 50 mg.", CONFLICT),
        ("It was in 1945.", "It was in 1944.", CONFLICT),
        ("It costs 1,000.50 euros.", "It costs 1.000,5 euros.", SAME),
        ("It has 3,500,000 people.", "It has 3.500.000 people.", SAME),
        ("About 300,000 km/s.", "About 299,792 km/s.", SAME),
        ("It takes 2 hours.", "It takes 120 minutes.", NEITHER),
        ("In 1945, 3 people met.", "In 1945, they met.", SAME),
        ("It costs 20 $ or 18 €.", "It costs 18 €.", SAME),
        ("It is -5 degrees cold.", "It is 5 degrees cold.", CONFLICT),
        ("Use version2 of it.", "Use version2 of it now.", SAME),
    ],
)
def test_other_figures_are_a_veto(one: str, other: str, found: Relation) -> None:
    """Of the same unit they are a conflict; of another it may be the same amount, and nobody reckons that here."""
    assert between(one, other, 0.97) is found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It works.", "It doesn't work."),
        ("It doesn’t work.", "It works."),
        ("Der Server ist sicher.", "Der Server ist nicht sicher."),
        ("Le serveur est sûr.", "Le serveur n'est pas sûr."),
        ("El servidor es seguro.", "El servidor nunca es seguro."),
        ("这个服务器安全。", "这个服务器不安全。"),
        ("It is legal to park here.", "It is illegal to park here."),
        ("It will increase the load.", "It will decrease the load."),
    ],
)
def test_a_denial_is_a_veto_and_a_conflict(one: str, other: str) -> None:
    assert between(one, other, 0.97) is CONFLICT


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("It never works.", "It does not work."),
        ("It is not only fast but cheap.", "It is fast and cheap."),
        ("It takes no more than that.", "It takes that."),
    ],
)
def test_two_denials_deny_the_same(one: str, other: str) -> None:
    assert between(one, other, 0.97) is SAME


@pytest.mark.parametrize(
    ("one", "other", "found"),
    [
        ("It was written by Jane Austen.", "It was written by Charles Dickens.", CONFLICT),
        ("A queue follows the LIFO principle.", "A queue stores elements in a linear order.", NEITHER),
        ("The file has 10 MB.", "The file has 10 GB.", CONFLICT),
        ("Hamlet was written by William Shakespeare.", "Shakespeare wrote Hamlet.", SAME),
        ("It was made in the United States.", "It was made in the US.", SAME),
        ("Use Postgres for it.", "Use PostgreSQL for it.", SAME),
        ("Paris is the capital of France.", "France's capital city is Paris.", SAME),
    ],
)
def test_another_name_is_a_veto(one: str, other: str, found: Relation) -> None:
    """One name in common is enough; a capital at the beginning of a sentence is no name for sure. In claims that
    share their words it is a conflict; in others it only speaks against agreement."""
    assert between(one, other, 0.97) is found


@pytest.mark.parametrize(
    ("one", "other", "cosine", "found"),
    [
        ("The patient has a severe cold now.", "The patient has a severe flu now.", 0.88, CONFLICT),
        ("The doctor sees her patient.", "The physician sees her patient.", 0.95, SAME),
        ("Sport lowers it a lot.", "A lot of it is gone by regular exercise.", 0.8, SAME),
        ("The results were surprising.", "The final results were quite surprising to all.", 0.8, SAME),
    ],
)
def test_a_word_in_anothers_place_is_a_veto_where_it_moves_the_claim(
    one: str, other: str, cosine: float, found: Relation
) -> None:
    """Claims in the same words must be more alike than those in other words; one that says more is no other."""
    assert between(one, other, cosine) is found


@pytest.mark.parametrize("text", ["...", "", "?", "9" * 400, "-", "1.2.3.4", "İstanbul", "，。"])
def test_any_text_is_read(text: str) -> None:
    for other in (text, "A queue holds 5 items."):
        between(text, other, 0.9)

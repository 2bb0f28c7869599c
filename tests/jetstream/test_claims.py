"""No two streams take the same subject (JSStreamSubjectOverlapErr, error 10065)."""

from hypothesis import given
from hypothesis import strategies as st

from natsd.core.routing import collide
from natsd.core.steps import at_once
from natsd.jetstream.claims import SubjectClaims


def test_subjects_collide_with_those_of_others_only() -> None:
    claims = SubjectClaims()
    at_once(claims.claim("ORDERS", ["orders.>", "refunds"]))
    assert at_once(claims.collide(["a", "orders.*.new"]))
    assert at_once(claims.collide(["*"]))
    assert not at_once(claims.collide(["orders", "refunds.a"]))
    assert not at_once(claims.collide(["orders.7"], but="ORDERS"))
    assert claims.owners(">") == {"ORDERS"}


def test_what_is_released_or_replaced_is_free() -> None:
    claims = SubjectClaims()
    at_once(claims.claim("A", ["a", "b"]))
    at_once(claims.claim("A", ["b", "c"]))
    assert [claims.owners(subject) for subject in "abc"] == [set(), {"A"}, {"A"}]
    at_once(claims.claim("A", ()))
    at_once(claims.claim("A", ()))
    assert not at_once(claims.collide([">"]))


tokens = st.sampled_from(["a", "b", "*"])
subjects = st.builds(
    lambda path, tail: ".".join([*path, *tail]),
    st.lists(tokens, min_size=1, max_size=3),
    st.sampled_from([[], [">"]]),
)


@given(st.lists(st.lists(subjects, max_size=3), max_size=4), subjects)
def test_owners_are_those_with_a_colliding_subject(held: list[list[str]], asked: str) -> None:
    claims = SubjectClaims()
    for number, mine in enumerate(held):
        at_once(claims.claim(str(number), mine))
    expected = {
        str(number)
        for number, mine in enumerate(held)
        if any(collide(asked, subject) for subject in mine)
    }
    assert claims.owners(asked) == expected

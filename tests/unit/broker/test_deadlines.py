"""One heap for all deadlines: due in order, replaced and cleared at will, never larger than what is pending."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import given

from local.broker.deadlines import Deadlines

keys = st.integers(0, 5)
times = st.integers(0, 50).map(float)
steps = st.lists(st.tuples(st.sampled_from(["set", "clear", "run"]), keys, times))


@given(steps)
def test_what_is_due_runs_once_in_the_order_of_time(plan: list[tuple[str, int, float]]) -> None:
    deadlines, pending = Deadlines(), dict[int, float]()
    ran: list[tuple[float, int]] = []
    for what, key, when in plan:
        if what == "set":
            deadlines.set(key, when, lambda at, key=key: ran.append((at, key)))  # type: ignore[misc]
            pending[key] = when
        elif what == "clear":
            deadlines.clear(key)
            pending.pop(key, None)
        else:
            ran.clear()
            deadlines.run(when)
            due = sorted(at for at in pending.values() if at <= when)
            assert [at for at, _ in ran] == due
            assert all(pending.pop(key) == at for at, key in ran)
        assert deadlines.next() == min(pending.values(), default=None)
        assert len(deadlines) == len(pending)


def test_an_action_may_set_and_clear_others_while_it_runs() -> None:
    deadlines, ran = Deadlines(), list[str]()

    def first(when: float) -> None:
        ran.append("first")
        deadlines.clear("second")
        deadlines.set("third", when + 1, lambda _: ran.append("third"))

    deadlines.set("first", 1.0, first)
    deadlines.set("second", 1.0, lambda _: ran.append("second"))
    deadlines.run(2.0)
    assert ran == ["first", "third"]


def test_cleared_deadlines_behind_a_live_one_do_not_pile_up() -> None:
    deadlines = Deadlines()
    deadlines.set("live", 1.0, lambda _: None)
    for number in range(10_000):
        deadlines.set(number, 2.0, lambda _: None)
        deadlines.clear(number)
    assert len(deadlines._heap) <= 70
    for number in range(10_000):
        deadlines.set("moved", 2.0 + number, lambda _: None)
    assert len(deadlines._heap) <= 70

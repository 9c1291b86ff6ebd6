"""Shares: what one tenant's hard grammars need comes out of its own part of fuel, slots, prefetch and compiles."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import numpy as np
import pytest
from engine_cases import VOCABULARY, WIDTH, answers, forcing_grammars, random_grammars, random_requests, served

from stepmask.integrations.compile_service.jobs import Job, JobQueue
from stepmask.integrations.compile_service.requests import CompileRequest
from stepmask.integrations.engine import Admission, AdmissionClass, Engine, Request
from stepmask.integrations.engine.scheduler import FairSlots
from stepmask.integrations.engine.shares import SharedRows
from stepmask.integrations.engine.synthetic import SyntheticModel
from stepmask.masks.prefetch import PrefetchGroup

ONE_LANE = Admission(structured=AdmissionClass("structured"))


@pytest.fixture(scope="module")
def grammars() -> list[Any]:
    return random_grammars(20)


def victims(grammars: list[Any], count: int = 8) -> list[Request]:
    """Rows that can have no token without their mask, so that each step without one is a deferral."""
    return [
        Request(
            [n],
            grammars[n % 4],
            max_tokens=12,
            temperature=1.0,
            seed=n,
            logprobs=True,
            tenant="victim",
            ignore_eos=True,
        )
        for n in range(count)
    ]


def adversaries(grammars: list[Any], count: int, admission: str | None) -> list[Request]:
    """The same of sixteen other grammars, all of them cold: more masks than the fuel of all steps makes."""
    return [
        Request(
            [n], grammars[4 + n % 16], max_tokens=30, temperature=1.0, seed=n, logprobs=True, tenant="adversary",
            admission=admission,
        )
        for n in range(count)
    ]  # fmt: skip


def deferred(engine: Engine, tenant: str) -> int:
    return sum(waits.deferred for waits in engine.recorder.waits(10_000) if waits.who.endswith(f"of {tenant}"))


@pytest.mark.parametrize(("admission", "part"), [(None, 1 / 2), ("untrusted", 3 / 4)])
def test_hard_grammars_of_one_tenant_defer_no_other(grammars: list[Any], admission: str | None, part: float) -> None:
    """The victim waits no longer than alone with its part of the budget: the other lane of its class has half of it,
    the class of the untrusted a quarter. First come, first served, it waits for everybody."""
    work = victims(grammars)
    bad = adversaries(grammars, 48, admission)
    mixed = [request for pair in zip(bad, work * 6, strict=True) for request in pair][: 2 * len(work)] + bad[
        len(work) :
    ]
    for budget in (1.0, 4.0):
        alone, expected = served(work, budget, slots=16, admission=Admission())
        engine, handles = served(mixed, budget, slots=16, admission=Admission())
        own = [handle for handle in handles if handle.request.tenant == "victim"]
        assert answers(own) == answers(expected)
        # Alone with this part of the budget, of which `plan` has what it had, and `settle` nothing to do.
        small, _ = served(work, budget * part, slots=16, admission=Admission())
        # Which rows the batch serves first depends on the fuel of a step a little; and of a very small budget the least
        # that each phase does is much, so that half of it does more than half of the work.
        bound = max(1.1 * deferred(small, "victim"), deferred(alone, "victim") / part) + 2 * len(work)
        assert deferred(alone, "victim") < deferred(engine, "victim") <= bound
        assert deferred(engine, "adversary") > 4 * deferred(engine, "victim")
        unfair, _ = served(mixed, budget, slots=16)
        assert deferred(unfair, "victim") > bound


def test_shares_change_no_answer(grammars: list[Any]) -> None:
    """With the overlapped loop, forced tokens, prefetch, any number of lanes, at every budget."""
    rng = np.random.default_rng(8)
    kinds = [*grammars[:8], *forcing_grammars() * 2]
    forced = 0
    for number in range(5):
        base = random_requests(rng, kinds, 20)
        requests = [
            Request(
                request.prompt_ids, request.grammar, request.max_tokens, request.temperature, request.top_k,
                request.top_p, request.min_p, request.seed, min_tokens=request.min_tokens, logprobs=request.logprobs,
                tenant=str(rng.integers(4)),
                admission="untrusted" if request.grammar is not None and rng.random() < 0.4 else None,
            )
            for request in base
        ]  # fmt: skip
        expected = answers(served(requests, None)[1])
        for i, budget in enumerate((0.5, 1.0, 200.0, None)):
            lanes = Admission(
                structured=AdmissionClass("structured", 1 + i, 1 + number % 3),
                untrusted=AdmissionClass("untrusted", lanes=1 + i % 2, max_slots=3),
            )
            engine, handles = served(
                requests, budget, slots=6, admission=lanes, overlap=i % 2 == 0, forced=True, spare_rows=i,
                prefetch=number % 2 == 0,
            )  # fmt: skip
            assert answers(handles) == expected
            forced += engine.recorder.forced
    assert forced > 300


def test_all_lanes_together_have_the_fuel_of_one_step(grammars: list[Any]) -> None:
    work = [*victims(grammars, 16), *adversaries(grammars, 32, None), *adversaries(grammars, 32, "untrusted")]
    one, _ = served(work, 8.0, slots=12)
    engine, _ = served(work, 8.0, slots=12, admission=Admission())
    assert isinstance(engine.rows, SharedRows) and engine.rows.budget == one.rows.budget
    # What a step goes beyond its budget by is at most one walk of each of its lanes.
    over = int(one.recorder.recorded().fuel.max()) - one.rows.budget
    assert engine.recorder.recorded().fuel.max() <= engine.rows.budget + max(0, over) + 3 * 128
    assert engine.rows.fuel == engine.recorder.recorded().fuel.sum()
    # Grammars that several lanes use have their masks made in each. But no fuel is left lying while others want it:
    # there are no more steps than that is more work.
    more_work = engine.rows.fuel / one.rows.fuel
    assert more_work < 3 and engine.recorder.steps <= 1.1 * more_work * one.recorder.steps


def test_tenants_of_one_lane_are_equals_however_many_rows_they_have(grammars: list[Any]) -> None:
    """By the shares of their rows."""
    engine = Engine(SyntheticModel(WIDTH, seed=1), VOCABULARY, 8, 160, budget_us=4.0, admission=ONE_LANE)
    handles = [engine.submit(request) for request in (*adversaries(grammars, 6, None), *victims(grammars, 2))]
    engine.step()
    assert isinstance(engine.rows, SharedRows)
    lane = engine.rows.lanes[0]
    assert lane.tenants == {"adversary": 6, "victim": 2}
    assert sorted(lane.rows._batch.shares.tolist()) == pytest.approx([1 / 6] * 6 + [1 / 2] * 2)
    handles[0].cancel()
    handles[7].cancel()
    engine.step()
    in_use = [int(slot) for slot in lane.rows._batch_slots if slot >= 0]
    assert sorted(lane.rows._batch.shares[in_use].tolist()) == pytest.approx([1 / 5] * 5 + [1])


class Patient(SyntheticModel):
    """A forward pass that goes on until as much has been made ahead as there is fuel for."""

    engine: Engine

    def decode(self, *arguments: Any) -> Any:
        logits = super().decode(*arguments)
        rows = self.engine.rows
        assert isinstance(rows, SharedRows)
        if rows.ahead is not None and rows.ahead.running:
            done = rows.ahead.thread._done
            assert done.acquire(timeout=60)
            done.release()
        return logits


@pytest.mark.parametrize(("admission", "parts"), [(Admission(), 2), (ONE_LANE, 4)])
def test_one_tenant_takes_nothing_from_the_prefetch_of_another(
    grammars: list[Any], admission: Admission, parts: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In counted work: with as many hard and cold rows of another tenant as there are slots, a tenant has as many masks
    made ahead as alone with its part of the fuel: half of it in a lane of its own. In one lane rows that wait may have
    half, and tenants have equal parts of the other half. That is so over all amounts of fuel together: with one of them
    a tenant has somewhat more or less, as what its rows wait for is made ahead for them too."""
    start = PrefetchGroup.start
    found, total, hits = np.zeros(2, np.int64), np.zeros(2, np.int64), np.zeros(2, np.int64)
    for fuel, seed, shared in itertools.product((100, 200, 400, 800, 2000), (1, 2), (0, 1)):
        given = (parts if shared else 1) * fuel
        monkeypatch.setattr(PrefetchGroup, "start", lambda self, weights, given=given: start(self, weights, given))
        model = Patient(WIDTH, seed=seed)
        # Alone it has half of the step's budget too: its rows wait as often, and what is made then is not made ahead.
        budget = 4.0 if shared else 2.0
        engine = Engine(model, VOCABULARY, 16, 160, budget_us=budget, admission=admission, prefetch=True)
        model.engine = engine
        work = [*adversaries(grammars, 40 * shared, None), *victims(grammars)]
        handles = [engine.submit(request) for request in work]
        engine.step()
        assert isinstance(engine.rows, SharedRows) and engine.rows.ahead is not None
        ahead = engine.rows.ahead
        (home,) = (lane for lane in engine.rows.lanes if "victim" in lane.tenants)
        prefetcher = home.rows.batch.prefetcher
        assert prefetcher is not None
        spent = np.zeros(16, np.int64)
        while not all(handle.is_finished for handle in handles if handle.request.tenant == "victim"):
            engine.step()
            own = [row for row in range(16) if engine.rows._tenant_of[row] == "victim" and home.members[row]]
            slots = home.rows._batch_slots[own]
            spent[slots] = np.maximum(spent[slots], prefetcher.spent[slots])
        # In a lane of its own all of the work is the tenant's, what its rows wait for included.
        found[shared] += prefetcher.counters["work"] if parts == 2 else int(spent.sum())
        if (fuel, seed) == (2000, 1):
            total[shared], hits[shared] = prefetcher.counters["work"], prefetcher.counters["hits"]
        assert engine.rows.prefetch_counters["waits"] == ahead.waits["waits"]
        prefetcher.close()
    assert found[1] >= 0.95 * found[0] > 50_000
    if parts == 2:  # a lane with one tenant, with what its rows waited for
        assert total[1] >= total[0]
        assert hits[1] >= hits[0] > 10


# --------------------------------------------------------------------------------------------------- slots and compiles
def test_slots_go_round_by_class_and_tenant() -> None:
    plain, bad = AdmissionClass("plain", weight=2), AdmissionClass("bad", max_slots=3, max_slots_per_tenant=2)
    slots: FairSlots[tuple[AdmissionClass, str, int]] = FairSlots(8, lambda one: (one[0], one[1]))
    for number in range(20):
        slots.enqueue((bad, "x", number))
    for number in range(20):
        slots.enqueue((bad, "y", number))
    for number in range(9):
        slots.enqueue((plain, "ab"[number % 2], number))
    seated = [occupant for _, occupant in slots.assign()]
    assert Counter((one.name, tenant) for one, tenant, _ in seated) == {
        ("bad", "x"): 2, ("bad", "y"): 1, ("plain", "a"): 3, ("plain", "b"): 2,
    }  # fmt: skip
    assert slots.waiting == 49 - 8 and slots.occupied == 8 and slots.assign() == []
    for slot in range(8):
        slots.free(slot)
    order = [
        number for one, tenant, number in [occupant for _, occupant in slots.assign()] if (one, tenant) == (bad, "y")
    ]
    assert order == sorted(order) and order
    for _ in range(100):
        for slot in range(8):
            if slots[slot] is not None:
                slots.free(slot)
        slots.assign()
    assert slots.is_idle


def test_no_tenant_holds_all_slots() -> None:
    admission = Admission(untrusted=AdmissionClass("untrusted", max_slots=4, max_slots_per_tenant=2))
    engine = Engine(SyntheticModel(WIDTH, seed=1), VOCABULARY, 6, 64, admission=admission)
    greedy = [
        engine.submit(Request([1], max_tokens=40, ignore_eos=True, tenant="a", admission="untrusted")) for _ in range(9)
    ]
    other = [engine.submit(Request([1], max_tokens=3, ignore_eos=True, tenant="b")) for _ in range(4)]
    engine.step()
    assert engine.running == 6 and sum(bool(handle.token_ids) for handle in greedy) == 2
    engine.run()
    assert all(handle.finish_reason == "length" for handle in [*greedy, *other])


def test_admission_says_what_it_refuses(grammars: list[Any]) -> None:
    engine = Engine(SyntheticModel(WIDTH, seed=1), VOCABULARY, 2, 64, admission=ONE_LANE)
    with pytest.raises(ValueError, match="no admission class 'other'"):
        engine.submit(Request([1], admission="other"))
    with pytest.raises(ValueError, match="without a grammar"):
        engine.submit(Request([1], grammars[0], admission="plain"))
    for settings in ({"weight": 0}, {"lanes": 0}, {"max_slots": 0}, {"max_slots_per_tenant": 0}):
        with pytest.raises(ValueError, match="at least 1"):
            AdmissionClass("x", **settings)
    assert engine.is_idle


def test_compiles_take_turns_by_group_before_tenant() -> None:
    """One group with many tenants has no more than another with one."""
    queue = JobQueue()
    for number in range(12):
        group, tenant = ("untrusted", str(number)) if number % 3 else ("structured", "a")
        request = CompileRequest(str(number), b"x")
        queue.push(Job(number, request, tenant, 0, 1.0, 1.0, group=group))
    order = []
    for _ in range(12):
        job = queue.pop()
        assert job is not None
        order.append(job.group)
        queue.finished(job, 1.0)
    assert order[:8].count("structured") == 4 and queue.pop() is None

"""The parts of the compile service that need no process: order, memory, encodings, admission."""

from __future__ import annotations

import os
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stepmask
from stepmask.grammar.errors import GrammarError
from stepmask.grammar.expression import Bytes, Expression, Repeat, Sequence
from stepmask.integrations.compile_service import CompileFailed, GrammarTextTooLarge, ServiceLimits
from stepmask.integrations.compile_service import requests as requests_of
from stepmask.integrations.compile_service.encoding import decode_grammar, encode_grammar
from stepmask.integrations.compile_service.failures import MAX_TEXT, Failure
from stepmask.integrations.compile_service.jobs import Job, JobQueue
from stepmask.integrations.compile_service.kept import KeptResults
from stepmask.integrations.compile_service.requests import KINDS, Admitted, CompileRequest, admit, grammar_of
from stepmask.integrations.messages import Channel, Closed, contents, unnamed_file
from stepmask.masks.cache import grammar_digest
from stepmask.masks.errors import UnknownTokenError

LIMITS = stepmask.Limits()
BOUNDS = ServiceLimits()


def job(number: int, tenant: str = "", priority: int = 0) -> Job:
    return Job(number, CompileRequest(str(number), bytes(10)), tenant, priority, 1.0, 1.0)


# --------------------------------------------------------------------------------------------------------------- order
def test_priority_then_the_least_served_tenant_then_age() -> None:
    queue = JobQueue()
    for number, (tenant, priority) in enumerate([("a", 0), ("a", 0), ("b", 0), ("c", 1), ("a", 0), ("b", 0)]):
        queue.push(job(number, tenant, priority))
    order = []
    while (taken := queue.pop()) is not None:
        order.append((taken.number, taken.tenant))
        queue.finished(taken, 1.0)
    assert order == [(3, "c"), (0, "a"), (2, "b"), (1, "a"), (5, "b"), (4, "a")]
    assert queue.total == queue.total_bytes == 0


def test_a_tenant_with_long_jobs_waits_longer() -> None:
    queue = JobQueue()
    for number in range(12):
        queue.push(job(number, "long" if number % 2 else "short"))
    order = []
    for _ in range(8):
        taken = queue.pop()
        assert taken is not None
        order.append(taken.tenant)
        queue.finished(taken, 5.0 if taken.tenant == "long" else 1.0)
    assert order.count("short") == 6 and order.count("long") == 2


def test_running_jobs_count_before_time_used() -> None:
    queue = JobQueue()
    for number in range(4):
        queue.push(job(number, "a" if number < 3 else "b"))
    assert [queue.pop().tenant for _ in range(4)] == ["a", "b", "a", "a"]  # type: ignore[union-attr]


def test_time_that_a_tenant_did_not_use_is_not_saved_up() -> None:
    queue = JobQueue()
    for number in range(20):
        queue.push(job(number, "a"))
    for _ in range(10):
        taken = queue.pop()
        assert taken is not None
        queue.finished(taken, 10.0)
    for number in range(20, 40):
        queue.push(job(number, "late"))
    order = []
    for _ in range(10):
        taken = queue.pop()
        assert taken is not None
        order.append(taken.tenant)
        queue.finished(taken, 10.0)
    assert 4 <= order.count("late") <= 6


def test_a_job_that_lost_its_worker_is_in_front_again() -> None:
    queue = JobQueue()
    for number in range(3):
        queue.push(job(number))
    first = queue.pop()
    assert first is not None and first.number == 0
    queue.finished(first, 0.5)
    queue.push(first, again=True)
    assert queue.pop() is first


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.sampled_from("abc")), max_size=40))
def test_nothing_is_lost_or_given_twice(steps: list[tuple[int, int, str]]) -> None:
    queue = JobQueue()
    waiting: dict[int, Job] = {}
    running: list[Job] = []
    for number, (action, priority, tenant) in enumerate(steps):
        if action <= 1:
            waiting[number] = new = job(number, tenant, priority)
            queue.push(new)
        elif action == 2 and waiting:
            removed = waiting.pop(min(waiting))
            assert queue.remove(removed) and not queue.remove(removed)
        else:
            taken = queue.pop()
            assert (taken is None) == (not waiting)
            if taken is not None:
                assert waiting.pop(taken.number) is taken
                assert all(other.priority <= taken.priority for other in waiting.values())
                running.append(taken)
            elif running:
                queue.finished(running.pop(), 1.0)
        assert queue.total == len(waiting) and queue.total_bytes == 10 * len(waiting)
        assert all(queue.waiting(name) == sum(j.tenant == name for j in waiting.values()) for name in "abc")


# -------------------------------------------------------------------------------------------------------------- errors
ERRORS = [
    stepmask.GrammarError("wrong", "column 7"),
    stepmask.GrammarSyntaxError("no such thing"),
    stepmask.GrammarTooLarge("too many", "column 3", limit="max_positions"),
    stepmask.GrammarUnsupported("not this", "/a/b"),
    stepmask.GrammarUnsatisfiable("nothing matches"),
    UnknownTokenError("no token '<x>'"),
    GrammarTextTooLarge("9 bytes"),
    TypeError("text is a str"),
    ValueError("no such option"),
]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_errors_arrive_as_they_were(error: Exception) -> None:
    failure = Failure.from_message(Failure.of(error).as_message())
    for _ in range(2):
        again = failure.error()
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
    assert failure.error() is not failure.error()
    assert failure.is_lasting == isinstance(error, GrammarError)


def test_other_errors_arrive_with_their_traceback() -> None:
    try:
        raise RuntimeError("a bug \ud800")
    except RuntimeError as error:
        failure = Failure.of(error)
    again = Failure.from_message(failure.as_message()).error()
    assert type(again) is CompileFailed and "test_parts.py" in str(again) and "a bug \\ud800" in str(again)
    assert not failure.is_lasting


def test_long_messages_are_cut() -> None:
    again = Failure.of(stepmask.GrammarSyntaxError("x" * 10 * MAX_TEXT)).error()
    assert MAX_TEXT < len(str(again)) < MAX_TEXT + 50
    one, other = Channel.pair()
    one.send(Failure.of(stepmask.GrammarSyntaxError("\0" * MAX_TEXT, "é" * MAX_TEXT)).as_message())
    one.close()
    other.close()


def test_only_grammar_errors_are_kept_and_only_so_many() -> None:
    kept = KeptResults(ServiceLimits(max_kept_errors=2))
    for number in range(4):
        kept.put(f"error {number}", Failure.of(stepmask.GrammarError(str(number))))
        assert kept.get("error 1") is not None or number != 2
        kept.put(f"bug {number}", Failure.of(RuntimeError()))
    assert [kept.get(f"error {number}") is not None for number in range(4)] == [False, True, False, True]
    assert not any(kept.get(f"bug {number}") for number in range(4))


def test_limits_that_nothing_can_keep_are_refused() -> None:
    for wrong in ({"time_limit_s": 0.0}, {"grace_s": float("inf")}, {"max_queue": 0}, {"max_kept": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            ServiceLimits(**wrong)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------------------------ messages
def test_messages_keep_their_bounds_and_carry_descriptors() -> None:
    one, other = Channel.pair()
    file = unnamed_file(b"abc" * 1000)
    for number in range(3):
        one.send({"number": number}, [file] if number == 1 else [])
    os.close(file)
    for number in range(3):
        message, descriptors = other.receive()
        assert message == {"number": number} and len(descriptors) == (number == 1)
        for descriptor in descriptors:
            assert not os.get_inheritable(descriptor)
            assert contents(descriptor)[:] == b"abc" * 1000
    with pytest.raises(ValueError, match="large data"):
        one.send({"text": "x" * 200_000})
    file = unnamed_file(b"abc")
    assert contents(os.dup(file), mark=True)[:] == b"abc" and os.fstat(file).st_size == 4
    os.close(file)
    one.close()
    with pytest.raises(Closed):
        other.receive()
    with pytest.raises(Closed):
        other.send({})
    other.close()


# ------------------------------------------------------------------------------------------------------------ grammars
GRAMMARS = [
    stepmask.regex(r"(?:[a-c]|é+)*x{2,5}(?=y).", search=True),
    stepmask.choice(["yes", "no", "maybe"]),
    stepmask.json_value(),
    stepmask.gbnf('root ::= "(" root ")" | [a-z]+'),
    stepmask.lark('start: "a" start "b" | /c+/'),
    stepmask.structural_tag([{"begin": "<a>", "content": stepmask.json_value(), "end": "</a>"}]),
    stepmask.reasoning(stepmask.regex("[ab]+"), {"token": "<think>"}, {"token": "</think>"}),
]


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.kind)
def test_grammars_arrive_as_they_were(grammar: stepmask.Grammar) -> None:
    again = grammar_of(memoryview(admit(grammar, LIMITS, BOUNDS).payload), LIMITS)
    assert again == grammar and dict(again.rules) == dict(grammar.rules)
    assert grammar_digest(again, LIMITS) == grammar_digest(grammar, LIMITS)
    assert [node.source for node in again.rules.values()] == [node.source for node in grammar.rules.values()]


def test_depth_costs_no_recursion_and_sharing_is_kept() -> None:
    node: Expression = Bytes(b"a")
    for _ in range(20_000):
        node = Repeat(node, 0, 2)
    shared: Expression = Bytes(b"a")
    for _ in range(60):  # 2**60 if it were written out
        shared = Sequence((shared, shared))
    grammar = stepmask.Grammar("hand", "", {"start": node, "other": shared})
    data = encode_grammar(grammar)
    assert len(data) < 2_000_000
    again = decode_grammar(data)
    depth, at = 0, again.rules["start"]
    while isinstance(at, Repeat):
        at, depth = at.body, depth + 1
    assert depth == 20_000
    top = again.rules["other"]
    assert isinstance(top, Sequence) and top.parts[0] is top.parts[1]
    for rules in (grammar.rules, again.rules):  # freed from the outside in: the interpreter would do it by recursion
        _unwind(rules["start"])


def _unwind(node: Any) -> None:
    while isinstance(node, Repeat):
        inner = node.body
        object.__setattr__(node, "body", None)
        node = inner


SPECIFICATIONS: list[tuple[dict[str, Any], stepmask.Grammar]] = [
    ({"kind": "regex", "text": "[a-z]+", "ignore_case": True}, stepmask.regex("[a-z]+", ignore_case=True)),
    ({"kind": "choice", "text": ["a", "b"]}, stepmask.choice(["a", "b"])),
    ({"kind": "gbnf", "text": 'go ::= "a" go | "b"', "start": "go"}, stepmask.gbnf('go ::= "a" go | "b"', start="go")),
    ({"kind": "ebnf", "text": 'root ::= "a"+'}, stepmask.ebnf('root ::= "a"+')),
    ({"kind": "lark", "text": 'go: "a" go | "b"', "start": "go"}, stepmask.lark('go: "a" go | "b"', "go")),
    ({"kind": "json_value", "max_whitespace": 2}, stepmask.json_value(max_whitespace=2)),
    ({"kind": "json_object"}, stepmask.json_object()),
    (
        {"kind": "structural_tag", "text": {"type": "const_string", "value": "x"}},
        stepmask.structural_tag({"type": "const_string", "value": "x"}),
    ),
    (
        {"kind": "model_structural_tag", "text": "llama", "tools": [{"name": "f"}], "special_tokens": ["<x>"]},
        stepmask.model_structural_tag("llama", [{"name": "f"}], special_tokens=["<x>"]),
    ),
    (
        {"kind": "reasoning", "text": {"kind": "regex", "text": "a+"}, "optional": True},
        stepmask.reasoning(stepmask.regex("a+"), optional=True),
    ),
]


@pytest.mark.parametrize(("specification", "grammar"), SPECIFICATIONS, ids=lambda value: str(value)[:30])
def test_specifications_are_read_by_the_front_end(specification: dict[str, Any], grammar: stepmask.Grammar) -> None:
    request = admit(specification, LIMITS, BOUNDS)
    assert grammar_of(memoryview(request.payload), LIMITS).rules == grammar.rules
    assert admit(dict(reversed(specification.items())), LIMITS, BOUNDS) == request
    assert admit({**specification, "extra": 1}, LIMITS, BOUNDS).key != request.key


def test_every_kind_of_specification_is_a_public_function() -> None:
    tried = {specification["kind"] for specification, _ in SPECIFICATIONS}
    assert tried | {"json_schema"} == set(KINDS)


@pytest.mark.parametrize(
    ("grammar", "error", "message"),
    [
        ("[a-z]+", TypeError, "mapping"),
        ({"text": "a"}, stepmask.GrammarUnsupported, "no kind"),
        ({"kind": "perl", "text": "a"}, stepmask.GrammarUnsupported, "'perl'"),
        ({"kind": ["regex"], "text": "a"}, stepmask.GrammarUnsupported, "no kind"),
        ({"kind": "regex"}, TypeError, "needs its text"),
        ({"kind": "regex", "text": ["a"]}, TypeError, "is a str"),
        ({"kind": "json_value", "text": "a"}, TypeError, "no text"),
        ({"kind": "regex", "text": "a", "limits": {}}, stepmask.GrammarUnsupported, "limits"),
        ({"kind": "lark", "text": "a", "import_paths": ["/"]}, stepmask.GrammarUnsupported, "import_paths"),
        ({"kind": "regex", "text": "a", "search": {1}}, TypeError, "JSON cannot"),
        ({"kind": "structural_tag", "text": '{"type": '}, stepmask.GrammarSyntaxError, "line 1:"),
        ({"kind": "structural_tag", "text": '{"a": 1, "a": 2}'}, stepmask.GrammarSyntaxError, "twice"),
        ({"kind": "reasoning", "text": "a"}, TypeError, "specification"),
        ({"kind": "reasoning", "text": {"kind": "perl", "text": "a"}}, stepmask.GrammarUnsupported, "'perl'"),
        ({"kind": "regex", "text": "é" * 501}, GrammarTextTooLarge, "1002 bytes"),
        ({"kind": "choice", "text": ["a" * 300] * 10}, GrammarTextTooLarge, "max_text_bytes"),
        (stepmask.regex("a" * 1001), GrammarTextTooLarge, "1001 bytes"),
    ],
)
def test_what_is_cheap_to_see_is_refused_at_once(grammar: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        admit(grammar, LIMITS, ServiceLimits(max_text_bytes=1000))


def test_only_small_json_is_read_at_once() -> None:
    admit({"kind": "structural_tag", "text": '{"type": '}, LIMITS, ServiceLimits(max_checked_json_bytes=3))


def test_equal_requests_have_equal_keys() -> None:
    assert admit(stepmask.regex("ab*"), LIMITS, BOUNDS).key == admit(stepmask.regex("a(?:b)*"), LIMITS, BOUNDS).key
    assert admit(stepmask.regex("ab*"), LIMITS, BOUNDS).key != admit(stepmask.regex("ab+"), LIMITS, BOUNDS).key
    other = stepmask.Limits(max_depth=9)
    assert admit(stepmask.regex("a"), LIMITS, BOUNDS).key != admit(stepmask.regex("a"), other, BOUNDS).key


def test_specifications_are_packed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """An equal one, in any order and as any object, is the same request; what differs at all is not; the oldest go."""
    packed: list[Any] = []

    def counting(grammar: Any, limits: stepmask.Limits, bounds: ServiceLimits) -> CompileRequest:
        packed.append(grammar)
        return admit(grammar, limits, bounds)

    monkeypatch.setattr(requests_of, "admit", counting)
    texts = ["|".join(f"{letter}{i}" for i in range(5000)) for letter in "abc"]
    admitted = Admitted(LIMITS, ServiceLimits(max_admitted_bytes=5 * len(texts[0])))
    first = {"kind": "regex", "text": texts[0], "ignore_case": True}
    request = admitted(first)
    same = dict(reversed(list(first.items())), text="".join(list(texts[0])))
    assert admitted(same) is request and request == admit(first, LIMITS, BOUNDS)
    assert len(packed) == 1
    for other in ({**first, "ignore_case": 1}, {**first, "ignore_case": False}, {**first, "text": texts[1]}):
        assert admitted(other) == admit(other, LIMITS, BOUNDS)
    assert len(packed) == 4
    admitted({**first, "text": texts[2]})
    assert admitted(first) == request and len(packed) == 6, "it had gone"
    schema = {"kind": "json_schema", "text": f'{{"enum": {list(range(100))}}}'}
    assert admitted(schema) is admitted(dict(schema)) and packed.pop() == schema and len(packed) == 6
    small = {"kind": "regex", "text": "a"}
    assert admitted(small) is admitted(dict(small)) and admitted(small) == admit(small, LIMITS, BOUNDS)
    assert len(packed) == 7
    odd = {"kind": "regex", "text": texts[0], "names": {"x": 1}}
    assert admitted(odd) == admit(odd, LIMITS, BOUNDS) == admitted(dict(odd)) and len(packed) == 9
    with pytest.raises(stepmask.GrammarError):
        admitted({"kind": "none", "text": texts[0]})
    assert admitted(stepmask.regex("a")).key == admit(stepmask.regex("a"), LIMITS, BOUNDS).key

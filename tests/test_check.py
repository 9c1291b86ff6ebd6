"""`stepmask check`: exit codes and what it says."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small_tokenizer import byte_tokenizer

import stepmask
from stepmask import check, cli

ITEMS = """\
root ::= item ("," item)*
item ::= name "=" value
name ::= [a-z]+
value ::= [0-9]+ | "(" root ")"
"""
TAGS = {"begin": "<f=a>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": "</f>"}


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = cli.main(arguments)
    return code, capsys.readouterr().out


def lines(capsys: pytest.CaptureFixture[str], kind: str, grammar: str, text: str, *more: str) -> list[str]:
    """What is said of a dead text."""
    code, out = run(capsys, "check", "--kind", kind, grammar, text, *more)
    assert code == check.DEAD
    return out.splitlines()


def test_a_complete_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check", "[0-9]{3}", "123") == (0, "complete\n")


def test_a_complete_text_that_may_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "check", "[0-9]{3}[a-f]?", "123")
    assert code == 0
    assert out == "complete\nexpected: 'a'-'f', the end of the text\n"


def test_an_alive_text_says_what_may_follow(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "check", "[0-9]{4}-[0-9]{2}", "2024")
    assert code == 1
    assert out == "alive: the text may not end yet, at byte 4 (line 1, column 5)\nexpected: '-'\n"


def test_a_dead_text_says_where_and_why(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "check", "[0-9]{4}-[0-9a-f]{2}", "2024x")
    assert code == 2
    assert out == ("dead at byte 4 (line 1, column 5): found 'x'\nexpected: '-'\nin the pattern: - at column 9\n")
    code, out = run(capsys, "check", "ü\nö", "ü\nä")
    assert code == 2
    # The first byte of both letters is the same.
    assert out.startswith("dead at byte 4 (line 2, column 2): found byte A4 of 'ä'\nexpected: byte B6\n")


def test_text_after_the_end_is_dead(capsys: pytest.CaptureFixture[str]) -> None:
    code, out = run(capsys, "check", "ab", "abc")
    assert code == 2
    assert out.splitlines()[1] == "expected: the end of the text"


def test_bad_grammars(capsys: pytest.CaptureFixture[str]) -> None:
    for pattern in ("(", r"(a)\1"):
        code, out = run(capsys, "check", pattern, "x")
        assert code == 3
        assert out.startswith("bad grammar: ")
        assert "column" in out
    assert run(capsys, "check", "--kind", "choice", "[1]", "x")[0] == 3
    assert run(capsys, "check", "--kind", "choice", "[", "x")[0] == 3
    assert run(capsys, "check", "--kind", "choice", "[]", "x")[0] == 3


def test_choices_from_json_and_lines_and_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert run(capsys, "check", "--kind", "choice", '["yes", "no"]', "no")[0] == 0
    code, out = run(capsys, "check", "--kind", "choice", "yes\nno", "")
    assert (code, out.splitlines()[1]) == (1, "expected: 'n', 'y'")
    path = tmp_path / "colours.txt"
    path.write_text("red\nblue\n")
    assert run(capsys, "check", "--kind", "choice", "--file", str(path), "red")[0] == 0
    path.write_text("a+\n")
    assert run(capsys, "check", "--file", str(path), "aa")[0] == 0
    assert run(capsys, "check", "--file", str(tmp_path / "none"), "aa")[0] == check.USAGE


def test_text_from_standard_input(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("añ".encode())))
    assert run(capsys, "check", "a.", "-")[0] == 0
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\xff")))
    code, out = run(capsys, "check", "a.", "-")
    assert code == 2
    assert "found byte FF" in out
    assert "any non-ASCII character" in out


def test_bytes_in_words() -> None:
    assert check.describe([]) == []
    assert check.describe(sorted(b"0123abcXYZ-_")) == ["'-'", "'0'-'3'", "'X'-'Z'", "'_'", "'a'-'c'"]
    assert check.describe(list(range(128))) == ["any ASCII character"]
    everything = [*range(128), *range(0xC2, 0xF5)]
    assert check.describe(everything) == ["any ASCII character", "any non-ASCII character"]
    assert check.describe([byte for byte in everything if byte != 10]) == [
        "any ASCII character but '\\n'",
        "any non-ASCII character",
    ]
    assert check.describe([0xC3, 0xC4, 0xC5, 0xE2]) == ["bytes C3-C5", "byte E2"]
    assert check.describe(sorted(b"\t\n\r ,]")) == ["white space", "','", "']'"]
    in_string = [byte for byte in everything if byte >= 0x20 and byte not in b'"\\']
    assert check.describe(in_string) == [
        "any ASCII character but controls and '\"' '\\\\'",
        "any non-ASCII character",
    ]


# --------------------------------------------------------------------------------------------- grammars of rules
@pytest.mark.parametrize("kind", ["gbnf", "ebnf"])
def test_rules_open_where_a_text_dies(capsys: pytest.CaptureFixture[str], kind: str) -> None:
    assert lines(capsys, kind, ITEMS, "a=1,\nb") == [
        "dead at byte 4 (line 1, column 5): found '\\n'",
        "expected: 'a'-'z'",
        "in root > item > name (from byte 4): [a-z] at line 3:10",
    ]
    assert lines(capsys, kind, ITEMS, "a=1,b=(c=2,d)") == [
        "dead at byte 12 (line 1, column 13): found ')'",
        "expected: '=', 'a'-'z'",
        "in root > item > value > root > item > name (from byte 11): [a-z] at line 3:10",
        'in root > item > value > root > item (from byte 11): "=" at line 2:15',
    ]
    assert run(capsys, "check", "--kind", kind, ITEMS, "a=1,b=(c=2,d=3)") == (
        0,
        "complete\nexpected: ',', the end of the text\n",
    )
    code, out = run(capsys, "check", "--kind", kind, ITEMS, "a=(b")
    assert (code, out.splitlines()[1]) == (1, "expected: '=', 'a'-'z'")
    assert run(capsys, "check", "--kind", kind, "--start", "name", ITEMS, "ab")[0] == 0
    code, out = run(capsys, "check", "--kind", kind, "root ::= (", "a")
    assert code == 3 and "line 1" in out


def test_lark_terminals_and_ignored_text(capsys: pytest.CaptureFixture[str]) -> None:
    text = 'start: "a" start "b" | NUMBER\nNUMBER: /[0-9]+/\n%ignore " "'
    assert lines(capsys, "lark", text, "a a 1 b c") == [
        "dead at byte 8 (line 1, column 9): found 'c'",
        "expected: ' ', 'b'",
        "in start > start > %ignore (from byte 7): [ ]",
        "in start (from byte 0): b at line 1:19",
    ]
    assert run(capsys, "check", "--kind", "lark", "--lexer", "longest", 'a: "x" | "xy"', "xy", "--start", "a")[0] == 0
    said = lines(capsys, "lark", 'start: (A | B)*\nA: "a"\nB: "b"', "abc", "--lexer", "longest")
    assert [line.partition(" (")[0] for line in said[2:]] == ["in start > B", "in start > A"]


def test_choices_that_are_left(capsys: pytest.CaptureFixture[str]) -> None:
    assert lines(capsys, "choice", '["positive", "possible", "no"]', "pos!")[1:] == [
        "expected: 'i', 's'",
        "choices that begin so: 'positive', 'possible'",
    ]
    assert lines(capsys, "choice", '["yes"]', "Yes")[2] == "choices that begin so: 'yes'"


def test_white_space_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    schema = '{"type": "object", "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 14}}}'
    assert lines(capsys, "json_schema", schema, '{"a": 15')[1:] == [
        "expected: white space, ',', '.', '0'-'4', '}'",
        "in # > whitespace (from byte 7): white space",
        "in # > number (from byte 6): what it allows",
        "in # (from byte 0): '}', ','",
    ]


def test_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    schema = '{"properties": {"a": {"type": "integer", "minimum": 3}}, "required": ["a"]}'
    assert run(capsys, "check", "--kind", "json_schema", schema, '{"a": 33}')[0] == 0
    said = lines(capsys, "json_schema", schema, '{"a": 2}')
    assert said[0].startswith("dead at byte 7") and "number" in said[2]


def test_json_values(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "check", "--kind", "json_value", "{}", '[1, {"a": null}]')[0] == 0
    assert run(capsys, "check", "--kind", "json_object", "{}", '{"a": ')[0] == 1
    said = lines(capsys, "json_value", '{"whitespace": "compact"}', '{"a":tru1}')
    assert said[1:] == ["expected: 'e'", "in value > object > value (from byte 5): 'true'"]
    for options in ("[]", "{", '{"max_digits": 0}', '{"none": 1}'):
        assert run(capsys, "check", "--kind", "json_value", options, "1")[0] == 3


def test_structural_tags(capsys: pytest.CaptureFixture[str]) -> None:
    tag = json.dumps({"format": {"type": "triggered_tags", "triggers": ["<f"], "tags": [TAGS]}})
    assert run(capsys, "check", "--kind", "structural_tag", tag, "hi <f=a>12</f> <")[0] == 0
    assert lines(capsys, "structural_tag", tag, "hi <f=a>12x") == [
        "dead at byte 10 (line 1, column 11): found 'x'",
        "expected: '0'-'9', '<'",
        "in start > /format/tags/0/content/pattern.start (from byte 8): [0-9] at column 1",
        "in start (from byte 0): </f> at /format/tags/0/end",
    ]


def test_what_is_written_in_several_lines_is_shown_in_one(capsys: pytest.CaptureFixture[str]) -> None:
    tag = {"begin": "<call>\n<f>", "content": {"type": "regex", "pattern": "[0-9]+"}, "end": "\n</call>"}
    grammar = json.dumps({"format": {"type": "triggered_tags", "triggers": ["<call>"], "tags": [tag]}})
    assert lines(capsys, "structural_tag", grammar, "<call>\n<g>")[2:] == [
        "in start (from byte 0): '\\n<f>' at /format/tags/0"
    ]


def test_formats_of_models(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    tools = [{"name": "f", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}]
    arguments = json.dumps({"model": "qwen_3", "tools": tools, "reasoning": "disabled"})
    call = '<tool_call>\n{"name": "f", "arguments": {"n": %s}}\n</tool_call>'
    assert run(capsys, "check", "--kind", "model_structural_tag", arguments, "So: " + call % "1")[0] == 0
    said = lines(capsys, "model_structural_tag", arguments, call % "x")
    assert said[0].startswith("dead at byte 45 ") and "number" in said[2]
    for wrong in ("[]", "{", '{"model": "qwen_3", "none": 1}', '{"model": "eliza"}'):
        assert run(capsys, "check", "--kind", "model_structural_tag", wrong, "x")[0] == check.BAD_GRAMMAR
    # The special tokens of a tokenizer are tokens.
    path = tmp_path / "tokenizer.json"
    byte_tokenizer().save(str(path))
    tag = json.dumps({"type": "tag", "begin": "<end>", "content": {"type": "const_string", "value": "b"}, "end": ""})
    said = lines(capsys, "structural_tag", tag, "<end>c", "--tokenizer", str(path))
    assert said[0].startswith("dead at byte 5 ") and said[-1].startswith("tokens: 1 of 257: ")


def test_special_tokens_stand_in_the_text_by_name_or_id(capsys: pytest.CaptureFixture[str]) -> None:
    grammar = 'root ::= "a" <|eot|> <[7]> root | "<|eot|>"'
    assert run(capsys, "check", "--kind", "gbnf", grammar, "a<|eot|><[7]><|eot|>") == (0, "complete\n")
    assert lines(capsys, "gbnf", grammar, "a<|eot|>c")[1:] == [
        "expected: the token <[7]>",
        "in root (from byte 0): <[7]> at line 1:22",
    ]
    assert lines(capsys, "gbnf", grammar, "a<|eot|><[7]>b")[2].startswith("in root > root (from byte 13): ")


def test_legal_tokens_of_a_tokenizer(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    byte_tokenizer().save(str(path))
    vocabulary = stepmask.Vocabulary.from_file(path)
    a, b = (next(i for i in range(256) if vocabulary.token(i) == letter) for letter in (b"a", b"b"))
    said = lines(capsys, "ebnf", 'root ::= "x" ("a" | "b")* "y"', "xac", "--tokenizer", str(path))
    assert said[-1].startswith("tokens: 3 of 257: ")
    assert f"{a} 'a'" in said[-1] and f"{b} 'b'" in said[-1]
    said = lines(capsys, "gbnf", 'root ::= "a" <end> "b"', "a<end>c", "--tokenizer", str(path))
    assert said[-1] == f"tokens: 1 of 257: {b} 'b'"
    assert run(capsys, "check", "--kind", "gbnf", 'root ::= <x> "b"', "b", "--tokenizer", str(path))[0] == 3
    assert run(capsys, "check", "a", "a", "--tokenizer", str(tmp_path / "none"))[0] == check.USAGE


def test_a_grammar_in_a_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "items.gbnf"
    path.write_text(ITEMS)
    assert run(capsys, "check", "--kind", "gbnf", f"@{path}", "a=1")[0] == 0
    assert run(capsys, "check", "--kind", "gbnf", "--file", str(path), "a=1")[0] == 0
    assert run(capsys, "check", "--kind", "gbnf", f"@{path}.none", "a=1")[0] == check.USAGE
    assert run(capsys, "check", "@[a-z]+", "@home")[0] == 0  # a pattern may begin with the sign


def test_long_answers_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    depth = 30
    said = lines(capsys, "gbnf", 'root ::= "(" root ")" | "x"', "(" * depth + "y")
    assert (
        said[2]
        == f'in root > root > ... > {" > ".join(["root"] * 8)} (from byte 30): "x" at line 1:25, "(" at line 1:10'
    )
    words = " | ".join(f'"{letter}{number}"' for letter in "abc" for number in range(9))
    said = lines(capsys, "gbnf", f"root ::= {words}", "x")
    assert said[2].endswith(" and 19 more")
    rules = "\n".join(f'r{number} ::= "{letter}" root | "-"' for number, letter in enumerate("abcdefghijk"))
    said = lines(capsys, "gbnf", f"root ::= {' | '.join(f'r{n}' for n in range(11))}\n{rules}", "x")
    assert len(said) == 2 + 8 + 1 and said[-1] == "and 3 more"


def test_ambiguity_and_depth_have_limits(capsys: pytest.CaptureFixture[str]) -> None:
    said = lines(capsys, "gbnf", 'root ::= root root root | root root | "a"', "a" * 300 + "b")
    assert said[1:] == ["expected: 'a', the end of the text", "which rules were open there takes too long to find out"]
    assert cli.main(["check", "--kind", "gbnf", 'root ::= "(" root ")" | "x"', "(" * 100_000]) == check.USAGE
    assert "nested deeper" in capsys.readouterr().err


def test_options_of_other_kinds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["check", "--start", "a", "a", "a"]) == check.USAGE
    assert "--start is for ebnf, gbnf, lark, not for regex" in capsys.readouterr().err


@given(st.binary(max_size=6), st.binary(min_size=1, max_size=4))
def test_any_text_has_a_place(before: bytes, rest: bytes) -> None:
    """`check` on any bytes whatever gives a verdict."""
    grammar = stepmask.regex(r"[0-9é]+\n?")
    letters = check.alphabet(grammar)
    verdict = check.judge(stepmask.compile(grammar, letters.vocabulary).matcher(), before + rest, letters)
    assert verdict.code in (check.COMPLETE, check.ALIVE, check.DEAD)
    assert verdict.lines
    assert bytes(byte for byte in verdict.read if isinstance(byte, int)) == (before + rest)[: verdict.offsets[-1]]

"""The requests of `stepmask demo`: prompts, the forms of their answers, and checks of these that are not stepmask's."""

from __future__ import annotations

import ast
import json
import re
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass

from ..grammar.choice import choice
from ..grammar.expression import Grammar
from ..grammar.gbnf import gbnf
from ..grammar.json_schema import json_schema
from ..grammar.lark import lark
from ..grammar.regex import regex
from ..grammar.structural_tag import structural_tag
from .demo_json import EVENT, LINKED, ORDER, is_valid

_OCTET = "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_ARITHMETIC = """
root ::= product (sign product){1,3}
sum ::= product (sign product){0,2}
product ::= value (" * " value){0,2}
value ::= number | "(" sum ")"
number ::= "0" | [1-9] [0-9]{0,2}
sign ::= " + " | " - "
"""
_SQL = """
start: "SELECT " columns " FROM products" [" WHERE " condition] [" ORDER BY " COLUMN [" DESC"]] [" LIMIT " NUMBER] ";"
columns: "*" | COLUMN (", " COLUMN)~0..2
condition: predicate ((" AND " | " OR ") predicate)~0..2
predicate: COLUMN " " OPERATOR " " (NUMBER | TEXT) | "(" condition ")"
COLUMN: "name" | "category" | "price" | "stock"
OPERATOR: "=" | "<" | "<=" | ">" | ">=" | "<>"
NUMBER: /[1-9][0-9]{0,3}/
TEXT: /'[A-Za-z]{1,12}'/
"""
_CITY = '"city": "[A-Z][a-z]{2,11}( [A-Z][a-z]{2,11})?"'
_TOOLS = [
    {
        "begin": f'<tool_call>{{"name": "{name}", "arguments": ',
        "content": {"type": "regex", "pattern": f"\\{{{arguments}\\}}"},
        "end": "}</tool_call>",
    }
    for name, arguments in (("get_weather", f'{_CITY}, "unit": "(celsius|fahrenheit)"'), ("get_time", _CITY))
]


@dataclass(frozen=True)
class Task:
    """A prompt and the form of its answer.

    The form is a pattern that Python's `re` reads the same way, or some choices, or a grammar that `form` makes, whose
    answers `accepts` checks.
    """

    name: str
    prompt: str
    pattern: str = ""
    choices: tuple[str, ...] = ()
    form: Callable[[], Grammar] | None = None
    accepts: Callable[[str], bool] | None = None

    def grammar(self) -> Grammar:
        """The form as a stepmask grammar."""
        if self.form is not None:
            return self.form()
        return choice(self.choices) if self.choices else regex(self.pattern)

    def is_valid(self, text: str) -> bool:
        """Whether the whole text has the form, by Python's `re` or `accepts`."""
        if self.accepts is not None:
            return self.accepts(text)
        pattern = "|".join(map(re.escape, self.choices)) if self.choices else self.pattern
        return re.fullmatch(pattern, text) is not None


def _is_arithmetic(text: str) -> bool:
    """Python reads it, and as an operation on numbers."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return False
    kinds = (ast.Expression, ast.BinOp, ast.Constant, ast.Add, ast.Sub, ast.Mult)
    return isinstance(tree.body, ast.BinOp) and all(isinstance(node, kinds) for node in ast.walk(tree))


def _is_sql(text: str) -> bool:
    """SQLite prepares it for a table of these columns."""
    connection = sqlite3.connect(":memory:")
    try:
        connection.execute("CREATE TABLE products (name TEXT, category TEXT, price REAL, stock INTEGER)")
        connection.execute(f"EXPLAIN {text}")
    except sqlite3.Error:
        return False
    finally:
        connection.close()
    return True


def _is_tool_call(text: str) -> bool:
    """JSON between the tags, of a tool that there is."""
    found = re.fullmatch("<tool_call>(.*)</tool_call>", text, re.S)
    try:
        call = json.loads(found[1]) if found else {}
    except ValueError:
        return False
    arguments = {"get_weather": {"city", "unit"}, "get_time": {"city"}}.get(call.get("name", ""))
    return call.keys() == {"name", "arguments"} and call["arguments"].keys() == arguments


TASKS = (
    Task(
        "date",
        "When did Apollo 11 land on the Moon? Write the date as YYYY-MM-DD.",
        "(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    ),
    Task(
        "phone",
        "Write a telephone number in New York, like +1 (212) 555-0123.",
        r"\+1 \([2-9][0-9]{2}\) [2-9][0-9]{2}-[0-9]{4}",
    ),
    Task(
        "sentiment",
        'Is this review positive, negative or neutral? "The food was cold and the waiter was rude."',
        choices=("positive", "negative", "neutral"),
    ),
    Task(
        "email",
        "The e-mail address of Maria Lopez is maria.lopez@gmail.com. What is the e-mail address of Maria Lopez?",
        r"[a-z]{2,12}\.[a-z]{2,12}@[a-z]{3,12}\.(com|org|net)",
    ),
    Task("ipv4", "Give an example of an IPv4 address in a private home network.", rf"{_OCTET}(\.{_OCTET}){{3}}"),
    Task(
        "csv",
        "Paris,France,2100000\nRome,Italy,2800000\nWrite the next line, for Tokyo.",
        "[A-Z][a-z]{2,15},[A-Z][a-z]{2,15}( [A-Z][a-z]{2,15})?,[1-9][0-9]{3,7}",
    ),
    Task(
        "yes or no",
        "Can penguins fly? Answer yes or no and give the reason.",
        r"(Yes|No), because [a-z][A-Za-z ]{10,70}\.",
    ),
    Task("colour", "What is the colour orange as a hexadecimal web colour, as in #00ff00?", "#[0-9a-f]{6}"),
    Task(
        "arithmetic",
        "Write as an arithmetic expression: three times twelve, plus five.",
        form=lambda: gbnf(_ARITHMETIC),
        accepts=_is_arithmetic,
    ),
    Task(
        "SQL",
        "The table products has the columns name, category, price and stock. "
        "Write an SQL query for the names of all products that cost less than 20.",
        form=lambda: lark(_SQL),
        accepts=_is_sql,
    ),
    Task(
        "tool call",
        "What is the weather in Paris? Call a tool: "
        'write <tool_call>{"name": NAME, "arguments": ARGUMENTS}</tool_call>. '
        "The tools are get_weather with a city and a unit, and get_time with a city.",
        form=lambda: structural_tag(_TOOLS, ["<tool_call>"], at_least_one=True, stop_after_first=True),
        accepts=_is_tool_call,
    ),
    Task(
        "JSON order",
        "Anna Berg orders two large pizzas with ham and olives. Write the order as JSON.",
        form=lambda: json_schema(ORDER, whitespace="single"),
        accepts=lambda text: is_valid(ORDER, text),
    ),
    Task(
        "JSON event",
        "The concert Jazz Night is on 12 May 2025 in the Town Hall, tickets cost 20. Write the event as JSON.",
        form=lambda: json_schema(EVENT, whitespace="single"),
        accepts=lambda text: is_valid(EVENT, text),
    ),
    Task(
        "JSON list",
        'As a linked list, 1, 2 is {"value": 1, "next": {"value": 2, "next": null}}. Write 7, 8 as a linked list.',
        form=lambda: json_schema(LINKED, whitespace="single"),
        accepts=lambda text: is_valid(LINKED, text),
    ),
)

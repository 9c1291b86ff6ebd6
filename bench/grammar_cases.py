r"""The recursive grammars of bench/grammars.py, each with texts of its language.

Every grammar is written twice, in EBNF (for xgrammar and stepmask) and in Lark (for llguidance and stepmask), so that
both have the same strings whether terminals are cut greedily, as llguidance does it, or not. That is why white space is
explicit and why no token can begin where a longer one would.
"""

from __future__ import annotations

import ast
import json
import sqlite3

from cases import Case

AMBIGUOUS = "ambiguous"
#: Tokens of the ambiguous texts, one character each.
AMBIGUOUS_TOKENS = 300

_JSON_EBNF = r"""
root ::= ws value ws
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws (pair (ws "," ws pair)* ws)? "}"
pair ::= string ws ":" ws value
array ::= "[" ws (value (ws "," ws value)* ws)? "]"
string ::= "\"" character* "\""
character ::= [^"\\\x00-\x1f] | "\\" (["\\/bfnrt] | "u" [0-9a-fA-F]{4})
number ::= "-"? ("0" | [1-9] [0-9]*) ("." [0-9]+)? ([eE] [+\-]? [0-9]+)?
ws ::= [ \t\r\n]*
"""
_JSON_LARK = r"""
start: ws value ws
value: object | array | STRING | NUMBER | "true" | "false" | "null"
object: "{" ws (pair (ws "," ws pair)* ws)? "}"
pair: STRING ws ":" ws value
array: "[" ws (value (ws "," ws value)* ws)? "]"
ws: WS?
STRING: /"([^"\\\x00-\x1f]|\\(["\\\/bfnrt]|u[0-9a-fA-F]{4}))*"/
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+\-]?[0-9]+)?/
WS: /[ \t\r\n]+/
"""

_ARITHMETIC_EBNF = r"""
root ::= ws sum ws
sum ::= product (ws [+\-] ws product)*
product ::= power (ws ("*" | "//" | "/" | "%") ws power)*
power ::= unary (ws "**" ws power)?
unary ::= [+\-] ws unary | atom
atom ::= number | name | name ws "(" ws (sum (ws "," ws sum)* ws)? ")" | "(" ws sum ws ")"
number ::= ("0" | [1-9] [0-9]*) ("." [0-9]+)?
name ::= [a-z_]+
ws ::= [ \t]*
"""
_ARITHMETIC_LARK = r"""
start: ws sum ws
sum: product (ws ("+" | "-") ws product)*
product: power (ws ("*" | "//" | "/" | "%") ws power)*
power: unary (ws "**" ws power)?
unary: ("+" | "-") ws unary | atom
atom: NUMBER | NAME | NAME ws "(" ws (sum (ws "," ws sum)* ws)? ")" | "(" ws sum ws ")"
ws: WS?
NUMBER: /(0|[1-9][0-9]*)(\.[0-9]+)?/
NAME: /[a-z_]+/
WS: /[ \t]+/
"""

_SQL_EBNF = r"""
root ::= query ws ";"?
query ::= "SELECT" sp ("DISTINCT" sp)? columns sp "FROM" sp tables where? group? order? limit?
columns ::= "*" | column (ws "," ws column)*
column ::= expression (sp "AS" sp name)?
tables ::= table join*
table ::= name (sp "AS" sp name)? | "(" ws query ws ")" sp "AS" sp name
join ::= sp ("LEFT" sp)? "JOIN" sp table sp "ON" sp condition
where ::= sp "WHERE" sp condition
group ::= sp "GROUP" sp "BY" sp expression (ws "," ws expression)* (sp "HAVING" sp condition)?
order ::= sp "ORDER" sp "BY" sp key (ws "," ws key)*
key ::= expression (sp ("ASC" | "DESC"))?
limit ::= sp "LIMIT" sp [0-9]+
condition ::= conjunction (sp "OR" sp conjunction)*
conjunction ::= negation (sp "AND" sp negation)*
negation ::= "NOT" sp negation | predicate
predicate ::= comparison | "(" ws condition ws ")" | "EXISTS" ws "(" ws query ws ")"
comparison ::= expression ws ("=" | "<>" | "<" | "<=" | ">" | ">=") ws expression
  | expression sp ("NOT" sp)? "IN" ws "(" ws (query | expression (ws "," ws expression)*) ws ")"
  | expression sp "IS" sp ("NOT" sp)? "NULL"
  | expression sp ("NOT" sp)? "LIKE" sp string
  | expression sp "BETWEEN" sp expression sp "AND" sp expression
expression ::= term (ws [+\-] ws term)*
term ::= factor (ws [*/] ws factor)*
factor ::= number | string | "NULL" | name ("." name)? | call | case | "(" ws expression ws ")"
call ::= name "(" ws (("*" | ("DISTINCT" sp)? expression (ws "," ws expression)*) ws)? ")"
case ::= "CASE" (sp "WHEN" sp condition sp "THEN" sp expression)+ (sp "ELSE" sp expression)? sp "END"
name ::= [A-Za-z_] [A-Za-z0-9_]*
number ::= [0-9]+ ("." [0-9]+)?
string ::= "'" ([^'\n] | "''")* "'"
sp ::= [ \t\n]+
ws ::= [ \t\n]*
"""
_SQL_LARK = r"""
start: query ws ";"?
query: "SELECT" WS ("DISTINCT" WS)? columns WS "FROM" WS tables where? group? order? limit?
columns: "*" | column (ws "," ws column)*
column: expression (WS "AS" WS NAME)?
tables: table join*
table: NAME (WS "AS" WS NAME)? | "(" ws query ws ")" WS "AS" WS NAME
join: WS ("LEFT" WS)? "JOIN" WS table WS "ON" WS condition
where: WS "WHERE" WS condition
group: WS "GROUP" WS "BY" WS expression (ws "," ws expression)* (WS "HAVING" WS condition)?
order: WS "ORDER" WS "BY" WS key (ws "," ws key)*
key: expression (WS ("ASC" | "DESC"))?
limit: WS "LIMIT" WS INTEGER
condition: conjunction (WS "OR" WS conjunction)*
conjunction: negation (WS "AND" WS negation)*
negation: "NOT" WS negation | predicate
predicate: comparison | "(" ws condition ws ")" | "EXISTS" ws "(" ws query ws ")"
comparison: expression ws ("=" | "<>" | "<" | "<=" | ">" | ">=") ws expression
  | expression WS ("NOT" WS)? "IN" ws "(" ws (query | expression (ws "," ws expression)*) ws ")"
  | expression WS "IS" WS ("NOT" WS)? "NULL"
  | expression WS ("NOT" WS)? "LIKE" WS STRING
  | expression WS "BETWEEN" WS expression WS "AND" WS expression
expression: term (ws ("+" | "-") ws term)*
term: factor (ws ("*" | "/") ws factor)*
factor: NUMBER | STRING | "NULL" | NAME ("." NAME)? | call | case | "(" ws expression ws ")"
call: NAME "(" ws (("*" | ("DISTINCT" WS)? expression (ws "," ws expression)*) ws)? ")"
case: "CASE" (WS "WHEN" WS condition WS "THEN" WS expression)+ (WS "ELSE" WS expression)? WS "END"
ws: WS?
NAME: /[A-Za-z_][A-Za-z0-9_]*/
INTEGER: /[0-9]+/
NUMBER: /[0-9]+(\.[0-9]+)?/
STRING: /'([^'\n]|'')*'/
WS: /[ \t\n]+/
"""

_C_EBNF = r"""
root ::= ws (item ws)+
item ::= typed name ws "(" ws (parameter (ws "," ws parameter)* ws)? ")" ws block | declaration
parameter ::= typed name
typed ::= base (sp | ws "*" (ws "*")* ws)
base ::= "int" | "char" | "float" | "void" | "struct" sp name
declaration ::= typed declarator (ws "," ws declarator)* ws ";"
declarator ::= name (ws "[" ws expression ws "]")? (ws "=" ws expression)?
block ::= "{" ws (statement ws)* "}"
statement ::= block | declaration | ";" | expression ws ";"
  | "if" ws "(" ws expression ws ")" ws statement (ws "else" ws statement)?
  | "while" ws "(" ws expression ws ")" ws statement
  | "for" ws "(" ws (declaration | (expression ws)? ";") ws (expression ws)? ";" ws (expression ws)? ")" ws statement
  | "return" (sp expression)? ws ";" | "break" ws ";" | "continue" ws ";"
expression ::= unary ws ("=" | "+=" | "-=" | "*=" | "/=") ws expression | conditional
conditional ::= or (ws "?" ws expression ws ":" ws conditional)?
or ::= and (ws "||" ws and)*
and ::= equality (ws "&&" ws equality)*
equality ::= relation (ws ("==" | "!=") ws relation)*
relation ::= shift (ws ("<" | "<=" | ">" | ">=") ws shift)*
shift ::= sum (ws ("<<" | ">>") ws sum)*
sum ::= product (ws [+\-] ws product)*
product ::= unary (ws [*/%] ws unary)*
unary ::= [\-!~*&] ws unary | number | character | string | postfix
postfix ::= (name | "(" ws expression ws ")") (ws suffix)*
suffix ::= "[" ws expression ws "]" | "(" ws (expression (ws "," ws expression)* ws)? ")" | "." ws name | "->" ws name
  | "++"
name ::= [A-Za-z_] [A-Za-z0-9_]*
number ::= [0-9]+ ("." [0-9]+)?
character ::= "'" ([^'\\\n] | escape) "'"
string ::= "\"" ([^"\\\n] | escape)* "\""
escape ::= "\\" [nrt0'"\\]
sp ::= [ \t\n]+
ws ::= [ \t\n]*
"""
_C_LARK = r"""
start: ws (item ws)+
item: typed NAME ws "(" ws (parameter (ws "," ws parameter)* ws)? ")" ws block | declaration
parameter: typed NAME
typed: base (WS | ws "*" (ws "*")* ws)
base: "int" | "char" | "float" | "void" | "struct" WS NAME
declaration: typed declarator (ws "," ws declarator)* ws ";"
declarator: NAME (ws "[" ws expression ws "]")? (ws "=" ws expression)?
block: "{" ws (statement ws)* "}"
statement: block | declaration | ";" | expression ws ";"
  | "if" ws "(" ws expression ws ")" ws statement (ws "else" ws statement)?
  | "while" ws "(" ws expression ws ")" ws statement
  | "for" ws "(" ws (declaration | (expression ws)? ";") ws (expression ws)? ";" ws (expression ws)? ")" ws statement
  | "return" (WS expression)? ws ";" | "break" ws ";" | "continue" ws ";"
expression: unary ws ("=" | "+=" | "-=" | "*=" | "/=") ws expression | conditional
conditional: or (ws "?" ws expression ws ":" ws conditional)?
or: and (ws "||" ws and)*
and: equality (ws "&&" ws equality)*
equality: relation (ws ("==" | "!=") ws relation)*
relation: shift (ws ("<" | "<=" | ">" | ">=") ws shift)*
shift: sum (ws ("<<" | ">>") ws sum)*
sum: product (ws ("+" | "-") ws product)*
product: unary (ws ("*" | "/" | "%") ws unary)*
unary: ("-" | "!" | "~" | "*" | "&") ws unary | NUMBER | CHARACTER | STRING | postfix
postfix: (NAME | "(" ws expression ws ")") (ws suffix)*
suffix: "[" ws expression ws "]" | "(" ws (expression (ws "," ws expression)* ws)? ")" | "." ws NAME | "->" ws NAME
  | "++"
ws: WS?
NAME: /[A-Za-z_][A-Za-z0-9_]*/
NUMBER: /[0-9]+(\.[0-9]+)?/
CHARACTER: /'([^'\\\n]|\\[nrt0'"\\])'/
STRING: /"([^"\\\n]|\\[nrt0'"\\])*"/
WS: /[ \t\n]+/
"""

_TEXT = 'Überall fließt Wasser; le café est «fermé» \\ 北京是首都 "quoted" tab\there, price 12.50 € / 100 %.'


def _nested_json(depth: int) -> object:
    """A document that nests objects and arrays `depth` deep."""
    if depth == 0:
        return [None, True, -0.5, 1e-9, "", {}]
    return {
        f"level {depth}": _nested_json(depth - 1),
        "text": _TEXT[: 8 * depth],
        "numbers": [depth, depth / 8, -(10**depth)],
        "tags": [{"name": word, "on": depth % 2 == 0} for word in _TEXT.split(" ")[:2]],
    }


_ORDERS = [
    {"id": 1000 + i, "customer": {"name": "Zoë O'Neil", "email": f"zoe{i}@example.org", "vip": i % 3 == 0},
     "items": [{"sku": f"AB-{7 * i + k:04}", "count": k + 1, "price": 3.5 * (k + 1)} for k in range(i + 1)],
     "note": None if i % 2 else "leave at the door\nring twice"}
    for i in range(4)
]  # fmt: skip

_DOCUMENTS = (
    json.dumps(_nested_json(6), indent=1),
    json.dumps(_ORDERS * 2),
    json.dumps(_ORDERS, ensure_ascii=False, indent=1),
)

_QUERIES = (
    "SELECT name, COUNT(*) AS n, AVG(price * (1 - discount)) AS mean FROM orders AS o "
    "LEFT JOIN customers AS c ON o.customer_id = c.id AND c.country IN ('DE', 'FR', 'L''Aquila') "
    "WHERE (o.created >= '2024-01-01' AND o.created < '2025-01-01' OR o.total > 99.50) AND NOT c.name LIKE 'test%' "
    "GROUP BY name, c.city HAVING COUNT(DISTINCT o.id) > 3 ORDER BY n DESC, mean ASC LIMIT 20;",
    "SELECT DISTINCT a.city\nFROM (SELECT city, MAX(age) AS oldest FROM people WHERE age BETWEEN 18 AND 65 + 2 * 3 "
    "GROUP BY city) AS a\nWHERE EXISTS (SELECT * FROM shops AS s WHERE s.city = a.city AND s.closed IS NULL)\n"
    "  AND a.oldest IN (SELECT age FROM records WHERE kind NOT IN (1, 2, 3))\nORDER BY a.city",
    "SELECT CASE WHEN score > 90 THEN 'gold' WHEN score > 50 THEN 'silver' ELSE 'none' END AS medal, LOWER(name) "
    "FROM results WHERE (year = 2024 OR (year = 2023 AND NOT (name IS NOT NULL))) LIMIT 5",
)

_PROGRAMS = (
    r"""struct point *points;
int count = 0;

int compare(struct point *a, struct point *b) {
    if (a->x != b->x) return a->x < b->x ? -1 : 1;
    else if (a->y == b->y)
        return 0;
    return a->y > b->y;
}

void sort(struct point *p, int n) {
    for (int i = 1; i < n; i++) {
        int j = i - 1;
        struct point *key = &p[i];
        while (j >= 0 && compare(&p[j], key) > 0) {
            p[j + 1] = p[j];
            j -= 1;
        }
        p[j + 1] = *key;
    }
}

int main(int argc, char **argv) {
    char buffer[256];
    char *end = buffer + 255;
    float sum = 0.0;
    if (argc < 2 || !argv[1][0]) { printf("usage: %s FILE\n", argv[0]); return 1; }
    while ((count = read(0, buffer, 256)) > 0) {
        for (int i = 0; i < count; i++)
            if (buffer[i] == '\n') sum += i * 2.5 / (count << 1);
            else if (buffer[i] == '\'' || buffer[i] == '"') continue;
            else { if (end) break; }
    }
    sort(points, count / 2 % 7);
    return printf("%d points, mean %f\n", count, sum / (count ? count : 1)) >= 0 ? 0 : ~1;
}
""",
    "int gcd(int a, int b) { while (b) { int t = a % b; a = b; b = t; } return a; }\n"
    "int fib(int n) { if (n < 2) return n; return fib(n - 1) + fib(n - 2); }\n",
)

_FORMULAS = (
    "3 * (4.5 + -2) ** 2 / (7 - (1 + 0.25)) % 5 - ((((8 // 3))))",
    "max(a + b * c, -min(x, y ** 2, 100)) - sqrt(sum_of(a, (b - c) * (d - e)) / n) * 1.0625",
    "(" * 30 + "1" + " + 1)" * 30 + " * -2" * 10,
)


def _ambiguous(name: str, ebnf: str, text: str) -> Case:
    """A grammar whose rules have only strings and rules in them: EBNF but for ``::=`` and the name of the start."""
    assert len(text) <= AMBIGUOUS_TOKENS, (name, len(text))
    return Case(name, AMBIGUOUS, (text,), ebnf=ebnf, lark=ebnf.replace("::=", ":").replace("root", "start"))


_WITHIN = '"{\\"v\\":" root "}"'

CASES: tuple[Case, ...] = (
    Case("JSON", "JSON", _DOCUMENTS, ebnf=_JSON_EBNF, lark=_JSON_LARK),
    Case("arithmetic", "arithmetic", _FORMULAS, ebnf=_ARITHMETIC_EBNF, lark=_ARITHMETIC_LARK),
    Case("SQL", "SQL", _QUERIES, ebnf=_SQL_EBNF, lark=_SQL_LARK),
    Case("C-like", "C-like", _PROGRAMS, ebnf=_C_EBNF, lark=_C_LARK),
    _ambiguous("SS", 'root ::= root root | "a"', "a" * 300),
    _ambiguous("SSS", 'root ::= root root root | root root | "a"', "a" * 300),
    _ambiguous("brackets", 'root ::= root root | "(" root ")" | "a"', "(a(aa)((a)a))" * 23),
    _ambiguous("sums", 'root ::= root "+" root | root "*" root | "(" root ")" | "1"', "(1+1*(1+1)*1)+" * 21 + "1"),
    _ambiguous("dangling else", 'root ::= "i" root | "i" root "e" root | "x"', "i" * 149 + "x" + "ex" * 75),
    _ambiguous("three objects",
        'root ::= one | two | three\n'
        f'one ::= {_WITHIN} | "1"\ntwo ::= {_WITHIN} | "true"\nthree ::= {_WITHIN} | "null"',
        '{"v":' * 49 + "null" + "}" * 49,
    ),
)  # fmt: skip


def check() -> None:
    """Texts that others read too are what they should be."""
    for case in CASES:
        for text in case.texts:
            if case.name == "JSON":
                assert 1000 <= len(text.encode()) <= 4000, len(text)
                json.loads(text)
            elif case.name == "arithmetic":
                ast.parse(text, mode="eval")
            elif case.name == "SQL":
                _check_sql(text)


def _check_sql(text: str) -> None:
    """SQLite reads it: where it complains, then of a table that is not there."""
    try:
        sqlite3.connect(":memory:").execute("EXPLAIN " + text)
    except sqlite3.OperationalError as error:
        assert "no such table" in str(error), (text, error)

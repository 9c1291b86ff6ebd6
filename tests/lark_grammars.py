"""Grammars in Lark's language as people write them."""

ARITHMETIC = r"""
?start: sum
?sum: product | sum "+" product -> add | sum "-" product -> sub
?product: atom | product "*" atom -> mul | product "/" atom -> div
?atom: NUMBER -> number | "-" atom -> neg | NAME -> var | "(" sum ")"
%import common.CNAME -> NAME
%import common.NUMBER
%import common.WS_INLINE
%ignore WS_INLINE
"""

JSON = r"""
?start: value
?value: object | array | string | SIGNED_NUMBER -> number | "true" -> true | "false" -> false | "null" -> null
array  : "[" [value ("," value)*] "]"
object : "{" [pair ("," pair)*] "}"
pair   : string ":" value
string : ESCAPED_STRING
%import common.ESCAPED_STRING
%import common.SIGNED_NUMBER
%import common.WS
%ignore WS
"""

SQL = r"""
start: select ";"?
select: "select"i columns "from"i NAME ["where"i condition] ["order"i "by"i NAME [direction]] ["limit"i INT]
columns: "*" | _list{column}
column: NAME ["." NAME] ["as"i NAME] | call
call: NAME "(" ("*" | _list{column}) ")"
direction.2: "asc"i | "desc"i
?condition: conjunction ("or"i conjunction)*
?conjunction: test ("and"i test)*
test: operand /<=|>=|<>|[<>=]/ operand | operand "in"i "(" _list{literal} ")" | "not"i test | "(" condition ")"
?operand: NAME | literal
literal: SIGNED_INT | QUOTED
_list{item}: item ("," item)*
NAME: /[a-z_][a-z0-9_]*/i
QUOTED: /'(''|[^'\n])*'/
%import common (INT, SIGNED_INT, WS)
%ignore WS
%ignore /--[^\n]*/
"""

C_LIKE = r"""
start: (function | declaration)*
function: type IDENTIFIER "(" [parameter ("," parameter)*] ")" block
parameter: type IDENTIFIER
declaration: type IDENTIFIER ["=" expression] ";"
!type: ("int" | "char" | "void") "*"*
block: "{" statement* "}"
?statement: block | declaration | expression ";" | "return" [expression] ";"
    | "if" "(" expression ")" statement ["else" statement] | "while" "(" expression ")" statement
?expression: IDENTIFIER "=" expression -> assign | comparison
?comparison: (comparison ("<" | "==" | "!="))? sum
?sum: (sum ("+" | "-"))? term
?term: (term ("*" | "/" | "%"))? unary
?unary: ("-" | "!" | "&" | "*") unary | postfix
?postfix: primary | postfix "(" [expression ("," expression)*] ")" | postfix "[" expression "]"
?primary: IDENTIFIER | NUMBER | STRING | "(" expression ")"
IDENTIFIER: /[a-zA-Z_][a-zA-Z_0-9]*/
NUMBER: /0x[0-9a-f]+|[0-9]+/i
STRING: /"(\\.|[^"\\\n])*"/
%import common (WS, C_COMMENT, CPP_COMMENT)
%ignore WS
%ignore C_COMMENT
%ignore CPP_COMMENT
"""

#: Name -> grammar, letters that a text near one of its own is made with.
GRAMMARS = {
    "arithmetic": (ARITHMETIC, "+-*/() 1a._"),
    "json": (JSON, '{}[]",:\\ \n1-etn'),
    "sql": (SQL, "'-,;()<=>* a1\n"),
    "c-like": (C_LIKE, '(){};,=+-*/&!"<> \na1'),
}

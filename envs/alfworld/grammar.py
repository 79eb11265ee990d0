"""The text grammar of a game, compiled once. Upstream parses templates anew, and copies all variables, at each use.

Upstream's parser reads the grammar; what is here replaces `ContextSensitiveGrammar.derive` of
`textworld.envs.pddl.textgen`. A grammar with something that is not known here is refused, never guessed at.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache
from types import CodeType
from typing import Any, NamedTuple

from textworld.envs.pddl import textgen
from textworld.logic import Rule

_stock_parse = textgen._parse_and_convert

_KEPT = 4096  # parsed texts; games differ in theirs by one sentence
_ALLOWED = (
    ast.Expression, ast.Name, ast.Load, ast.Attribute, ast.Constant, ast.BinOp, ast.Add, ast.BoolOp, ast.Or, ast.And,
)  # fmt: skip


class UnknownGrammar(ValueError):
    """The grammar says something that is not compiled here."""


class Moment(NamedTuple):
    """What a text is told about."""

    state: Any  # `PddlState`
    variables: Mapping[str, Any]  # entity of each variable in sight
    mapping: Mapping[Any, Any]  # the same, as placeholders and logical variables
    entities: Mapping[str, Any]  # all entities by id


_Tell = Callable[[Moment], str]
_List = Callable[[Moment], list[str]]


class CompiledGrammar:
    """Tells texts by the rules of a parsed grammar. Takes the place of upstream's object, whose `derive` it has.

    Raises `UnknownGrammar`.
    """

    def __init__(self, rules: Mapping[str, Sequence[Any]]) -> None:
        self._rules = {
            name: [(rule.condition, _sequence([self._symbol(part) for part in rule.rhs])) for rule in alternatives]
            for name, alternatives in rules.items()
        }
        self._templates: dict[str, _Tell] = {}

    def derive(self, start: str, context: Mapping[str, Any]) -> str:
        """The text of a template. `context` is upstream's dictionary."""
        tell = self._templates.get(start)
        if tell is None:
            tell = self._templates[start] = _sequence([self._symbol(part) for part in parse_symbols(start)])
        return tell(Moment(context["state"], context["variables"], context["mapping"], context["entity_infos"]))

    def _symbol(self, symbol: Any) -> _Tell:
        match symbol:
            case textgen.TerminalSymbol():
                text = str(symbol.symbol)
                return lambda moment: text
            case textgen.NonterminalSymbol():
                name = str(symbol.symbol)
                return lambda moment: self._say(name, moment)
            case textgen.EvalSymbol():
                return _value(symbol.expression)
            case textgen.ConditionalSymbol():
                each = self._each(symbol)
                return lambda moment: "".join(each(moment))
            case textgen.ListSymbol() if isinstance(symbol.symbol, textgen.ConditionalSymbol):
                items = self._each(symbol.symbol)
                return lambda moment: self._enumerate(items(moment), moment)
        raise UnknownGrammar(f"no such part is known: {symbol!r}")

    def _each(self, symbol: Any) -> _List:
        """One text for everything that the condition of "{text | condition}" matches."""
        tell, given = self._symbol(symbol.expression), symbol.given
        if not given:
            return lambda moment: [tell(moment)]
        query = parse_query(given)

        def told(moment: Moment) -> list[str]:
            texts = []
            for found in moment.state.all_assignments(query, moment.mapping):
                variables = {**moment.variables, **{ph.name: moment.entities[var.name] for ph, var in found.items()}}
                texts.append(tell(Moment(moment.state, variables, {**moment.mapping, **found}, moment.entities)))
            return texts

        return told

    def _say(self, name: str, moment: Moment) -> str:
        """By the first rule of that name whose condition holds."""
        for condition, tell in self._rules.get(name, ()):
            if not condition or _holds(condition, moment):
                return tell(moment)
        raise UnknownGrammar(f"no rule for #{name}# here")

    def _enumerate(self, items: Sequence[str], moment: Moment) -> str:
        if not items:
            return self._say("list_empty", moment)
        if len(items) == 1:
            return items[0]
        between, last = self._say("list_separator", moment), self._say("list_last_separator", moment)
        return between.join(items[:-1]) + last + items[-1]


@lru_cache(_KEPT)
def parse_symbols(text: str) -> Sequence[Any]:
    """The parts of a template, as upstream parses it. Shared between games, and changed by none."""
    parsed: Sequence[Any] = _stock_parse(text, rule_name="symbols")
    return parsed


@cache
def parse_query(text: str) -> Any:
    """A condition, as upstream parses it."""
    return Rule.parse_conjunctive_query(text)


def _holds(condition: str, moment: Moment) -> bool:
    return any(True for _ in moment.state.all_assignments(parse_query(condition), moment.mapping))


def _sequence(parts: Sequence[_Tell]) -> _Tell:
    if len(parts) == 1:
        return parts[0]
    return lambda moment: "".join([part(moment) for part in parts])


def _value(expression: str) -> _Tell:
    code = _compile(expression)
    return lambda moment: str(eval(code, {"__builtins__": {}}, moment.variables))


@cache
def _compile(expression: str) -> CodeType:
    """Upstream evaluates such expressions as Python. Here they are names, attributes, texts, "+", "or" and "and"."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
    except SyntaxError as error:
        raise UnknownGrammar(f"{{{expression}}} is no expression: {error}") from None
    for node in ast.walk(tree):
        hidden = isinstance(node, ast.Attribute) and node.attr.startswith("_")
        if hidden or not isinstance(node, _ALLOWED):
            raise UnknownGrammar(f"{{{expression}}} has a {type(node).__name__}, which is not evaluated here")
    return compile(tree, "<grammar>", "eval")

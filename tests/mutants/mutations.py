"""Small changes of a module, one at a time, each of which some test should notice.

Wording is left alone: of text with spaces only the figures and names in it are changed. So are annotations,
decorators and docstrings. Knows no tests and runs nothing.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

COMPARISONS: dict[type[ast.cmpop], tuple[type[ast.cmpop], ...]] = {
    ast.Lt: (ast.LtE, ast.GtE),
    ast.LtE: (ast.Lt, ast.Gt),
    ast.Gt: (ast.GtE, ast.LtE),
    ast.GtE: (ast.Gt, ast.Lt),
    ast.Eq: (ast.NotEq,),
    ast.NotEq: (ast.Eq,),
    ast.Is: (ast.IsNot,),
    ast.IsNot: (ast.Is,),
    ast.In: (ast.NotIn,),
    ast.NotIn: (ast.In,),
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.BitOr: ast.BitAnd,
    ast.BitAnd: ast.BitOr,
}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
KEPT_KEYWORDS = frozenset({"strict", "default_factory"})
"""Without them nothing changes that a test could see, or the module can't be imported."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """One changed expression or statement; `number` counts those of a module from 0."""

    number: int
    line: int
    function: str
    """Function or Class.method that holds it; empty for what a module or class does when it is imported."""
    before: str
    after: str
    """The lines of the expression as one, as they are and as they are changed."""


@dataclass(frozen=True, slots=True)
class _Site:
    """Where a node may be exchanged: `holder.field`, or one element of it."""

    holder: ast.AST
    field: str
    index: int | None
    old: ast.AST
    new: ast.AST
    shown: ast.AST
    """The smallest node around it whose place in the source is known for sure."""
    function: str

    def put(self, node: ast.AST) -> None:
        if self.index is None:
            setattr(self.holder, self.field, node)
        else:
            getattr(self.holder, self.field)[self.index] = node


def mutations(source: str) -> list[Mutation]:
    """All mutations of a module's source, in the order of its lines.

    >>> [(row.function, row.before, row.after) for row in mutations("def f(a):\\n    return a > 1")]
    ... # doctest: +NORMALIZE_WHITESPACE
    [('f', 'return a > 1', 'return None'),
     ('f', 'return a > 1', 'return a >= 1'), ('f', 'return a > 1', 'return a <= 1'),
     ('f', 'return a > 1', 'return a > 2')]
    """
    tree, lines = ast.parse(source), source.splitlines()
    rows = []
    for number, site in enumerate(_sites(tree, tree, "")):
        before = _text(site, lines)
        site.put(site.new)
        rows.append(Mutation(number, site.shown.lineno, site.function, before, _text(site, lines)))  # type: ignore[attr-defined]  # statements and expressions only
        site.put(site.old)
    return rows


def mutated(source: str, number: int) -> ast.Module:
    """The module with this one mutation."""
    tree = ast.parse(source)
    site = next(site for index, site in enumerate(_sites(tree, tree, "")) if index == number)
    site.put(ast.copy_location(site.new, site.old))
    return ast.fix_missing_locations(tree)


def _text(site: _Site, lines: list[str]) -> str:
    shown = site.shown
    assert isinstance(shown, ast.stmt | ast.expr)
    current = site.new if shown is site.old and _is_put(site) else shown
    head = lines[shown.lineno - 1].encode()[: shown.col_offset].decode()
    tail = lines[(shown.end_lineno or shown.lineno) - 1].encode()[shown.end_col_offset :].decode()
    return f"{head}{ast.unparse(current)}{tail}".strip()


def _is_put(site: _Site) -> bool:
    value = getattr(site.holder, site.field)
    return (value if site.index is None else value[site.index]) is site.new


def _sites(node: ast.AST, shown: ast.AST, function: str) -> Iterator[_Site]:
    """Sites below a node. Within an f-string Python 3.11 does not know the columns: all of it is shown."""
    for field, value in ast.iter_fields(node):
        if field in ("annotation", "returns", "decorator_list", "format_spec"):
            continue
        for index, child in enumerate(value) if isinstance(value, list) else ((None, value),):
            if not isinstance(child, ast.AST) or _is_left_alone(node, child, function):
                continue
            around = shown if isinstance(shown, ast.JoinedStr) or not hasattr(child, "lineno") else child
            if not isinstance(child, ast.expr | ast.stmt):
                around = shown
            within = _function(node, child, function)
            for new in _replacements(node, field, child):
                yield _Site(node, field, index, child, new, around, within)
            yield from _sites(child, around, within)


def _is_left_alone(holder: ast.AST, node: ast.AST, function: str) -> bool:
    if isinstance(node, ast.Constant) and isinstance(holder, ast.Expr | ast.JoinedStr):
        return True  # docstring, or wording
    if isinstance(node, ast.keyword) and node.arg in KEPT_KEYWORDS:
        return True
    return not function and isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr)  # types


def _function(holder: ast.AST, node: ast.AST, function: str) -> str:
    if not isinstance(node, ast.FunctionDef) or function:
        return function
    return f"{holder.name}.{node.name}" if isinstance(holder, ast.ClassDef) else node.name


def _replacements(holder: ast.AST, field: str, node: ast.AST) -> Iterator[ast.AST]:
    """What may stand in the place of a node."""
    if isinstance(node, ast.stmt):
        yield from _statements(node)
        return
    if isinstance(node, ast.FormattedValue):
        yield ast.Constant("?")
    if field == "test" or (field == "ifs" and isinstance(holder, ast.comprehension)):
        yield from _negated(node)
    match node:
        case ast.Compare(left, [operator], comparators):
            yield from (ast.Compare(left, [other()], comparators) for other in COMPARISONS[type(operator)])
        case ast.Compare(left, operators, comparators):
            for index, operator in enumerate(operators):
                for other in COMPARISONS[type(operator)]:
                    yield ast.Compare(left, [*operators[:index], other(), *operators[index + 1 :]], comparators)
        case ast.BoolOp(operator, values):
            yield ast.BoolOp(ast.Or() if isinstance(operator, ast.And) else ast.And(), values)
        case ast.UnaryOp(ast.Not() | ast.USub(), operand):
            yield operand
        case ast.BinOp(left, operator, right) if type(operator) in OPERATORS:
            yield ast.BinOp(left, OPERATORS[type(operator)](), right)
        case ast.Constant():
            yield from _constants(node)
        case ast.Call(ast.Name(name), arguments, keywords) if name in CALLS:
            yield ast.Call(ast.Name(CALLS[name], ast.Load()), arguments, keywords)
        case ast.Call(called, arguments, keywords):
            for index, keyword in enumerate(keywords):
                if keyword.arg is not None and keyword.arg not in KEPT_KEYWORDS:
                    yield ast.Call(called, arguments, [*keywords[:index], *keywords[index + 1 :]])


def _negated(node: ast.AST) -> Iterator[ast.AST]:
    """The condition turned round, where no operator in it is exchanged anyway."""
    if isinstance(node, ast.expr) and not isinstance(node, ast.Compare | ast.BoolOp | ast.UnaryOp | ast.Constant):
        yield ast.UnaryOp(ast.Not(), node)


def _constants(node: ast.Constant) -> Iterator[ast.AST]:
    value = node.value
    if isinstance(value, bool):
        yield ast.Constant(not value)
    elif isinstance(value, int):
        yield ast.Constant(value + 1)
    elif isinstance(value, float):
        yield ast.Constant(value * 2 if value else 1.0)
    elif isinstance(value, str) and not any(map(str.isspace, value)):
        yield ast.Constant(f"XX{value}XX")


def _statements(node: ast.stmt) -> Iterator[ast.stmt]:
    match node:
        case ast.Return(value) if value is not None and not isinstance(value, ast.Constant):
            yield ast.Return(ast.Constant(None))
        case ast.Expr(ast.Call()) | ast.Raise():
            yield ast.Pass()
        case ast.AugAssign(target, operator, value) if type(operator) in OPERATORS:
            yield ast.AugAssign(target, OPERATORS[type(operator)](), value)
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()

"""Question forms over one table that group; each returns a question and its SQL, or raises SkipFormError."""
# ruff: noqa: S608 - queries are what these functions write; their parts are names of our own

from __future__ import annotations

from datagen.common.domain_columns import Column
from datagen.common.wording import number_word, pick_values, several
from datagen.sql.domains import Table
from datagen.sql.scene import Scene
from datagen.sql.single_forms import Pair, function_for, is_category, is_number


def measure(s: Scene, table: Table, but: Column) -> tuple[str, str]:
    """A count or an aggregate of a number, in words without the rows (`the average price`) and in SQL."""
    columns = [column for column in table.columns if column.is_number and column is not but]
    if not columns or s.rng.random() < 0.35:
        return "the number", "COUNT(*)"
    column = s.rng.choice(columns)
    name, word = function_for(s, column)
    return f"the {word} {column.label}", f"{name}({column.name})"


def per_group(s: Scene) -> Pair:
    """A figure for each category."""
    table = s.any_table()
    by = s.some(table, is_category)
    words, sql = measure(s, table, by)
    noun, where = s.subject(table, 0, 1, but=[by])
    question = s.ask("{m} of {n} for each {b}", "for each {b}, {m} of {n}", m=words, n=noun, b=by.label)
    return question, f"SELECT {by.name}, {sql} FROM {s.tab(table)}{where} GROUP BY {by.name}"


def sorted_groups(s: Scene) -> Pair:
    """A figure for each category, the largest or smallest first."""
    table = s.any_table()
    by = s.some(table, is_category)
    words, sql = measure(s, table, by)
    down = s.rng.random() < 0.5
    question = s.ask("{m} of {n} for each {b}, {d} first", "for each {b}, {m} of {n}, {d} first",
                     m=words, n=table.nouns, b=by.label, d="highest" if down else "lowest")  # fmt: skip
    order = f"ORDER BY {sql}{' DESC' if down else ''}"
    return question, f"SELECT {by.name}, {sql} FROM {s.tab(table)} GROUP BY {by.name} {order}"


def having(s: Scene) -> Pair:
    """The categories whose figure passes a limit."""
    table = s.any_table()
    by = s.some(table, is_category)
    noun, where = s.subject(table, 0, 1, but=[by])
    if s.rng.random() < 0.5:
        limit = s.rng.randint(2, 4) if where else s.rng.choice([2, 3, 4, 5, 8, 10])
        how, sign = s.rng.choice([("more than", ">"), ("at least", ">="), ("fewer than", "<"), ("exactly", "=")])
        tail, test = f"{how} {number_word(s.rng, limit)} {noun}", f"COUNT(*) {sign} {limit}"
    else:
        column = s.some(table, is_number)
        limit_value = pick_values(column, s.values(table, column), s.rng)[0]
        how, sign = s.rng.choice([("above", ">"), ("below", "<")])
        tail = f"an average {column.label} of {noun} {how} {limit_value}"
        test = f"AVG({column.name}) {sign} {limit_value}"
    question = s.info("Which {b} have {t}?", "List the {b} with {t}.", b=several(by.label), t=tail)
    return question, f"SELECT {by.name} FROM {s.tab(table)}{where} GROUP BY {by.name} HAVING {test}"


def top_group(s: Scene) -> Pair:
    """The category that has the most, the fewest, or the highest average."""
    table = s.any_table()
    by = s.some(table, lambda c: is_category(c) and not c.nullable)
    most = s.rng.random() < 0.5
    if s.rng.random() < 0.5:
        noun, where = s.subject(table, 0, 1, but=[by])
        what, sql = f"the {'most' if most else 'fewest'} {noun}", "COUNT(*)"
    else:
        column, where = s.some(table, is_number), ""
        what = f"the {'highest' if most else 'lowest'} average {column.label} of {table.nouns}"
        sql = f"AVG({column.name})"
    question = s.info("Which {b} has {w}?", "Find the {b} with {w}.", b=by.label, w=what)
    tail = f"GROUP BY {by.name} ORDER BY {sql}{' DESC' if most else ''} LIMIT 1"
    return question, f"SELECT {by.name} FROM {s.tab(table)}{where} {tail}"


def two_figures(s: Scene) -> Pair:
    """A count and an aggregate for each category, at times with a lower limit on the count."""
    table = s.any_table()
    by, column = s.some(table, is_category), s.some(table, is_number)
    function, word = function_for(s, column)
    noun, where = s.subject(table, 0, 1, but=[by, column])
    limit, tail, test = s.rng.randint(2, 5), "", ""
    if s.rng.random() < 0.4:
        test = f" HAVING COUNT(*) >= {limit}"
        tail = f", only for {several(by.label)} with at least {number_word(s.rng, limit)} of them"
    question = s.ask("the number of {n} and their {w} {c} for each {b}{t}", n=noun, w=word, c=column.label, b=by.label,
                     t=tail)  # fmt: skip
    figures = f"COUNT(*), {function}({column.name})"
    return question, f"SELECT {by.name}, {figures} FROM {s.tab(table)}{where} GROUP BY {by.name}{test}"


def by_year(s: Scene) -> Pair:
    """A figure for each year or month of a date."""
    table = s.any_table()
    when = s.some(table, lambda c: c.kind == "date")
    words, sql = measure(s, table, when)
    unit, code = s.rng.choice([("year", "%Y"), ("month", "%Y-%m")])
    name = f"strftime('{code}', {when.name})"
    question = s.ask("{m} of {n} for each {u} of the {d}", m=words, n=table.nouns, u=unit, d=when.label)
    return question, f"SELECT {name}, {sql} FROM {s.tab(table)} GROUP BY {name}"


FORMS = (per_group, per_group, sorted_groups, having, having, top_group, top_group, two_figures, by_year)

"""Question forms over one table; each returns a question and its SQL, or raises SkipFormError."""
# ruff: noqa: S608 - queries are what these functions write; their parts are names of our own

from __future__ import annotations

from datagen.common.domain_columns import Column
from datagen.common.wording import AGGREGATES, LIST_LEADS, NOT_ADDED, ONE_LEADS, number_word, ranked, several
from datagen.sql.scene import Scene

Pair = tuple[str, str]


def is_number(column: Column) -> bool:
    """Whether averages make sense."""
    return column.is_number


def is_ordered(column: Column) -> bool:
    """Whether rows may be ranked by it."""
    return column.kind in ("int", "real", "date") and not column.nullable


def is_category(column: Column) -> bool:
    """Whether rows may be grouped by it."""
    return column.is_category


def function_for(s: Scene, column: Column) -> tuple[str, str]:
    """An aggregate function that suits the column, and its word."""
    names = [name for name in AGGREGATES if name != "SUM" or column.label.split()[-1] not in NOT_ADDED]
    name = s.rng.choice(names)
    return name, s.rng.choice(AGGREGATES[name])


def by_time(column: Column) -> bool:
    """Whether its highest value is called the latest."""
    return column.kind == "date" or column.is_year


def listing(s: Scene) -> Pair:
    """Columns of the rows that pass the filters."""
    table = s.any_table()
    noun, where = s.subject(table, 1, 2)
    words, columns = s.projection(table)
    question = s.ask("the {c} of {n}", "the {c} of all {n}", c=words, n=noun)
    return question, f"SELECT {columns} FROM {s.tab(table)}{where}"


def named_rows(s: Scene) -> Pair:
    """The names of the rows that pass the filters, asked without naming the column."""
    table = s.named_table()
    noun, where = s.subject(table, 1, 2, but=table.columns[:1])
    who = "Who are the {n}?" if table.columns[0].kind == "person" else "Which {n} are there?"
    return s.info(who, "Name the {n}.", n=noun), f"SELECT {table.columns[0].name} FROM {s.tab(table)}{where}"


def whole_rows(s: Scene) -> Pair:
    """Everything about the rows that pass the filters."""
    table = s.any_table()
    noun, where = s.subject(table, 1, 2)
    question = s.info("Show all details of {n}.", "Show every column of {n}.", n=noun)
    return question, f"SELECT * FROM {s.tab(table)}{where}"


def sorted_listing(s: Scene) -> Pair:
    """All or some rows in an order."""
    table = s.any_table()
    noun, where = s.subject(table, 0, 1)
    words, columns = s.projection(table)
    by = s.some(table, lambda c: is_ordered(c) or c is table.columns[0])
    down = s.rng.random() < 0.5
    order = f"by {by.label} in {'de' if down else 'a'}scending order"
    if by_time(by):
        order = f"by {by.label}, {'latest' if down else 'earliest'} first"
    elif not is_ordered(by):
        order = f"by {by.label} in reverse alphabetical order" if down else f"alphabetically by {by.label}"
    question = s.ask("the {c} of {n} sorted {o}", "the {c} of all {n} sorted {o}", c=words, n=noun, o=order)
    return question, f"SELECT {columns} FROM {s.tab(table)}{where} ORDER BY {by.name}{' DESC' if down else ''}"


def two_orders(s: Scene) -> Pair:
    """Rows ordered by a category and then by a number."""
    table = s.named_table()
    by, then = s.some(table, is_category), s.some(table, is_ordered)
    down = s.rng.random() < 0.5
    question = s.ask("the {f}, {b} and {t} of all {n}, sorted by {b} and then by {t} in {w} order",
                     f=table.columns[0].label, b=by.label, t=then.label, n=table.nouns,
                     w="descending" if down else "ascending")  # fmt: skip
    order = f"ORDER BY {by.name}, {then.name}{' DESC' if down else ''}"
    return question, f"SELECT {table.columns[0].name}, {by.name}, {then.name} FROM {s.tab(table)} {order}"


def counting(s: Scene) -> Pair:
    """How many rows pass the filters."""
    table = s.any_table()
    noun, where = s.subject(table, 1, 2)
    question = s.info("How many {n} are there?", "Count the {n}.", "What is the number of {n}?", n=noun)
    return question, f"SELECT COUNT(*) FROM {s.tab(table)}{where}"


def distinct(s: Scene) -> Pair:
    """The different values of a category, or how many there are."""
    table = s.any_table()
    column = s.some(table, is_category)
    noun, where = s.subject(table, 0, 1, but=[column])
    if s.rng.random() < 0.4:
        question = s.info("How many different {c} do {n} have?", "Count the distinct {c} of {n}.",
                         c=several(column.label), n=noun)  # fmt: skip
        return question, f"SELECT COUNT(DISTINCT {column.name}) FROM {s.tab(table)}{where}"
    question = s.ask("the different {c} of {n}", "the distinct {c} of {n}", c=several(column.label), n=noun)
    return question, f"SELECT DISTINCT {column.name} FROM {s.tab(table)}{where}"


def aggregate(s: Scene) -> Pair:
    """One or two figures over a numeric column."""
    table = s.any_table()
    column = s.some(table, is_number)
    noun, where = s.subject(table, 0, 2, but=[column])
    if s.rng.random() < 0.25:
        question = s.ask("the minimum and maximum {c} of {n}", c=column.label, n=noun)
        return question, f"SELECT MIN({column.name}), MAX({column.name}) FROM {s.tab(table)}{where}"
    one, word = function_for(s, column)
    asked = s.ask("the {w} {c} of {n}", "the {w} {c} of all {n}", leads=ONE_LEADS, w=word, c=column.label, n=noun)
    return asked, f"SELECT {one}({column.name}) FROM {s.tab(table)}{where}"


def top_rows(s: Scene) -> Pair:
    """The first few rows by a number or date."""
    table = s.any_table()
    by = s.some(table, is_ordered)
    most, count = s.rng.random() < 0.5, s.rng.randint(2, 5)
    noun, where = s.subject(table, 0, 1, but=[by])
    words, columns = s.projection(table)
    question = s.ask("the {c} of {t}", c=words, t=ranked(s.rng, by, most, noun, number_word(s.rng, count)))
    order = f"{by.name}{' DESC' if most else ''}"
    return question, f"SELECT {columns} FROM {s.tab(table)}{where} ORDER BY {order} LIMIT {count}"


def top_row(s: Scene) -> Pair:
    """The first row by a number or date."""
    table = s.named_table()
    by = s.some(table, is_ordered)
    most = s.rng.random() < 0.5
    one = ranked(s.rng, by, most, table.singular)
    columns = table.columns[0].name
    if s.rng.random() < 0.5:
        words, columns = s.projection(table, plural=False)
        question = s.ask("the {c} of {t}", c=words, t=one, leads=LIST_LEADS if " and " in words else ONE_LEADS)
    else:
        who = "Who is {t}?" if table.columns[0].kind == "person" else "Which is {t}?"
        question = s.info(who, "Name {t}.", t=one)
    order = f"{by.name}{' DESC' if most else ''}"
    return question, f"SELECT {columns} FROM {s.tab(table)} ORDER BY {order} LIMIT 1"


def second_row(s: Scene) -> Pair:
    """The second or third row by a number or date."""
    table = s.named_table()
    by = s.some(table, is_ordered)
    place, word = s.rng.choice([(1, "second"), (2, "third"), (3, "fourth")])
    most = s.rng.random() < 0.5
    rank = ("latest" if most else "earliest") if by_time(by) else "highest" if most else "lowest"
    question = s.info("Which {e} has the {p} {r} {c}?", "Name the {e} with the {p} {r} {c}.",
                     e=table.singular, p=word, r=rank, c=by.label)  # fmt: skip
    order = f"ORDER BY {by.name}{' DESC' if most else ''}"
    return question, f"SELECT {table.columns[0].name} FROM {s.tab(table)} {order} LIMIT 1 OFFSET {place}"


FORMS = (
    listing, listing, named_rows, whole_rows, sorted_listing, two_orders, counting, distinct, aggregate, top_rows,
    top_row, second_row,
)  # fmt: skip

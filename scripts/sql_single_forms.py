"""Question forms over one table; each returns a question and its SQL, or raises SkipFormError."""
# ruff: noqa: S608 - queries are what these functions write; their parts are names of our own

from __future__ import annotations

from domain_columns import Column
from filters import noun_phrase
from sql_scene import Scene
from wording import AGGREGATES, LIST_LEADS, NOT_ADDED, ONE_LEADS, article, number_word, ranked, several

Pair = tuple[str, str]


def is_number(column: Column) -> bool:
    """Whether averages make sense."""
    return column.is_number


def is_ordered(column: Column) -> bool:
    """Whether rows may be ranked by it."""
    return column.kind in ("int", "real", "date")


def is_category(column: Column) -> bool:
    """Whether rows may be grouped by it."""
    return column.is_category


def function_for(s: Scene, column: Column) -> tuple[str, str]:
    """An aggregate function that suits the column, and its word."""
    names = [name for name in AGGREGATES if name != "SUM" or column.label.split()[-1] not in NOT_ADDED]
    name = s.rng.choice(names)
    return name, s.rng.choice(AGGREGATES[name])


def listing(s: Scene) -> Pair:
    """Columns of the rows that pass the filters."""
    table = s.any_table()
    noun, where = s.subject(table, 1, 2)
    words, columns = s.projection(table)
    question = s.ask("the {c} of {n}", "the {c} of all {n}", "{c} of {n}", "the {c} for {n}", "the {c} of the {n}",
                     c=words, n=noun)  # fmt: skip
    if s.rng.random() < 0.25:
        question = s.say("For {n}, show the {c}.", "Look up {n} and return their {c}.", "For all {n}, give the {c}.",
                         "Take {n}: what are their {c}?", c=words, n=noun)  # fmt: skip
    return question, f"SELECT {columns} FROM {s.tab(table)}{where}"


def named_rows(s: Scene) -> Pair:
    """The names of the rows that pass the filters, asked without naming the column."""
    table = s.named_table()
    noun, where = s.subject(table, 1, 2, but=table.columns[:1])
    who = "Who are the {n}?" if table.columns[0].kind == "person" else "Which {n} are there?"
    question = s.say(who, "Name the {n}.", "Which are the {n}?", "Name all {n}.", "Which {n} do we have?", n=noun)
    return question, f"SELECT {s.name(table)} FROM {s.tab(table)}{where}"


def whole_rows(s: Scene) -> Pair:
    """Everything about the rows that pass the filters."""
    table = s.any_table()
    noun, where = s.subject(table, 1, 2)
    question = s.say("Show all details of {n}.", "Give me every column for {n}.", "All information about {n}",
                     "Return the full records of {n}.", "What do we know about {n}?", n=noun)  # fmt: skip
    return question, f"SELECT * FROM {s.tab(table)}{where}"


def sorted_listing(s: Scene) -> Pair:
    """All or some rows in an order."""
    table = s.any_table()
    noun, where = s.subject(table, 0, 1)
    words, columns = s.projection(table)
    by = s.some(table, lambda c: is_ordered(c) or c is table.columns[0])
    down = s.rng.random() < 0.5
    if is_ordered(by):
        order = s.rng.choice([f"by {by.label} from " + ("high to low" if down else "low to high"),
                              f"by {by.label} in {'de' if down else 'a'}scending order"])  # fmt: skip
        if by.kind == "date" or by.is_year:
            order = f"by {by.label}, " + ("latest first" if down else "earliest first")
    else:
        order = f"by {by.label} in reverse alphabetical order" if down else f"alphabetically by {by.label}"
    question = s.ask("the {c} of {n} sorted {o}", "the {c} of all {n}, ordered {o}", "{c} of {n}, sorted {o}",
                     c=words, n=noun, o=order)  # fmt: skip
    return question, f"SELECT {columns} FROM {s.tab(table)}{where} ORDER BY {s.col(table, by)}{' DESC' if down else ''}"


def counting(s: Scene) -> Pair:
    """How many rows pass the filters."""
    table = s.any_table()
    noun, where = s.subject(table, 1, 2)
    question = s.say("How many {n} are there?", "Count the {n}.", "What is the number of {n}?", "number of {n}",
                     "How many {n} do we have?", "Find how many {n} there are.", "Give me the count of {n}.",
                     "What is the total number of {n}?", "I need the number of {n}.", n=noun)  # fmt: skip
    return question, f"SELECT COUNT(*) FROM {s.tab(table)}{where}"


def distinct(s: Scene) -> Pair:
    """The different values of a category, or how many there are."""
    table = s.any_table()
    column = s.some(table, is_category)
    noun, where = s.subject(table, 0, 1, but=[column])
    name, plural = s.col(table, column), several(column.label)
    if s.rng.random() < 0.4:
        question = s.say("How many different {c} do {n} have?", "Count the distinct {c} among {n}.",
                         "How many distinct {c} are there among {n}?", "number of unique {c} of {n}",
                         c=plural, n=noun)  # fmt: skip
        return question, f"SELECT COUNT(DISTINCT {name}) FROM {s.tab(table)}{where}"
    question = s.ask("the different {c} of {n}", "the distinct {c} of {n}", "all unique {c} among {n}",
                     "the {c} of {n} without duplicates", c=plural, n=noun)  # fmt: skip
    return question, f"SELECT DISTINCT {name} FROM {s.tab(table)}{where}"


def aggregate(s: Scene) -> Pair:
    """One or two figures over a numeric column."""
    table = s.any_table()
    column = s.some(table, is_number)
    noun, where = s.subject(table, 0, 2, but=[column])
    name = s.col(table, column)
    one, word = function_for(s, column)
    if s.rng.random() < 0.3:
        question = s.ask("the minimum and maximum {c} of {n}", "the lowest and highest {c} among {n}",
                         c=column.label, n=noun)  # fmt: skip
        return question, f"SELECT MIN({name}), MAX({name}) FROM {s.tab(table)}{where}"
    asked = s.ask("the {w} {c} of {n}", "the {w} {c} of all {n}", "the {w} {c} for {n}", "the {w} {c} among {n}",
                  leads=ONE_LEADS, w=word, c=column.label, n=noun)  # fmt: skip
    if one == "AVG" and s.rng.random() < 0.25:
        asked = s.say("What is the average {c} of {n}, rounded to 2 decimals?",
                      "Average {c} of {n} to two decimal places.", c=column.label, n=noun)  # fmt: skip
        return asked, f"SELECT ROUND(AVG({name}), 2) FROM {s.tab(table)}{where}"
    return asked, f"SELECT {one}({name}) FROM {s.tab(table)}{where}"


def top_rows(s: Scene) -> Pair:
    """The first few rows by a number or date."""
    table = s.any_table()
    by = s.some(table, lambda c: is_ordered(c) and not c.nullable)
    most = s.rng.random() < 0.6
    count = s.rng.randint(2, 5)
    noun, where = s.subject(table, 0, 1, but=[by])
    words, columns = s.projection(table)
    size = ("top " if most and s.rng.random() < 0.3 else "") + number_word(s.rng, count)
    question = s.ask("the {c} of {t}", "{c} of {t}", "the {c} for {t}", c=words, t=ranked(s.rng, by, most, noun, size))
    order = f"{s.col(table, by)}{' DESC' if most else ''}"
    return question, f"SELECT {columns} FROM {s.tab(table)}{where} ORDER BY {order} LIMIT {count}"


def top_row(s: Scene) -> Pair:
    """The first row by a number or date."""
    table = s.named_table()
    by = s.some(table, lambda c: is_ordered(c) and not c.nullable)
    most = s.rng.random() < 0.6
    noun, where = s.subject(table, 0, 1, but=[by])
    columns = s.name(table)
    if where:
        one = ranked(s.rng, by, most, "one")
        question = s.say("Among {n}, find {t} and return its {c}.", "Of the {n}, name {t}.", "Among {n}, which is {t}?",
                         n=noun, t=one, c=table.columns[0].label)  # fmt: skip
    elif s.rng.random() < 0.5:
        words, columns = s.projection(table, plural=False)
        leads = LIST_LEADS if " and " in words else ONE_LEADS
        question = s.ask("the {c} of {t}", c=words, t=ranked(s.rng, by, most, table.singular), leads=leads)
    else:
        who = "Who is {t}?" if table.columns[0].kind == "person" else "Which is {t}?"
        question = s.say("Which {e} has the {w} {c}?" if is_number(by) else who, who, "Name {t}.", "Find {t}.",
                         e=table.singular, t=ranked(s.rng, by, most, table.singular), c=by.label,
                         w=s.rng.choice(AGGREGATES["MAX" if most else "MIN"]))  # fmt: skip
    order = f"{s.col(table, by)}{' DESC' if most else ''}"
    return question, f"SELECT {columns} FROM {s.tab(table)}{where} ORDER BY {order} LIMIT 1"


def same_in_both(s: Scene) -> Pair:
    """The categories that two different filters share, or that one has and the other lacks."""
    table = s.any_table()
    column = s.some(table, is_category)
    one, two = s.filters(table, 2, but=[column])
    how = s.rng.choice(["INTERSECT", "EXCEPT", "UNION"])
    words = {
        "INTERSECT": ("that occur both among {a} and among {b}", "shared by {a} and {b}"),
        "EXCEPT": ("that occur among {a} but not among {b}", "of {a} that no {b} have"),
        "UNION": ("that occur among {a} or among {b}", "of {a} together with those of {b}, without duplicates"),
    }
    tail = s.rng.choice(words[how][:1] if how == "EXCEPT" else words[how])
    question = s.ask("the {c} " + tail, c=several(column.label), a=noun_phrase(table.nouns, [one]),
                     b=noun_phrase(table.nouns, [two]))  # fmt: skip
    parts = [f"SELECT {s.col(table, column)} FROM {s.tab(table)} WHERE {s.where(table, [f])}" for f in (one, two)]
    return question, f" {how} ".join(parts)


def above_average(s: Scene) -> Pair:
    """Rows beyond the average, of all rows or of the filtered ones."""
    table = s.any_table()
    column = s.some(table, is_number)
    words, columns = s.projection(table)
    name = s.col(table, column)
    above = s.rng.random() < 0.6
    side = s.rng.choice(["above", "higher than", "greater than"] if above else ["below", "lower than", "less than"])
    if s.rng.random() < 0.4:
        noun, where = s.subject(table, 1, 1, but=[column])
        whose = f"whose {column.label} is {side} the average {column.label} of {noun}"
    else:
        where = ""
        whose = s.rng.choice([f"whose {column.label} is {side} average", f"with a {column.label} {side} the average",
                              f"whose {column.label} is {side} the average {column.label}"])  # fmt: skip
    question = s.ask("the {c} of {n} {w}", "the {c} of all {n} {w}", c=words, n=table.nouns, w=whose)
    average = f"(SELECT AVG({name}) FROM {s.tab(table)}{where})"
    return question, f"SELECT {columns} FROM {s.tab(table)} WHERE {name} {'>' if above else '<'} {average}"


def at_extreme(s: Scene) -> Pair:
    """All rows that share the highest or lowest value."""
    table = s.any_table()
    column = s.some(table, lambda c: c.kind in ("int", "date"))
    words, columns = s.projection(table)
    name, most = s.col(table, column), s.rng.random() < 0.6
    which = ("latest" if most else "earliest") if column.kind == "date" or column.is_year else s.rng.choice(
        AGGREGATES["MAX" if most else "MIN"])  # fmt: skip
    question = s.ask(
        "the {c} of all {n} that share the {w} {v}",
        "the {c} of all {n} tied for the {w} {v}",
        "the {c} of the {n} whose {v} equals the {w} {v}",
        c=words,
        n=table.nouns,
        w=which,
        v=column.label,
    )
    inner = f"SELECT {'MAX' if most else 'MIN'}({name}) FROM {s.tab(table)}"
    return question, f"SELECT {columns} FROM {s.tab(table)} WHERE {name} = ({inner})"


def missing_values(s: Scene) -> Pair:
    """Counts of missing values, or a substitute for them."""
    table = s.any_table()
    column = s.some(table, lambda c: c.nullable)
    name, first = s.col(table, column), s.name(table)
    if column.kind in ("of", "adj", "city", "country") and s.rng.random() < 0.5:
        word = s.rng.choice(["unknown", "none", "n/a", "missing"])
        question = s.say("List the {f} and {c} of all {n}, showing '{w}' where the {c} is missing.",
                         "Show {f} and {c} for {n}; use '{w}' if there is no {c}.",
                         f=table.columns[0].label, c=column.label, n=table.nouns, w=word)  # fmt: skip
        return question, f"SELECT {first}, COALESCE({name}, '{word}') FROM {s.tab(table)}"
    noun, where = s.subject(table, 0, 1, but=[column])
    if s.rng.random() < 0.5:
        question = s.say("How many {n} have {c} on record?", "Count the {n} for which {c} is recorded.",
                         n=noun, c=article_or_some(column))  # fmt: skip
        return question, f"SELECT COUNT({name}) FROM {s.tab(table)}{where}"
    question = s.say("How many {n} and how many of them lack {c}?", "Count {n}, and how many of these have no {p}.",
                     n=noun, c=article_or_some(column), p=column.label)  # fmt: skip
    return question, f"SELECT COUNT(*), COUNT(*) - COUNT({name}) FROM {s.tab(table)}{where}"


def article_or_some(column: Column) -> str:
    """The label with an article where it can be counted."""
    return column.label if column.label.endswith("s") else article(column.label)


FORMS = (
    listing, listing, named_rows, whole_rows, sorted_listing, counting, counting, distinct, aggregate, aggregate,
    top_rows, top_row, same_in_both, above_average, at_extreme, missing_values,
)  # fmt: skip

"""Question forms over one table that group, bucket or compute; each returns a question and its SQL."""
# ruff: noqa: S608 - queries are what these functions write; their parts are names of our own

from __future__ import annotations

from domain_columns import Column
from filters import noun_phrase
from sql_domains import Table
from sql_scene import Scene
from sql_single_forms import Pair, function_for, is_category, is_number
from wording import AGGREGATES, number_word, pick_values, several


def measure(s: Scene, table: Table, but: Column) -> tuple[str, str]:
    """A count or an aggregate of a number, in words (`the average price`) and in SQL."""
    columns = [column for column in table.columns if column.is_number and column is not but]
    if not columns or s.rng.random() < 0.35:
        return s.rng.choice([f"the number of {table.nouns}", f"how many {table.nouns} there are"]), "COUNT(*)"
    column = s.rng.choice(columns)
    name, word = function_for(s, column)
    return f"the {word} {column.label}", f"{name}({s.col(table, column)})"


def per_group(s: Scene) -> Pair:
    """A figure for each category."""
    table = s.any_table()
    by = s.some(table, is_category)
    words, sql = measure(s, table, by)
    noun, where = s.subject(table, 0, 1, but=[by])
    among = f" among {noun}" if where else f" of {table.nouns}" if sql != "COUNT(*)" else ""
    question = s.ask("{m}{a} for each {b}", "{m}{a} per {b}", "{m}{a} by {b}", "each {b} with {m}{a}",
                     "{b} and {m}{a}", m=words, a=among, b=by.label)  # fmt: skip
    if words.startswith("how many"):
        question = s.say("For each {b}, how many {n} are there?", "How many {n} are there per {b}?",
                         "How many {n} does each {b} have?", b=by.label, n=noun)  # fmt: skip
    name = s.col(table, by)
    return question, f"SELECT {name}, {sql} FROM {s.tab(table)}{where} GROUP BY {name}"


def sorted_groups(s: Scene) -> Pair:
    """A figure for each category, the largest or smallest first."""
    table = s.any_table()
    by = s.some(table, is_category)
    words, sql = measure(s, table, by)
    words = words.replace("how many", "the number of").replace(" there are", "")
    down = s.rng.random() < 0.7
    order = s.rng.choice(["from most to least", "highest first", "in descending order"] if down else
                         ["from least to most", "lowest first", "in ascending order"])  # fmt: skip
    of = "" if sql == "COUNT(*)" else f" of {table.nouns}"
    question = s.ask("{m}{o} for each {b}, {d}", "{b} and {m}{o}, {d}", "{m}{o} per {b} {d}",
                     m=words, o=of, b=by.label, d=order)  # fmt: skip
    name = s.col(table, by)
    return question, f"SELECT {name}, {sql} FROM {s.tab(table)} GROUP BY {name} ORDER BY {sql}{' DESC' if down else ''}"


def having(s: Scene) -> Pair:
    """The categories whose figure passes a limit."""
    table = s.any_table()
    by = s.some(table, is_category)
    noun, where = s.subject(table, 0, 1, but=[by])
    name = s.col(table, by)
    if s.rng.random() < 0.6:
        limit = s.rng.randint(2, 4) if where else s.rng.choice([2, 3, 4, 5, 8, 10])
        how, sign = s.rng.choice([("more than", ">"), ("at least", ">="), ("fewer than", "<"), ("exactly", "=")])
        tail, test = f"{how} {number_word(s.rng, limit)} {noun}", f"COUNT(*) {sign} {limit}"
    else:
        column = s.some(table, is_number)
        numbers = pick_values(column, s.values(table, column), s.rng)
        how, sign = s.rng.choice([("above", ">"), ("below", "<"), ("greater than", ">"), ("less than", "<")])
        of = f" of {noun}" if where or s.rng.random() < 0.5 else ""
        tail = f"an average {column.label}{of} {how} {numbers[0]}"
        test = f"AVG({s.col(table, column)}) {sign} {numbers[0]}"
    question = s.say("Which {b} have {t}?", "List the {b} with {t}.", "Find every {o} that has {t}.", "{b} having {t}",
                     "What are the {b} with {t}?", "Show each {o} with {t}.",
                     b=several(by.label), o=by.label, t=tail)  # fmt: skip
    return question, f"SELECT {name} FROM {s.tab(table)}{where} GROUP BY {name} HAVING {test}"


def top_group(s: Scene) -> Pair:
    """The category that has the most, the fewest, or the highest average."""
    table = s.any_table()
    by = s.some(table, lambda c: is_category(c) and not c.nullable)
    name, most = s.col(table, by), s.rng.random() < 0.7
    if s.rng.random() < 0.6:
        noun, where = s.subject(table, 0, 1, but=[by])
        what, sql = f"the {'most' if most else 'fewest'} {noun}", "COUNT(*)"
    else:
        column, where = s.some(table, is_number), ""
        word = s.rng.choice(AGGREGATES["MAX" if most else "MIN"])
        what, sql = f"the {word} average {column.label} of {table.nouns}", f"AVG({s.col(table, column)})"
    question = s.say("Which {b} has {w}?", "What is the {b} with {w}?", "Find the {b} that has {w}.", "{b} with {w}",
                     "Name the {b} with {w}.", b=by.label, w=what)  # fmt: skip
    tail = f"GROUP BY {name} ORDER BY {sql}{' DESC' if most else ''} LIMIT 1"
    return question, f"SELECT {name} FROM {s.tab(table)}{where} {tail}"


def buckets(s: Scene) -> Pair:
    """A label that depends on a threshold, for each row or counted."""
    table = s.any_table()
    column = s.some(table, is_number)
    limit = pick_values(column, s.values(table, column), s.rng)[0]
    high, low = s.rng.choice([("high", "low"), ("large", "small"), ("above", "below"), ("A", "B"), ("big", "normal")])
    name = s.col(table, column)
    case = f"CASE WHEN {name} >= {limit} THEN '{high}' ELSE '{low}' END"
    first = table.columns[0]
    if column.nullable or first is column:
        case = f"CASE WHEN {name} >= {limit} THEN '{high}' WHEN {name} < {limit} THEN '{low}' END"
    if s.rng.random() < 0.6 or column.nullable:
        question = s.say("List the {f} of {n} with the label '{h}' if the {c} is at least {l} and '{s}' {e}.",
                         "For {n}, show the {f} and '{h}' when the {c} is {l} or more, '{s}' {e}.",
                         "Label {n} '{h}' if their {c} is {l} or more and '{s}' {e}; show {f} and label.",
                         f=first.label, n=table.nouns, h=high, s=low, c=column.label, l=str(limit),
                         e="if it is lower" if column.nullable else "otherwise")  # fmt: skip
        return question, f"SELECT {s.name(table)}, {case} FROM {s.tab(table)}"
    question = s.say("How many {n} are '{h}' ({c} of at least {l}) and how many are '{s}' (below that)?",
                     "Count {n} per group: '{h}' for {c} {l} or more, '{s}' otherwise.",
                     n=table.nouns, h=high, s=low, c=column.label, l=str(limit))  # fmt: skip
    return question, f"SELECT {case} AS label, COUNT(*) FROM {s.tab(table)} GROUP BY label"


def share(s: Scene) -> Pair:
    """The percentage of rows that pass a filter, or conditional sums."""
    table = s.any_table()
    (one,) = s.filters(table, 1)
    condition = s.where(table, [one])
    noun = noun_phrase(table.nouns, [one])
    question = s.say("What percentage of {a} are {n}?", "What share of all {a}, in percent, are {n}?",
                     "Percentage of {n} among all {a}", a=table.nouns, n=noun)  # fmt: skip
    return question, f"SELECT 100.0 * SUM(CASE WHEN {condition} THEN 1 ELSE 0 END) / COUNT(*) FROM {s.tab(table)}"


def by_year(s: Scene) -> Pair:
    """A figure for each year or month of a date."""
    table = s.any_table()
    when = s.some(table, lambda c: c.kind == "date")
    words, sql = measure(s, table, when)
    unit, code = s.rng.choice([("year", "%Y"), ("year", "%Y"), ("month", "%Y-%m")])
    if when.low == when.high:
        unit, code = "month", "%Y-%m"
    name = f"strftime('{code}', {s.col(table, when)})"
    words = words.replace("how many", "the number of").replace(" there are", "")
    question = s.ask(
        "{m} per {u} of {d}",
        "{m} for each {d} {u}",
        "{m} by {u} of {d}, oldest {u} first",
        m=words,
        u=unit,
        d=when.label,
    )
    order = f" ORDER BY {name}" if "first" in question else ""
    return question, f"SELECT {name}, {sql} FROM {s.tab(table)} GROUP BY {name}{order}"


def spread(s: Scene) -> Pair:
    """The gap between the highest and the lowest value, in all or for each category."""
    table = s.any_table()
    column = s.some(table, is_number)
    gap = f"MAX({s.col(table, column)}) - MIN({s.col(table, column)})"
    words = s.rng.choice(
        [
            "the difference between the highest and the lowest {c} of {n}",
            "the range of the {c} of {n} (maximum minus minimum)",
            "the gap between the largest and smallest {c} of {n}",
        ]
    )
    words = words.format(c=column.label, n=table.nouns)
    if s.rng.random() < 0.5:
        by = s.some(table, is_category)
        name = s.col(table, by)
        return s.ask(
            "{w} for each {b}", w=words, b=by.label
        ), f"SELECT {name}, {gap} FROM {s.tab(table)} GROUP BY {name}"
    noun, where = s.subject(table, 0, 1, but=[column])
    question = s.ask("{w}", w=words.replace(table.nouns, noun))
    return question, f"SELECT {gap} FROM {s.tab(table)}{where}"


def computed(s: Scene) -> Pair:
    """A column worked out from one or two others."""
    table = s.any_table()
    column = s.some(table, is_number)
    noun, where = s.subject(table, 0, 1, but=[column])
    first, name, factor = s.name(table), s.col(table, column), s.rng.choice([2, 3, 5, 10, 12, 100])
    others = [c for c in table.columns if c.is_number and c is not column]
    if others and s.rng.random() < 0.5:
        other = s.rng.choice(others)
        sign, words = s.rng.choice([("*", "multiplied by"), ("-", "minus"), ("+", "plus")])
        what, sql = f"{column.label} {words} {other.label}", f"{name} {sign} {s.col(table, other)}"
    else:
        sign, words = s.rng.choice([("*", "multiplied by"), ("/", "divided by"), ("+", "plus"), ("-", "minus")])
        what, sql = f"{column.label} {words} {factor}", f"{name} {sign} {factor}{'.0' if sign == '/' else ''}"
    question = s.ask("the {f} of {n} and their {w}", "{f} and {w} for {n}", "for {n} the {f} and the {w}",
                     f=table.columns[0].label, n=noun, w=what)  # fmt: skip
    return question, f"SELECT {first}, {sql} FROM {s.tab(table)}{where}"


FORMS = (per_group, per_group, sorted_groups, having, having, top_group, buckets, share, by_year, spread, computed)

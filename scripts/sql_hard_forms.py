"""Harder question forms: several figures, nested groups, chained links; each returns a question and its SQL."""
# ruff: noqa: S608 - queries are what these functions write; their parts are names of our own

from __future__ import annotations

from filters import noun_phrase
from sql_join_forms import Joined, a_name
from sql_scene import Scene, SkipFormError
from sql_single_forms import Pair, function_for, is_category, is_number, is_ordered
from wording import AGGREGATES, number_word, series, several


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
    question = s.ask("the number of {n} and their {w} {c} for each {b}{t}",
                     "for each {b} the count and the {w} {c} of {n}{t}",
                     "{b}, number of {n} and {w} {c}{t}", n=noun,
                     w=word, c=column.label, b=by.label, t=tail)  # fmt: skip
    name = s.col(table, by)
    sql = (
        f"SELECT {name}, COUNT(*), {function}({s.col(table, column)}) FROM {s.tab(table)}{where} GROUP BY {name}{test}"
    )
    return question, sql


def two_orders(s: Scene) -> Pair:
    """Rows ordered by a category and then by a number."""
    table = s.named_table()
    by, then = s.some(table, is_category), s.some(table, is_ordered)
    down = s.rng.random() < 0.6
    way = "descending" if down else "ascending"
    question = s.ask("the {f}, {b} and {t} of all {n}, sorted by {b} and then by {t} in {w} order",
                     "{f}, {b} and {t} of {n}, ordered by {b} and within it by {t} {w}",
                     f=table.columns[0].label, b=by.label, t=then.label, n=table.nouns, w=way)  # fmt: skip
    first, second = s.col(table, by), s.col(table, then)
    order = f"ORDER BY {first}, {second}{' DESC' if down else ''}"
    return question, f"SELECT {s.name(table)}, {first}, {second} FROM {s.tab(table)} {order}"


def second_row(s: Scene) -> Pair:
    """The second or third row by a number or date."""
    table = s.named_table()
    by = s.some(table, lambda c: is_ordered(c) and not c.nullable)
    place, word = s.rng.choice([(1, "second"), (2, "third"), (3, "fourth")])
    most = s.rng.random() < 0.6
    if by.kind == "date" or by.is_year:
        rank = "latest" if most else "earliest"
    else:
        rank = s.rng.choice(AGGREGATES["MAX" if most else "MIN"][::2])
    question = s.say("Which {e} has the {p} {r} {c}?", "Find the {f} of the {e} with the {p} {r} {c}.",
                     "Name the {e} with the {p} {r} {c}.", e=table.singular, p=word, r=rank, c=by.label,
                     f=table.columns[0].label)  # fmt: skip
    order = f"ORDER BY {s.col(table, by)}{' DESC' if most else ''}"
    return question, f"SELECT {s.name(table)} FROM {s.tab(table)} {order} LIMIT 1 OFFSET {place}"


def text_work(s: Scene) -> Pair:
    """Names in capitals, their lengths, or their first letters."""
    table = s.named_table()
    name, label = s.name(table), table.columns[0].label
    noun, where = s.subject(table, 0, 1, but=table.columns[:1])
    kind = s.rng.choice(["upper", "length", "letter", "longest"])
    if kind == "upper":
        question = s.ask("the {f} of {n} in capital letters", "the {f} of {n} in upper case", f=several(label), n=noun)
        return question, f"SELECT UPPER({name}) FROM {s.tab(table)}{where}"
    if kind == "length":
        question = s.ask(
            "the {f} of {n} and how many characters it has", "each {f} of {n} with its length", f=label, n=noun
        )
        return question, f"SELECT {name}, LENGTH({name}) FROM {s.tab(table)}{where}"
    if kind == "letter":
        question = s.ask("how many {n} there are for each first letter of the {f}",
                         "the number of {n} per initial of the {f}",
                         f=label, n=noun)  # fmt: skip
        letter = f"SUBSTR({name}, 1, 1)"
        return question, f"SELECT {letter}, COUNT(*) FROM {s.tab(table)}{where} GROUP BY {letter}"
    limit = s.rng.choice([9, 10, 11, 12, 13])
    question = s.ask(
        "the {f} of {n} that are longer than {l} characters", f=several(label), n=table.nouns, l=str(limit)
    )
    return question, f"SELECT {name} FROM {s.tab(table)} WHERE LENGTH({name}) > {limit}"


def busier_than_average(s: Scene) -> Pair:
    """Parents with more children than parents have on average."""
    j = Joined(s)
    if j.ref.column.nullable:
        raise SkipFormError
    question = s.ask("the {l} of {p} with more {n} than the average number of {n} per {e} that has any",
                     "the {l} of {p} whose number of {n} is above the average among {p} with {n}",
                     l=several(j.called), p=j.parent.nouns, n=j.child.nouns, e=j.parent.singular)  # fmt: skip
    key = s.col(j.child, j.ref.column)
    average = f"SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM {s.tab(j.child)} GROUP BY {key})"
    return question, f"SELECT {j.name} FROM {j.tables} {j.group} HAVING COUNT(*) > ({average})"


def filtered_top(s: Scene) -> Pair:
    """The parents with the most children that pass a filter, and the count."""
    j = Joined(s)
    (one,) = s.filters(j.child, 1)
    count = s.rng.randint(2, 5)
    question = s.say("Which {k} {p} have the most {n}, and how many do they have?",
                     "Top {k} {p} by number of {n}, with the number",
                     "List the {k} {p} with the most {n} and the counts.",
                     k=number_word(s.rng, count), p=j.parent.nouns, n=noun_phrase(j.child.nouns, [one]))  # fmt: skip
    where = s.where(j.child, [one], j.c)
    return (
        question,
        f"SELECT {j.name}, COUNT(*) FROM {j.tables} WHERE {where} {j.group} ORDER BY COUNT(*) DESC LIMIT {count}",
    )


def chained_group(s: Scene) -> Pair:
    """A count over three tables: for each category of one parent, children of the filtered other parent."""
    children = [table for table in s.domain.tables.values() if len(table.references) == 2]
    if not children:
        raise SkipFormError
    child = s.rng.choice(children)
    near, far = s.rng.sample(child.references, 2)
    one, other = s.domain.tables[near.parent], s.domain.tables[far.parent]
    (one_as, a), (child_as, c), (other_as, b) = s.aliases(one, child, other)
    by, (f,) = s.some(one, is_category), s.filters(other, 1)
    name = f"{a}.{s.col(one, by)}"
    tables = (f"{child_as} JOIN {one_as} ON {c}.{s.col(child, near.column)} = {a}.{s.key(one)}"
              f" JOIN {other_as} ON {c}.{s.col(child, far.column)} = {b}.{s.key(other)}")  # fmt: skip
    question = s.ask("the number of {n} {w} {t} for each {e} {b}", "for each {e} {b}, the number of {n} {w} {t}",
                     n=child.nouns, w=far.words, t=noun_phrase(other.nouns, [f]),
                     e=one.singular, b=by.label)  # fmt: skip
    return question, f"SELECT {name}, COUNT(*) FROM {tables} WHERE {s.where(other, [f], b)} GROUP BY {name}"


def best_child(s: Scene) -> Pair:
    """For each parent its child with the highest or lowest value, or rows beyond their own parent's average."""
    child, ref, _ = s.link()
    column = s.some(child, lambda c: is_ordered(c) and not c.nullable)
    most = s.rng.random() < 0.6
    first, name, key = s.name(child), s.col(child, column), s.col(child, ref.column)
    same = f"FROM {s.tab(child)} AS b WHERE b.{key} = a.{key}"
    parent = s.domain.tables[ref.parent].singular
    if column.is_number and s.rng.random() < 0.5:
        side = "above" if most else "below"
        question = s.ask(
            "the {f} of {n} whose {c} is {s} the average {c} of the same {p}'s {n}",
            "the {f} of {n} with {c} {s} the average for their {p}",
            f=series([several(child.columns[0].label)]),
            n=child.nouns,
            c=column.label,
            s=side,
            p=parent,
        )
        inner = f"(SELECT AVG(b.{name}) {same})"
        return question, f"SELECT a.{first} FROM {s.tab(child)} AS a WHERE a.{name} {'>' if most else '<'} {inner}"
    which = (
        ("latest" if most else "earliest")
        if column.kind == "date" or column.is_year
        else ("highest" if most else "lowest")
    )
    question = s.ask(
        "for each {p} id, the {f} of its {e} with the {w} {c}",
        "the {p} id and {f} of the {e} with the {w} {c} of each {p}",
        p=parent,
        f=child.columns[0].label,
        e=child.singular,
        w=which,
        c=column.label,
    )
    inner = f"(SELECT {'MAX' if most else 'MIN'}(b.{name}) {same})"
    return question, f"SELECT a.{key}, a.{first} FROM {s.tab(child)} AS a WHERE a.{name} = {inner}"


def through(s: Scene) -> Pair:
    """One parent's rows that a named or filtered row of the other parent is linked to."""
    children = [table for table in s.domain.tables.values() if len({r.parent for r in table.references}) == 2]
    if not children:
        raise SkipFormError
    child = s.rng.choice(children)
    near, far = s.rng.sample(child.references, 2)
    one, other = s.domain.tables[near.parent], s.domain.tables[far.parent]
    (one_as, a), (child_as, c), (other_as, b) = s.aliases(one, child, other)
    tables = (f"{one_as} JOIN {child_as} ON {a}.{s.key(one)} = {c}.{s.col(child, near.column)}"
              f" JOIN {other_as} ON {c}.{s.col(child, far.column)} = {b}.{s.key(other)}")  # fmt: skip
    label = several(one.columns[0].label)
    if s.rng.random() < 0.5:
        name = a_name(s, other)
        tail, where = f"{other.singular} {name}", f"{b}.{s.name(other)} = '{name}'"
    else:
        (f,) = s.filters(other, 1)
        tail, where = noun_phrase(other.nouns, [f]), s.where(other, [f], b)
    question = s.ask("the distinct {l} of {o} with {n} {w} {t}", "the different {l} of {o} that have {n} {w} {t}",
                     l=label, o=one.nouns, n=child.nouns, w=far.words, t=tail)  # fmt: skip
    return question, f"SELECT DISTINCT {a}.{s.name(one)} FROM {tables} WHERE {where}"


FORMS = (
    two_figures,
    two_orders,
    second_row,
    text_work,
    busier_than_average,
    filtered_top,
    chained_group,
    best_child,
    through,
)

"""Question forms with a query inside the query; each returns a question and its SQL, or raises SkipFormError."""
# ruff: noqa: S608 - queries are what these functions write; their parts are names of our own

from __future__ import annotations

from datagen.common.filters import noun_phrase
from datagen.common.wording import pick_values, several
from datagen.sql.join_forms import Joined
from datagen.sql.scene import Scene, SkipFormError
from datagen.sql.single_forms import Pair, by_time, is_category, is_number, is_ordered


def same_in_both(s: Scene) -> Pair:
    """The categories that two different filters share, or that one has and the other lacks."""
    table = s.any_table()
    column = s.some(table, is_category)
    one, two = s.filters(table, 2, but=[column])
    how, words = s.rng.choice([
        ("INTERSECT", "that occur both among {a} and among {b}"),
        ("EXCEPT", "that occur among {a} but not among {b}"),
        ("UNION", "that occur among {a} or among {b}"),
    ])  # fmt: skip
    question = s.ask("the {c} " + words, c=several(column.label), a=noun_phrase(table.nouns, [one]),
                     b=noun_phrase(table.nouns, [two]))  # fmt: skip
    parts = [f"SELECT {column.name} FROM {s.tab(table)} WHERE {s.where([f])}" for f in (one, two)]
    return question, f" {how} ".join(parts)


def above_average(s: Scene) -> Pair:
    """Rows beyond the average, of all rows or of the filtered ones."""
    table = s.any_table()
    column = s.some(table, is_number)
    words, columns = s.projection(table)
    above = s.rng.random() < 0.5
    noun, where = s.subject(table, s.rng.choice([0, 1]), 1, but=[column])
    side = "above" if above else "below"
    question = s.ask("the {c} of {n} whose {v} is {s} the average {v} of {o}", c=words, n=table.nouns, v=column.label,
                     s=side, o=noun if where else f"all {noun}")  # fmt: skip
    inner = f"(SELECT AVG({column.name}) FROM {s.tab(table)}{where})"
    return question, f"SELECT {columns} FROM {s.tab(table)} WHERE {column.name} {'>' if above else '<'} {inner}"


def at_extreme(s: Scene) -> Pair:
    """All rows that share the highest or lowest value."""
    table = s.any_table()
    column = s.some(table, lambda c: c.kind in ("int", "date"))
    words, columns = s.projection(table)
    most = s.rng.random() < 0.5
    which = ("latest" if most else "earliest") if by_time(column) else "highest" if most else "lowest"
    question = s.ask("the {c} of all {n} that share the {w} {v}", "the {c} of all {n} tied for the {w} {v}",
                     c=words, n=table.nouns, w=which, v=column.label)  # fmt: skip
    inner = f"SELECT {'MAX' if most else 'MIN'}({column.name}) FROM {s.tab(table)}"
    return question, f"SELECT {columns} FROM {s.tab(table)} WHERE {column.name} = ({inner})"


def childless(s: Scene) -> Pair:
    """Parents without children, or without children that pass a filter."""
    j = Joined(s)
    if j.ref.column.nullable:
        raise SkipFormError
    filters = s.filters(j.child, s.rng.choice([0, 1, 1]))
    words, columns = s.projection(j.parent)
    question = s.ask("the {c} of {p} without any {n}", "the {c} of {p} that have no {n}",
                     c=words, p=j.parent.nouns, n=noun_phrase(j.child.nouns, filters))  # fmt: skip
    where = f" WHERE {s.where(filters)}" if filters else ""
    inner = f"SELECT {j.ref.column.name} FROM {j.c}{where}"
    return question, f"SELECT {columns} FROM {j.p} WHERE {j.parent.key} NOT IN ({inner})"


def both_kinds(s: Scene) -> Pair:
    """Parents that have children of two kinds, or of the one but not the other."""
    j = Joined(s)
    column = s.some(j.child, lambda c: c.kind in ("of", "adj", "city", "country"))
    first, second = pick_values(column, s.values(j.child, column), s.rng)[:2]
    both = s.rng.random() < 0.5
    words = "both {n} with {c} {a} and {n} with {c} {b}" if both else "{n} with {c} {a} but none with {c} {b}"
    words = words.format(n=j.child.nouns, c=column.label, a=first, b=second)
    question = s.ask("the {l} of {p} that have {w}", l=several(j.called), p=j.parent.nouns, w=words)
    parts = [f"SELECT {j.name} FROM {j.tables} WHERE {j.c}.{column.name} = '{value}'" for value in (first, second)]
    return question, f" {'INTERSECT' if both else 'EXCEPT'} ".join(parts)


def busier_than_average(s: Scene) -> Pair:
    """Parents with more children than parents have on average."""
    j = Joined(s)
    if j.ref.column.nullable:
        raise SkipFormError
    more = s.rng.random() < 0.5
    question = s.ask("the {l} of {p} with {m} {n} than the average {e} that has any",
                     l=several(j.called), p=j.parent.nouns, m="more" if more else "fewer", n=j.child.nouns,
                     e=j.parent.singular)  # fmt: skip
    average = f"SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM {j.c} GROUP BY {j.ref.column.name})"
    return question, f"SELECT {j.name} FROM {j.tables} {j.group} HAVING COUNT(*) {'>' if more else '<'} ({average})"


def best_child(s: Scene) -> Pair:
    """For each parent its child with the highest or lowest value."""
    child, ref, parent = s.link()
    column = s.some(child, is_ordered)
    most = s.rng.random() < 0.5
    which = ("latest" if most else "earliest") if by_time(column) else "highest" if most else "lowest"
    shown = child.columns[0] if column is not child.columns[0] else s.some(child, lambda c: c is not column)
    question = s.ask("for each {p} id, the {f} of its {e} with the {w} {c}", p=parent.singular, f=shown.label,
                     e=child.singular, w=which, c=column.label)  # fmt: skip
    key, name = ref.column.name, s.tab(child)
    inner = f"(SELECT {'MAX' if most else 'MIN'}(b.{column.name}) FROM {name} AS b WHERE b.{key} = a.{key})"
    return question, f"SELECT a.{key}, a.{shown.name} FROM {name} AS a WHERE a.{column.name} = {inner}"


def beyond_own_average(s: Scene) -> Pair:
    """Children beyond the average of their own parent's children."""
    child, ref, parent = s.link()
    column = s.some(child, is_number)
    above = s.rng.random() < 0.5
    question = s.ask("the {f} of {n} whose {c} is {s} the average {c} of the same {p}'s {n}",
                     f=several(child.columns[0].label), n=child.nouns, c=column.label, s="above" if above else "below",
                     p=parent.singular)  # fmt: skip
    key, name = ref.column.name, s.tab(child)
    inner = f"(SELECT AVG(b.{column.name}) FROM {name} AS b WHERE b.{key} = a.{key})"
    sign = ">" if above else "<"
    return question, f"SELECT a.{child.columns[0].name} FROM {name} AS a WHERE a.{column.name} {sign} {inner}"


FORMS = (
    same_in_both, same_in_both, above_average, above_average, at_extreme, childless, childless, both_kinds,
    busier_than_average, best_child, beyond_own_average,
)  # fmt: skip

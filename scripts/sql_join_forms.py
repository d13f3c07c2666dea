"""Question forms over two or three linked tables; each returns a question and its SQL, or raises SkipFormError."""
# ruff: noqa: S608 - queries are what these functions write; their parts are names of our own

from __future__ import annotations

from filters import noun_phrase
from sql_domains import Reference, Table
from sql_scene import Scene, SkipFormError
from sql_single_forms import Pair, function_for, is_category, is_number
from wording import NOT_ADDED, ONE_LEADS, number_word, pick_values, several


class Joined:
    """A child and its parent as they stand in one FROM clause."""

    def __init__(self, s: Scene, how: str = "JOIN") -> None:
        """Draw the link; an outer join keeps the parents."""
        self.child, self.ref, self.parent = s.link()
        (parent_as, self.p), (child_as, self.c) = s.aliases(self.parent, self.child)
        self.key = f"{self.p}.{s.key(self.parent)}"
        self.foreign = f"{self.c}.{s.col(self.child, self.ref.column)}"
        self.tables = f"{parent_as} {how} {child_as} ON {self.key} = {self.foreign}"
        self.name = f"{self.p}.{s.name(self.parent)}"
        self.group = f"GROUP BY {self.key}, {self.name}"
        self.called = self.parent.columns[0].label


def a_name(s: Scene, table: Table) -> str:
    """The name of a random row."""
    return str(pick_values(table.columns[0], s.values(table, table.columns[0]), s.rng)[0])


def of_one_parent(s: Scene, child: Table, ref: Reference, parent: Table) -> tuple[str, str]:
    """`visits by patient Ada Berg` and the name."""
    name = a_name(s, parent)
    quoted = s.rng.choice([name, f"'{name}'"])
    return s.rng.choice([f"{child.nouns} {ref.words} {parent.singular} {quoted}",
                         f"{child.nouns} {ref.words} the {parent.singular} {quoted}"]), name  # fmt: skip


def children_with_parent(s: Scene) -> Pair:
    """Columns of the child beside the parent's name."""
    j = Joined(s)
    filters = s.filters(j.child, s.rng.randint(0, 1))
    words, columns = s.projection(j.child, j.c)
    where = f" WHERE {s.where(j.child, filters, j.c)}" if filters else ""
    question = s.ask("the {c} of {n} together with the {p} {l}", "{c} of {n} and the {l} of their {p}",
                     "the {c} of {n} and the corresponding {p} {l}", "the {c} of {n} along with the {l} of the {p}",
                     c=words, n=noun_phrase(j.child.nouns, filters), p=j.parent.singular, l=j.called)  # fmt: skip
    return question, f"SELECT {columns}, {j.name} FROM {j.tables}{where}"


def children_of(s: Scene) -> Pair:
    """Columns, a count or a figure of the children of one named parent."""
    j = Joined(s)
    noun, name = of_one_parent(s, j.child, j.ref, j.parent)
    where = f"FROM {j.tables} WHERE {j.name} = '{name}'"
    kind = s.rng.random()
    if kind < 0.4:
        words, columns = s.projection(j.child, j.c)
        return s.ask(
            "the {c} of {n}", "the {c} of all {n}", "{c} of the {n}", c=words, n=noun
        ), f"SELECT {columns} {where}"
    if kind < 0.65:
        question = s.say("How many {n} are there?", "Count the {n}.", "number of {n}", "How many {n} exist?", n=noun)
        return question, f"SELECT COUNT(*) {where}"
    column = s.some(j.child, is_number)
    function, word = function_for(s, column)
    question = s.ask("the {w} {c} of {n}", "the {w} {c} of all {n}", leads=ONE_LEADS, w=word, c=column.label, n=noun)
    return question, f"SELECT {function}({j.c}.{s.col(j.child, column)}) {where}"


def children_by_parent_filter(s: Scene) -> Pair:
    """Children whose parent passes a filter, by a join or by IN."""
    j = Joined(s)
    (one,) = s.filters(j.parent, 1)
    parents = noun_phrase(j.parent.nouns, [one])
    noun = f"{j.child.nouns} {j.ref.words} {parents}"
    if s.rng.random() < 0.35:
        words, columns = s.projection(j.child)
        inner = f"SELECT {s.key(j.parent)} FROM {s.tab(j.parent)} WHERE {s.where(j.parent, [one])}"
        sql = f"SELECT {columns} FROM {s.tab(j.child)} WHERE {s.col(j.child, j.ref.column)} IN ({inner})"
        return s.ask("the {c} of {n}", "the {c} of all {n}", c=words, n=noun), sql
    where = s.where(j.parent, [one], j.p)
    if s.rng.random() < 0.35:
        column = s.some(j.child, is_number)
        function, word = function_for(s, column)
        question = s.ask("the {w} {c} of {n}", leads=ONE_LEADS, w=word, c=column.label, n=noun)
        return question, f"SELECT {function}({j.c}.{s.col(j.child, column)}) FROM {j.tables} WHERE {where}"
    words, columns = s.projection(j.child, j.c)
    return s.ask("the {c} of {n}", "{c} of all {n}", c=words, n=noun), f"SELECT {columns} FROM {j.tables} WHERE {where}"


def parents_by_child_filter(s: Scene) -> Pair:
    """Parents with some child that passes a filter: DISTINCT, IN or EXISTS."""
    j = Joined(s)
    (one,) = s.filters(j.child, 1)
    noun = f"{j.parent.nouns} {s.rng.choice(['with', 'that have'])} {noun_phrase(j.child.nouns, [one])}"
    question = s.ask("the {c} of {n}", "the distinct {c} of {n}", "the {c} of all {n}", c=several(j.called), n=noun)
    kind, name = s.rng.choice(["distinct", "in", "exists"]), s.name(j.parent)
    if kind == "distinct":
        return question, f"SELECT DISTINCT {j.name} FROM {j.tables} WHERE {s.where(j.child, [one], j.c)}"
    if kind == "in":
        inner = f"SELECT {s.col(j.child, j.ref.column)} FROM {s.tab(j.child)} WHERE {s.where(j.child, [one])}"
        return question, f"SELECT {name} FROM {s.tab(j.parent)} WHERE {s.key(j.parent)} IN ({inner})"
    (parent_as, _), (child_as, _) = s.aliases(j.parent, j.child)
    inner = f"SELECT 1 FROM {child_as} WHERE {j.foreign} = {j.key} AND {s.where(j.child, [one], j.c)}"
    return question, f"SELECT {j.name} FROM {parent_as} WHERE EXISTS ({inner})"


def count_per_parent(s: Scene) -> Pair:
    """The number of children of each parent, with or without those that have none."""
    outer = s.rng.random() < 0.5
    j = Joined(s, "LEFT JOIN" if outer else "JOIN")
    tail = s.rng.choice(
        [", including {p} without any", ", also for {p} that have none", ", with 0 for {p} without {n}"]
    )
    question = s.ask("each {e}'s {l} and number of {n}{t}", "the number of {n} for each {e} {l}{t}",
                     "the {l} of every {e} and how many {n} there are for each{t}", "the number of {n} per {e}{t}",
                     e=j.parent.singular, l=j.called, n=j.child.nouns,
                     t=tail.format(p=j.parent.nouns, n=j.child.nouns) if outer else "")  # fmt: skip
    counted = j.foreign if outer else "*"
    return question, f"SELECT {j.name}, COUNT({counted}) FROM {j.tables} {j.group}"


def figure_per_parent(s: Scene) -> Pair:
    """An aggregate of the children of each parent, at times sorted."""
    j = Joined(s)
    column = s.some(j.child, is_number)
    function, word = function_for(s, column)
    sql = f"{function}({j.c}.{s.col(j.child, column)})"
    order, words = s.rng.choice(
        [("", ""), (f" ORDER BY {sql} DESC", ", highest first"), (f" ORDER BY {sql}", ", lowest first")]
    )
    question = s.ask("the {w} {c} of {n} for each {e}{o}", "each {e}'s {l} with the {w} {c} of their {n}{o}",
                     "the {w} {n} {c} per {e} {l}{o}".replace("{n} {c}", "{c} of {n}"), w=word, c=column.label,
                     n=j.child.nouns, e=j.parent.singular, l=j.called, o=words)  # fmt: skip
    return question, f"SELECT {j.name}, {sql} FROM {j.tables} {j.group}{order}"


def childless(s: Scene) -> Pair:
    """Parents without children, or without children that pass a filter."""
    j = Joined(s, "LEFT JOIN")
    filters = s.filters(j.child, s.rng.choice([0, 0, 1]))
    noun = noun_phrase(j.child.nouns, filters)
    words, columns = s.projection(j.parent)
    question = s.ask("the {c} of {p} {w}", "the {c} of all {p} {w}", c=words, p=j.parent.nouns,
                     w=s.rng.choice(["without any {n}", "that have no {n}", "with no {n}", "that do not have any {n}"])
                     .format(n=noun))  # fmt: skip
    (parent_as, p), (child_as, c) = s.aliases(j.parent, j.child)
    kind = s.rng.choice(["left", "not in", "not exists"]) if not filters else s.rng.choice(["not in", "not exists"])
    if kind == "left":
        columns = ", ".join(f"{p}.{name}" for name in columns.split(", "))
        return question, f"SELECT {columns} FROM {j.tables} WHERE {j.foreign} IS NULL"
    if kind == "not in":
        if j.ref.column.nullable:
            raise SkipFormError
        where = f" WHERE {s.where(j.child, filters)}" if filters else ""
        inner = f"SELECT {s.col(j.child, j.ref.column)} FROM {s.tab(j.child)}{where}"
        return question, f"SELECT {columns} FROM {s.tab(j.parent)} WHERE {s.key(j.parent)} NOT IN ({inner})"
    also = f" AND {s.where(j.child, filters, c)}" if filters else ""
    columns = ", ".join(f"{p}.{name}" for name in columns.split(", "))
    inner = f"SELECT 1 FROM {child_as} WHERE {j.foreign} = {j.key}{also}"
    return question, f"SELECT {columns} FROM {parent_as} WHERE NOT EXISTS ({inner})"


def parents_having(s: Scene) -> Pair:
    """Parents whose number of children, or whose figure over them, passes a limit."""
    j = Joined(s)
    if s.rng.random() < 0.6:
        filters = s.filters(j.child, s.rng.choice([0, 0, 1]))
        limit = 2 if filters else s.rng.randint(2, 5)
        how, sign = s.rng.choice([("more than", ">"), ("more than", ">"), ("at least", ">="), ("exactly", "=")])
        tail, test = (
            f"{how} {number_word(s.rng, limit)} {noun_phrase(j.child.nouns, filters)}",
            f"COUNT(*) {sign} {limit}",
        )
    else:
        filters, column = [], s.some(j.child, is_number)
        limit_value = pick_values(column, s.values(j.child, column), s.rng)[0]
        function, word = s.rng.choice([("AVG", "average"), ("MAX", "maximum"), ("MIN", "minimum")])
        how, sign = s.rng.choice([("above", ">"), ("below", "<")])
        tail = f"{j.child.nouns} whose {word} {column.label} is {how} {limit_value}"
        test = f"{function}({j.c}.{s.col(j.child, column)}) {sign} {limit_value}"
    where = f" WHERE {s.where(j.child, filters, j.c)}" if filters else ""
    question = s.ask("the {l} of {p} with {t}", "the {l} of {p} that have {t}", "the {l} of all {p} having {t}",
                     l=several(j.called), p=j.parent.nouns, t=tail)  # fmt: skip
    return question, f"SELECT {j.name} FROM {j.tables}{where} {j.group} HAVING {test}"


def top_parent(s: Scene) -> Pair:
    """The parent or parents with the most children or the highest figure."""
    j = Joined(s)
    count = s.rng.choice([1, 1, 1, 2, 3])
    if s.rng.random() < 0.5:
        what, sql = f"the most {j.child.nouns}", "COUNT(*)"
    else:
        column = s.some(j.child, is_number)
        added = column.label.split()[-1] not in NOT_ADDED
        function, word = s.rng.choice([("AVG", "average"), ("SUM", "total") if added else ("AVG", "average")])
        what = s.rng.choice(["the highest {w} {c} of {n}", "the largest {w} {c} over their {n}"])
        what = what.format(w=word, c=column.label, n=j.child.nouns)
        sql = f"{function}({j.c}.{s.col(j.child, column)})"
    if count == 1:
        question = s.say("Which {e} has {w}?", "What is the {l} of the {e} with {w}?", "Name the {e} with {w}.",
                         "Find the {l} of the {e} that has {w}.", e=j.parent.singular, l=j.called, w=what)  # fmt: skip
    else:
        question = s.say("Which {k} {p} have {w}?", "Name the {k} {p} with {w}.",
                         "Find the {l} of the {k} {p} with {w}.",
                         k=number_word(s.rng, count), p=j.parent.nouns, l=several(j.called), w=what)  # fmt: skip
    return question, f"SELECT {j.name} FROM {j.tables} {j.group} ORDER BY {sql} DESC LIMIT {count}"


def by_parent_category(s: Scene) -> Pair:
    """A figure over the children for each category of their parents."""
    j = Joined(s)
    by = s.some(j.parent, is_category)
    name = f"{j.p}.{s.col(j.parent, by)}"
    if s.rng.random() < 0.45:
        what, sql = f"the number of {j.child.nouns}", "COUNT(*)"
    else:
        column = s.some(j.child, is_number)
        function, word = function_for(s, column)
        what, sql = f"the {word} {column.label} of {j.child.nouns}", f"{function}({j.c}.{s.col(j.child, column)})"
    question = s.ask("{w} for each {e} {b}", "{w} per {b} of the {e}", "{w} grouped by {e} {b}",
                     "{w} by the {b} of the {e}",
                     w=what, e=j.parent.singular, b=by.label)  # fmt: skip
    return question, f"SELECT {name}, {sql} FROM {j.tables} GROUP BY {name}"


def both_kinds(s: Scene) -> Pair:
    """Parents that have children of two kinds, or of the one but not the other."""
    j = Joined(s)
    column = s.some(j.child, lambda c: c.kind in ("of", "adj", "city", "country"))
    first, second = pick_values(column, s.values(j.child, column), s.rng)[:2]
    both = s.rng.random() < 0.5
    words = "both {n} with {c} {a} and {n} with {c} {b}" if both else "{n} with {c} {a} but none with {c} {b}"
    words = words.format(n=j.child.nouns, c=column.label, a=first, b=second)
    question = s.ask(
        "the {l} of {p} that have {w}", "the {l} of all {p} with {w}", l=several(j.called), p=j.parent.nouns, w=words
    )
    name = f"{j.c}.{s.col(j.child, column)}"
    parts = [f"SELECT {j.name} FROM {j.tables} WHERE {name} = '{value}'" for value in (first, second)]
    return question, f" {'INTERSECT' if both else 'EXCEPT'} ".join(parts)


FORMS = (
    children_with_parent, children_of, children_of, children_by_parent_filter, parents_by_child_filter,
    count_per_parent,
    figure_per_parent, childless, parents_having, top_parent, by_parent_category, both_kinds,
)  # fmt: skip

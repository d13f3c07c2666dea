"""Question forms over two or three linked tables; each returns a question and its SQL, or raises SkipFormError."""
# ruff: noqa: S608 - queries are what these functions write; their parts are names of our own

from __future__ import annotations

from datagen.common.filters import noun_phrase
from datagen.common.wording import NOT_ADDED, ONE_LEADS, number_word, pick_values, several
from datagen.sql.domains import Table
from datagen.sql.scene import Scene, SkipFormError
from datagen.sql.single_forms import Pair, function_for, is_category, is_number


class Joined:
    """A child and its parent as they stand in one FROM clause."""

    def __init__(self, s: Scene, how: str = "JOIN") -> None:
        """Draw the link; an outer join keeps the parents."""
        self.child, self.ref, self.parent = s.link()
        self.p, self.c = s.tab(self.parent), s.tab(self.child)
        self.foreign = f"{self.c}.{self.ref.column.name}"
        self.tables = f"{self.p} {how} {self.c} ON {self.p}.{self.parent.key} = {self.foreign}"
        self.name = f"{self.p}.{self.parent.columns[0].name}"
        self.group = f"GROUP BY {self.p}.{self.parent.key}"
        self.called = self.parent.columns[0].label


def a_name(s: Scene, table: Table) -> str:
    """The name of a random row."""
    return str(pick_values(table.columns[0], s.values(table, table.columns[0]), s.rng)[0])


def children_with_parent(s: Scene) -> Pair:
    """Columns of the child beside the parent's name."""
    j = Joined(s)
    filters = s.filters(j.child, s.rng.randint(0, 1))
    words, columns = s.projection(j.child, qualified=True)
    where = f" WHERE {s.where(filters, j.c)}" if filters else ""
    question = s.ask("the {c} of {n} together with the {p} {l}",
                     c=words, n=noun_phrase(j.child.nouns, filters), p=j.parent.singular, l=j.called)  # fmt: skip
    return question, f"SELECT {columns}, {j.name} FROM {j.tables}{where}"


def of_children(s: Scene, j: Joined, noun: str, where: str) -> Pair:
    """Columns, a count or a figure of the children that `where` picks."""
    kind = s.rng.random()
    if kind < 0.4:
        words, columns = s.projection(j.child, qualified=True)
        question = s.ask("the {c} of {n}", "the {c} of all {n}", c=words, n=noun)
        return question, f"SELECT {columns} FROM {j.tables} WHERE {where}"
    if kind < 0.65:
        question = s.info("How many {n} are there?", "Count the {n}.", n=noun)
        return question, f"SELECT COUNT(*) FROM {j.tables} WHERE {where}"
    column = s.some(j.child, is_number)
    function, word = function_for(s, column)
    question = s.ask("the {w} {c} of {n}", leads=ONE_LEADS, w=word, c=column.label, n=noun)
    return question, f"SELECT {function}({j.c}.{column.name}) FROM {j.tables} WHERE {where}"


def children_of(s: Scene) -> Pair:
    """The children of one named parent."""
    j = Joined(s)
    name = a_name(s, j.parent)
    noun = f"{j.child.nouns} {j.ref.words} the {j.parent.singular} {s.rng.choice([name, repr(name)])}"
    return of_children(s, j, noun, f"{j.name} = '{name}'")


def children_by_parent_filter(s: Scene) -> Pair:
    """The children whose parent passes a filter."""
    j = Joined(s)
    (one,) = s.filters(j.parent, 1, but=j.parent.columns[:1])
    noun = f"{j.child.nouns} {j.ref.words} {noun_phrase(j.parent.nouns, [one])}"
    return of_children(s, j, noun, s.where([one], j.p))


def parents_by_child_filter(s: Scene) -> Pair:
    """Parents with some child that passes a filter."""
    j = Joined(s)
    (one,) = s.filters(j.child, 1)
    noun = f"{j.parent.nouns} with {noun_phrase(j.child.nouns, [one])}"
    question = s.ask("the distinct {c} of {n}", "the different {c} of {n}", c=several(j.called), n=noun)
    return question, f"SELECT DISTINCT {j.name} FROM {j.tables} WHERE {s.where([one], j.c)}"


def count_per_parent(s: Scene) -> Pair:
    """The number of children of each parent, with or without those that have none."""
    outer = s.rng.random() < 0.5
    j = Joined(s, "LEFT JOIN" if outer else "JOIN")
    tail = f", including {j.parent.nouns} without any" if outer else ""
    question = s.ask("the {l} of each {e} and the number of {n}{t}", "each {e}'s {l} and number of {n}{t}",
                     e=j.parent.singular, l=j.called, n=j.child.nouns, t=tail)  # fmt: skip
    return question, f"SELECT {j.name}, COUNT({j.foreign if outer else '*'}) FROM {j.tables} {j.group}"


def figure_per_parent(s: Scene) -> Pair:
    """An aggregate of the children of each parent, at times sorted."""
    j = Joined(s)
    column = s.some(j.child, is_number)
    function, word = function_for(s, column)
    sql = f"{function}({j.c}.{column.name})"
    order, words = s.rng.choice(
        [("", ""), (f" ORDER BY {sql} DESC", ", highest first"), (f" ORDER BY {sql}", ", lowest first")]
    )
    question = s.ask("the {l} of each {e} and the {w} {c} of its {n}{o}", "each {e}'s {l} and {w} {c} of {n}{o}",
                     w=word, c=column.label, n=j.child.nouns, e=j.parent.singular, l=j.called, o=words)  # fmt: skip
    return question, f"SELECT {j.name}, {sql} FROM {j.tables} {j.group}{order}"


def parents_having(s: Scene) -> Pair:
    """Parents whose number of children, or whose figure over them, passes a limit."""
    j = Joined(s)
    filters = []
    if s.rng.random() < 0.5:
        filters = s.filters(j.child, s.rng.choice([0, 1]))
        limit = 2 if filters else s.rng.randint(2, 5)
        how, sign = s.rng.choice([("more than", ">"), ("at least", ">="), ("exactly", "=")])
        tail = f"{how} {number_word(s.rng, limit)} {noun_phrase(j.child.nouns, filters)}"
        test = f"COUNT(*) {sign} {limit}"
    else:
        column = s.some(j.child, is_number)
        limit_value = pick_values(column, s.values(j.child, column), s.rng)[0]
        function, word = s.rng.choice([("AVG", "average"), ("MAX", "maximum"), ("MIN", "minimum")])
        how, sign = s.rng.choice([("above", ">"), ("below", "<")])
        tail = f"{j.child.nouns} whose {word} {column.label} is {how} {limit_value}"
        test = f"{function}({j.c}.{column.name}) {sign} {limit_value}"
    where = f" WHERE {s.where(filters, j.c)}" if filters else ""
    question = s.ask("the {l} of {p} that have {t}", l=several(j.called), p=j.parent.nouns, t=tail)
    return question, f"SELECT {j.name} FROM {j.tables}{where} {j.group} HAVING {test}"


def top_parent(s: Scene) -> Pair:
    """The parent or parents with the most children or the highest figure."""
    j = Joined(s)
    count = s.rng.choice([1, 1, 2, 3])
    if s.rng.random() < 0.5:
        what, sql = f"the most {j.child.nouns}", "COUNT(*)"
    else:
        column = s.some(j.child, is_number)
        added = column.label.split()[-1] not in NOT_ADDED
        function, word = s.rng.choice([("AVG", "average"), ("SUM", "total") if added else ("AVG", "average")])
        what, sql = f"the highest {word} {column.label} of {j.child.nouns}", f"{function}({j.c}.{column.name})"
    if count == 1:
        question = s.info("Which {e} has {w}?", "Name the {e} with {w}.", e=j.parent.singular, w=what)
    else:
        question = s.info("Which {k} {p} have {w}?", "Name the {k} {p} with {w}.",
                         k=number_word(s.rng, count), p=j.parent.nouns, w=what)  # fmt: skip
    return question, f"SELECT {j.name} FROM {j.tables} {j.group} ORDER BY {sql} DESC LIMIT {count}"


def filtered_top(s: Scene) -> Pair:
    """The parents with the most children that pass a filter, and the count."""
    j = Joined(s)
    (one,) = s.filters(j.child, 1)
    count = s.rng.randint(2, 5)
    question = s.info("Which {k} {p} have the most {n}, and how many do they have?",
                     "Name the {k} {p} with the most {n}, and how many they have.",
                     k=number_word(s.rng, count), p=j.parent.nouns, n=noun_phrase(j.child.nouns, [one]))  # fmt: skip
    picked = f"FROM {j.tables} WHERE {s.where([one], j.c)} {j.group}"
    return question, f"SELECT {j.name}, COUNT(*) {picked} ORDER BY COUNT(*) DESC LIMIT {count}"


def by_parent_category(s: Scene) -> Pair:
    """A figure over the children for each category of their parents."""
    j = Joined(s)
    by = s.some(j.parent, is_category)
    name = f"{j.p}.{by.name}"
    if s.rng.random() < 0.45:
        what, sql = f"the number of {j.child.nouns}", "COUNT(*)"
    else:
        column = s.some(j.child, is_number)
        function, word = function_for(s, column)
        what, sql = f"the {word} {column.label} of {j.child.nouns}", f"{function}({j.c}.{column.name})"
    question = s.ask("{w} for each {e} {b}", "for each {e} {b}, {w}", w=what, e=j.parent.singular, b=by.label)
    return question, f"SELECT {name}, {sql} FROM {j.tables} GROUP BY {name}"


def through(s: Scene) -> Pair:
    """One parent's rows that a named or filtered row of the other parent is linked to."""
    children = [table for table in s.domain.tables.values() if len({r.parent for r in table.references}) == 2]
    if not children:
        raise SkipFormError
    child = s.rng.choice(children)
    near, far = s.rng.sample(child.references, 2)
    one, other = s.domain.tables[near.parent], s.domain.tables[far.parent]
    c = s.tab(child)
    tables = (f"{s.tab(one)} JOIN {c} ON {one.name}.{one.key} = {c}.{near.column.name}"
              f" JOIN {s.tab(other)} ON {other.name}.{other.key} = {c}.{far.column.name}")  # fmt: skip
    if s.rng.random() < 0.4:
        name = a_name(s, other)
        tail, where = f"the {other.singular} {name}", f"{other.name}.{other.columns[0].name} = '{name}'"
    else:
        (f,) = s.filters(other, 1, but=other.columns[:1])
        tail, where = noun_phrase(other.nouns, [f]), s.where([f], other.name)
    question = s.ask("the distinct {l} of {o} with {n} {w} {t}", "the different {l} of {o} with {n} {w} {t}",
                     l=several(one.columns[0].label), o=one.nouns, n=child.nouns, w=far.words, t=tail)  # fmt: skip
    return question, f"SELECT DISTINCT {one.name}.{one.columns[0].name} FROM {tables} WHERE {where}"


FORMS = (
    children_with_parent, children_of, children_of, children_by_parent_filter, children_by_parent_filter,
    parents_by_child_filter, count_per_parent, figure_per_parent, parents_having, top_parent, filtered_top,
    by_parent_category, through,
)  # fmt: skip

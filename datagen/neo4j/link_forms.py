"""Question forms over one relationship type; each returns a question and its Cypher, or raises SkipFormError."""

from __future__ import annotations

from datagen.common.domain_columns import Column
from datagen.common.filters import noun_phrase
from datagen.common.wording import ONE_LEADS, number_word, several
from datagen.neo4j.domains import Relationship
from datagen.neo4j.node_forms import Pair, function_for, is_number
from datagen.neo4j.scene import GraphScene, SkipFormError


class Hop:
    """A relationship seen from one of its ends: the near label is the one asked about."""

    def __init__(self, s: GraphScene, link: Relationship | None = None, near: str = "") -> None:
        """Draw the relationship and the end, unless they are given."""
        self.s = s
        self.link = link or s.link()
        start, end = s.ends(self.link)
        self.forward = s.rng.random() < 0.5 if not near or start is end else near == start.name
        self.near, self.far = (start, end) if self.forward else (end, start)
        self.words, self.back = self.link.words, self.link.back
        if not self.forward:
            self.words, self.back = self.back, self.words
        self.n, self.f = s.var(self.near, self.far)

    def path(self, near: str, far: str, variable: str = "") -> str:
        """The pattern from the near node to the far one."""
        arrow = self.s.arrow(self.link, variable)
        return f"{near}-{arrow}->{far}" if self.forward else f"{near}<-{arrow}-{far}"

    def node(self, named: str = "") -> str:
        """The near node."""
        return self.s.node(self.near, self.n, named)

    def other(self, named: str = "", variable: str | None = None) -> str:
        """The far node, without a variable where none is given for it."""
        return self.s.node(self.far, self.f if variable is None else variable, named)

    def named(self, name: str) -> str:
        """`movies featuring the person Ada Berg`."""
        return f"{self.near.plural} {self.words} {self.s.rng.choice([f'the {self.far.singular} {name}', name])}"

    @property
    def own(self) -> str:
        """The name property of the near node."""
        return self.s.prop(self.near, self.n)

    @property
    def called(self) -> str:
        """The label of that property."""
        return self.near.columns[0].label


def of_named(s: GraphScene) -> Pair:
    """Nodes linked to a named one: their properties or their number."""
    h = Hop(s)
    name = s.name_of(h.far)
    noun, match = h.named(name), f"MATCH {h.path(h.node(), h.other(name, ''))}"
    kind = s.rng.random()
    if kind < 0.35:
        return s.info("How many {n} are there?", "Count the {n}.", n=noun), f"{match} RETURN count({h.n})"
    if kind < 0.55:
        return s.info("Name the {n}.", n=noun), f"{match} RETURN {h.own}"
    words, items = s.projection(h.near, h.n)
    return s.ask("the {c} of {n}", "the {c} of all {n}", c=words, n=noun), f"{match} RETURN {items}"


def by_far_filter(s: GraphScene) -> Pair:
    """Nodes linked to some node that passes a filter."""
    h = Hop(s)
    (one,) = s.filters(h.far, 1)
    noun = f"{h.near.plural} {h.words} {noun_phrase(h.far.plural, [one])}"
    match = f"MATCH {h.path(h.node(), h.other())}{s.where(h.far, h.f, [one])}"
    if s.rng.random() < 0.3:
        question = s.info("How many different {n} are there?", "Count the distinct {n}.", n=noun)
        return question, f"{match} RETURN count(DISTINCT {h.n})"
    question = s.ask("the different {c} of {n}", "the distinct {c} of {n}", c=several(h.called), n=noun)
    return question, f"{match} RETURN DISTINCT {h.own}"


def pairs(s: GraphScene) -> Pair:
    """Both ends of every relationship whose near node passes a filter."""
    h = Hop(s)
    (one,) = s.filters(h.near, 1)
    question = s.ask("the {c} of {n}, each with the {d} of the {f} {b} that {e}",
                     n=noun_phrase(h.near.plural, [one]), c=several(h.called), d=several(h.far.columns[0].label),
                     f=h.far.plural, b=h.back, e=h.near.singular)  # fmt: skip
    match = f"MATCH {h.path(h.node(), h.other())}{s.where(h.near, h.n, [one])}"
    return question, f"{match} RETURN {h.own}, {s.prop(h.far, h.f)}"


def degree(s: GraphScene) -> Pair:
    """How many nodes each node is linked to, with or without those that have none."""
    h = Hop(s)
    outer = s.rng.random() < 0.5
    noun = f"{h.far.plural} {h.back} each {h.near.singular}{', including those without any' if outer else ''}"
    question = s.ask("the number of {n}", n=noun)
    if not outer:
        return question, f"MATCH {h.path(h.node(), h.other())} RETURN {h.own}, count({h.f})"
    return question, f"MATCH {h.node()} OPTIONAL MATCH {h.path(f'({h.n})', h.other())} RETURN {h.own}, count({h.f})"


def top_degree(s: GraphScene) -> Pair:
    """The nodes with the most links, perhaps only to nodes that pass a filter."""
    h = Hop(s)
    filters = s.filters(h.far, s.rng.choice([0, 1]))
    count = s.rng.choice([1, 1, 2, 3, 5])
    slots = {"w": h.words, "n": noun_phrase(h.far.plural, filters)}
    if count == 1:
        question = s.info("Find the {e} {w} the most {n}, with the number.", e=h.near.singular, **slots)
    else:
        question = s.info("Find the {k} {e} {w} the most {n}, with the number.", k=number_word(s.rng, count),
                         e=h.near.plural, **slots)  # fmt: skip
    match = f"MATCH {h.path(h.node(), h.other())}{s.where(h.far, h.f, filters)}"
    return question, f"{match} RETURN {h.own}, count({h.f}) AS value ORDER BY value DESC LIMIT {count}"


def degree_limit(s: GraphScene) -> Pair:
    """Nodes with enough links."""
    h = Hop(s)
    filters = s.filters(h.far, s.rng.choice([0, 1]))
    how, sign = s.rng.choice([("more than", ">"), ("at least", ">="), ("exactly", "=")])
    limit = s.rng.randint(2, 4)
    question = s.ask("the {c} of {m} {w} {h} {k} {n}", c=several(h.called), m=h.near.plural,
                     w=h.words, h=how, k=number_word(s.rng, limit), n=noun_phrase(h.far.plural, filters))  # fmt: skip
    match = f"MATCH {h.path(h.node(), h.other())}{s.where(h.far, h.f, filters)}"
    return question, f"{match} WITH {h.n}, count({h.f}) AS total WHERE total {sign} {limit} RETURN {h.own}"


def unlinked(s: GraphScene) -> Pair:
    """Nodes without a link, or without one to a named node or one that passes a filter."""
    h = Hop(s)
    kind = s.rng.choice(["any", "named", "filter", "filter"])
    far, where, tail = h.other(variable=""), "", f"any {h.far.singular}"
    if kind == "named":
        name = s.name_of(h.far)
        far, tail = h.other(name, ""), f"the {h.far.singular} {name}"
    elif kind == "filter":
        (one,) = s.filters(h.far, 1)
        far, where, tail = h.other(), s.where(h.far, h.f, [one]), noun_phrase(h.far.plural, [one])
    question = s.ask("the {c} of all {n} except those {w} {t}", c=several(h.called), n=h.near.plural, w=h.words, t=tail)
    inner = h.path(f"({h.n})", far)
    return question, f"MATCH {h.node()} WHERE NOT EXISTS {{ MATCH {inner}{where} }} RETURN {h.own}"


def collected(s: GraphScene) -> Pair:
    """For each node the list of names it is linked to."""
    h = Hop(s)
    filters = s.filters(h.near, s.rng.choice([0, 1]))
    question = s.ask("the {c} of {n}, each with a list of the {f} {b} that {e}",
                     n=noun_phrase(h.near.plural, filters), f=h.far.plural, b=h.back, c=several(h.called),
                     e=h.near.singular)  # fmt: skip
    match = f"MATCH {h.path(h.node(), h.other())}{s.where(h.near, h.n, filters)}"
    return question, f"{match} RETURN {h.own}, collect({s.prop(h.far, h.f)})"


def far_figure(s: GraphScene) -> Pair:
    """A figure over the nodes linked to a named node, or for each node."""
    h = Hop(s)
    column = s.some(h.near.columns, is_number)
    function, word = function_for(s, column)
    value = f"{function}({s.prop(h.near, h.n, column)})"
    if s.rng.random() < 0.5:
        name = s.name_of(h.far)
        question = s.ask("the {w} {c} of {n}", leads=ONE_LEADS, w=word, c=column.label, n=h.named(name))
        return question, f"MATCH {h.path(h.node(), h.other(name, ''))} RETURN {value}"
    question = s.ask("the {w} {c} of {n} {o} each {f}", f=h.far.singular, w=word, c=column.label, n=h.near.plural,
                     o=h.words)  # fmt: skip
    return question, f"MATCH {h.path(h.node(), h.other())} RETURN {s.prop(h.far, h.f)}, {value}"


def by_link_filter(s: GraphScene) -> Pair:
    """Pairs whose relationship passes a filter."""
    h = Hop(s, s.link(lambda link: bool(link.columns) and link.start != link.end))
    one = s.link_filter(h.link)
    behind = f"where the {one.column.label} is {one.phrase}" if one.before else one.phrase
    question = s.ask("the {n} and {f} joined by {t} {b}", t=h.link.type, b=behind, n=h.near.plural, f=h.far.plural)
    test = s.test(one, f"r.{one.column.name}")
    return question, f"MATCH {h.path(h.node(), h.other(), 'r')} WHERE {test} RETURN {h.own}, {s.prop(h.far, h.f)}"


def link_values(s: GraphScene) -> Pair:
    """The relationship's property for one named node, at times ordered."""
    h = Hop(s, s.link(lambda link: bool(link.columns)))
    column: Column = s.rng.choice(h.link.columns)
    name, value = s.name_of(h.far), f"r.{column.name}"
    order, tail = "", ""
    if column.is_number and s.rng.random() < 0.5:
        order, tail = f" ORDER BY {value} DESC", f", highest {column.label} first"
    question = s.ask("the {c} of {n} and the {p} of {t}{o}",
                     c=several(h.called), n=h.named(name), p=column.label, t=h.link.type, o=tail)  # fmt: skip
    return question, f"MATCH {h.path(h.node(), h.other(name, ''), 'r')} RETURN {h.own}, {value}{order}"


def link_figure(s: GraphScene) -> Pair:
    """A figure over a relationship's property, in all or for each node."""
    h = Hop(s, s.link(lambda link: any(c.is_number for c in link.columns)))
    column = s.some(h.link.columns, is_number)
    function, word = function_for(s, column)
    value = f"{function}(r.{column.name})"
    slots = {"w": word, "c": column.label, "t": h.link.type, "e": h.near.singular, "f": h.far.plural, "b": h.back}
    if s.rng.random() < 0.3:
        question = s.ask("the {w} {c} of all {t} relationships", leads=ONE_LEADS, **slots)
        return question, f"MATCH (:{h.link.start})-{s.arrow(h.link, 'r')}->(:{h.link.end}) RETURN {value}"
    question = s.ask("the {w} {c} of {t} over the {f} {b} each {e}", **slots)
    return question, f"MATCH {h.path(h.node(), h.other(variable=''), 'r')} RETURN {h.own}, {value}"


def by_far_category(s: GraphScene) -> Pair:
    """How many links there are for each category of the far nodes."""
    h = Hop(s, s.link(lambda link: link.start != link.end))
    by = s.some(h.far.columns, lambda c: c.is_category and not c.nullable)
    question = s.ask("the number of distinct {n} {w} {f} for each {e} {b}",
                     n=h.near.plural, w=h.words, f=h.far.plural, b=by.label, e=h.far.singular)  # fmt: skip
    return question, f"MATCH {h.path(h.node(), h.other())} RETURN {s.prop(h.far, h.f, by)}, count(DISTINCT {h.n})"


def linked_to_two(s: GraphScene) -> Pair:
    """Nodes linked to two named nodes, or to the first but not the second."""
    h = Hop(s)
    one, two = s.name_of(h.far), s.name_of(h.far)
    if one == two:
        raise SkipFormError
    both = s.rng.random() < 0.5
    words = "the {c} of {n} {w} both {a} and {b}" if both else "the {c} of {n} {w} {a} but not among those {w} {b}"
    question = s.ask(words, c=several(h.called), n=h.near.plural, w=h.words, a=one, b=two)
    first = f"MATCH {h.path(h.node(), h.other(one, ''))}"
    again = h.path(f"({h.n})", h.other(two, ""))
    return question, f"{first}{f' MATCH {again}' if both else f' WHERE NOT EXISTS {{ MATCH {again} }}'} RETURN {h.own}"


FORMS = (
    of_named, of_named, by_far_filter, by_far_filter, pairs, degree, top_degree, degree_limit, degree_limit, unlinked,
    unlinked, collected, far_figure, by_link_filter, link_values, link_figure, by_far_category, linked_to_two,
)  # fmt: skip

"""Question forms over the nodes of one label; each returns a question and its Cypher, or raises SkipFormError."""

from __future__ import annotations

from datagen.common.domain_columns import Column
from datagen.common.filters import noun_phrase
from datagen.common.wording import AGGREGATES, LIST_LEADS, NOT_ADDED, ONE_LEADS, number_word, ranked, several
from datagen.neo4j.domains import Label
from datagen.neo4j.scene import GraphScene, SkipFormError

Pair = tuple[str, str]


def is_number(column: Column) -> bool:
    """Whether averages make sense."""
    return column.is_number


def is_ordered(column: Column) -> bool:
    """Whether nodes may be ranked by it."""
    return column.kind in ("int", "real", "date") and not column.nullable


def function_for(s: GraphScene, column: Column) -> tuple[str, str]:
    """An aggregate function that suits the property, and its word."""
    names = [name for name in AGGREGATES if name != "SUM" or column.label.split()[-1] not in NOT_ADDED]
    name = s.rng.choice(names)
    return name.lower(), s.rng.choice(AGGREGATES[name])


def subject(s: GraphScene, label: Label, v: str, low: int, high: int) -> tuple[str, str]:
    """A noun phrase for nodes of the label and the WHERE clause that picks them."""
    filters = s.filters(label, s.rng.randint(low, high))
    joiner = "or" if len(filters) > 1 and s.rng.random() < 0.2 else "and"
    return noun_phrase(label.plural, filters, joiner), s.where(label, v, filters, joiner.upper())


def listing(s: GraphScene) -> Pair:
    """Properties of the nodes that pass the filters."""
    label = s.any_label()
    (v,) = s.var(label)
    noun, where = subject(s, label, v, 1, 2)
    words, items = s.projection(label, v)
    question = s.ask("the {c} of {n}", "the {c} of all {n}", c=words, n=noun)
    return question, f"MATCH {s.node(label, v)}{where} RETURN {items}"


def named_nodes(s: GraphScene) -> Pair:
    """The names of the nodes that pass the filters, asked without naming the property."""
    label = s.any_label()
    (v,) = s.var(label)
    noun, where = subject(s, label, v, 1, 2)
    who = "Who are the {n}?" if label.columns[0].kind == "person" else "Which {n} are there?"
    return s.info(who, "Name the {n}.", n=noun), f"MATCH {s.node(label, v)}{where} RETURN {s.prop(label, v)}"


def sorted_listing(s: GraphScene) -> Pair:
    """All or some nodes in an order."""
    label = s.any_label()
    (v,) = s.var(label)
    noun, where = subject(s, label, v, 0, 1)
    by = s.some(label.columns, lambda c: is_ordered(c) or c is label.columns[0])
    down = s.rng.random() < 0.5
    way = f"in {'de' if down else 'a'}scending order"
    if by.kind == "date" or by.is_year:
        way = "latest first" if down else "earliest first"
    elif not is_ordered(by):
        way = "in reverse alphabetical order" if down else "alphabetically"
    name = s.prop(label, v, by)
    words, items = several(label.columns[0].label), s.prop(label, v)
    if by is not label.columns[0]:
        words, items = f"{words} and {several(by.label)}", f"{items}, {name}"
    question = s.ask("the {c} of {n}, sorted by {b} {w}", "the {c} of all {n}, sorted by {b} {w}",
                     c=words, n=noun, b=by.label, w=way)  # fmt: skip
    return question, f"MATCH {s.node(label, v)}{where} RETURN {items} ORDER BY {name}{' DESC' if down else ''}"


def counting(s: GraphScene) -> Pair:
    """How many nodes pass the filters."""
    label = s.any_label()
    (v,) = s.var(label)
    noun, where = subject(s, label, v, 1, 2)
    question = s.info("How many {n} are there?", "Count the {n}.", "What is the number of {n}?", n=noun)
    return question, f"MATCH {s.node(label, v)}{where} RETURN count({v})"


def distinct(s: GraphScene) -> Pair:
    """The different values of a category, or how many there are."""
    label = s.any_label()
    (v,) = s.var(label)
    column = s.some(label.columns, lambda c: c.is_category and not c.nullable)
    filters = s.filters(label, s.rng.randint(0, 1), but=[column])
    noun, match = noun_phrase(label.plural, filters), f"MATCH {s.node(label, v)}{s.where(label, v, filters)}"
    name = s.prop(label, v, column)
    if s.rng.random() < 0.4:
        question = s.info("How many different {c} do {n} have?", "Count the distinct {c} of {n}.",
                         c=several(column.label), n=noun)  # fmt: skip
        return question, f"{match} RETURN count(DISTINCT {name})"
    question = s.ask("the different {c} of {n}", "the distinct {c} of {n}", c=several(column.label), n=noun)
    return question, f"{match} RETURN DISTINCT {name}"


def aggregate(s: GraphScene) -> Pair:
    """A figure over a numeric property."""
    label = s.any_label()
    (v,) = s.var(label)
    column = s.some(label.columns, is_number)
    filters = s.filters(label, s.rng.randint(0, 1), but=[column])
    name, noun = s.prop(label, v, column), noun_phrase(label.plural, filters)
    match = f"MATCH {s.node(label, v)}{s.where(label, v, filters)}"
    if s.rng.random() < 0.25:
        question = s.ask("the minimum and maximum {c} of {n}", c=column.label, n=noun)
        return question, f"{match} RETURN min({name}), max({name})"
    function, word = function_for(s, column)
    question = s.ask("the {w} {c} of {n}", "the {w} {c} of all {n}", leads=ONE_LEADS, w=word, c=column.label, n=noun)
    return question, f"{match} RETURN {function}({name})"


def top_nodes(s: GraphScene) -> Pair:
    """The first one or few nodes by a number or date."""
    label = s.any_label()
    (v,) = s.var(label)
    by = s.some(label.columns, is_ordered)
    most, count = s.rng.random() < 0.5, s.rng.choice([1, 1, 2, 3, 4, 5])
    tail = f"ORDER BY {s.prop(label, v, by)}{' DESC' if most else ''} LIMIT {count}"
    if count == 1:
        words, items = s.projection(label, v, plural=False)
        leads = LIST_LEADS if " and " in words else ONE_LEADS
        question = s.ask("the {c} of {t}", leads=leads, c=words, t=ranked(s.rng, by, most, label.singular))
        return question, f"MATCH {s.node(label, v)} RETURN {items} {tail}"
    filters = s.filters(label, s.rng.randint(0, 1), but=[by])
    words, items = s.projection(label, v)
    noun = noun_phrase(label.plural, filters)
    question = s.ask("the {c} of {t}", c=words, t=ranked(s.rng, by, most, noun, number_word(s.rng, count)))
    return question, f"MATCH {s.node(label, v)}{s.where(label, v, filters)} RETURN {items} {tail}"


def figure(s: GraphScene, label: Label, v: str) -> tuple[str, str]:
    """A count of nodes or an aggregate of a number, in words (`the mean age of people`) and in Cypher."""
    numbers = [column for column in label.columns if column.is_number]
    if not numbers or s.rng.random() < 0.4:
        return f"the number of {label.plural}", f"count({v})"
    column = s.rng.choice(numbers)
    function, word = function_for(s, column)
    return f"the {word} {column.label} of {label.plural}", f"{function}({s.prop(label, v, column)})"


def per_category(s: GraphScene) -> Pair:
    """A figure for each category, perhaps sorted."""
    label = s.any_label()
    (v,) = s.var(label)
    by = s.some(label.columns, lambda c: c.is_category and not c.nullable)
    what, value = figure(s, label, v)
    order, words = s.rng.choice([
        ("", ""), (" AS value ORDER BY value DESC", ", highest first"), (" AS value ORDER BY value", ", lowest first"),
    ])  # fmt: skip
    question = s.ask("{w} for each {b}{o}", "for each {b}, {w}{o}", w=what, b=by.label, o=words)
    return question, f"MATCH {s.node(label, v)} RETURN {s.prop(label, v, by)}, {value}{order}"


def common_category(s: GraphScene) -> Pair:
    """The categories with enough nodes."""
    label = s.any_label()
    (v,) = s.var(label)
    by = s.some(label.columns, lambda c: c.is_category and not c.nullable)
    filters = s.filters(label, s.rng.randint(0, 1), but=[by])
    how, sign = s.rng.choice([("more than", ">"), ("at least", ">="), ("fewer than", "<"), ("exactly", "=")])
    limit = s.rng.randint(2, 5)
    question = s.info("Which {b} have {h} {k} {n}?", "List the {b} with {h} {k} {n}.", b=several(by.label), h=how,
                     k=number_word(s.rng, limit), n=noun_phrase(label.plural, filters))  # fmt: skip
    match = f"MATCH {s.node(label, v)}{s.where(label, v, filters)}"
    grouped = f"{match} WITH {s.prop(label, v, by)} AS {by.name}, count({v}) AS total"
    return question, f"{grouped} WHERE total {sign} {limit} RETURN {by.name}"


def beyond_average(s: GraphScene) -> Pair:
    """Nodes beyond the average of a property, or those that share its extreme."""
    label = s.any_label()
    (v,) = s.var(label)
    column = s.some(label.columns, is_number)
    name, match = s.prop(label, v, column), f"MATCH {s.node(label, v)}"
    words, items = s.projection(label, v)
    above = s.rng.random() < 0.5
    if s.rng.random() < 0.6:
        question = s.ask("the {c} of {n} whose {p} is {s} the average {p}",
                         c=words, n=label.plural, p=column.label, s="above" if above else "below")  # fmt: skip
        first = f"{match} WITH avg({name}) AS average"
        return question, f"{first} {match} WHERE {name} {'>' if above else '<'} average RETURN {items}"
    question = s.ask("the {c} of all {n} that share the {w} {p}", "the {c} of all {n} tied for the {w} {p}",
                     c=words, n=label.plural, p=column.label, w="highest" if above else "lowest")  # fmt: skip
    first = f"{match} WITH {'max' if above else 'min'}({name}) AS extreme"
    return question, f"{first} {match} WHERE {name} = extreme RETURN {items}"


def two_named(s: GraphScene) -> Pair:
    """A property of nodes given by name."""
    label = s.any_label()
    (v,) = s.var(label)
    column = s.some(label.columns[1:], lambda c: not c.nullable and c.kind != "bool")
    name, first = s.prop(label, v, column), s.name_of(label)
    if s.rng.random() < 0.6:
        question = s.info("What is the {c} of the {e} {a}?", "Show the {c} of {a}.",
                         c=column.label, e=label.singular, a=first)  # fmt: skip
        return question, f"MATCH {s.node(label, v, first)} RETURN {name}"
    second = s.name_of(label)
    if second == first:
        raise SkipFormError
    own = s.prop(label, v)
    question = s.ask("the {f} and {c} of {a} and {b}", f=label.columns[0].label, c=column.label, a=first, b=second)
    return question, f"MATCH {s.node(label, v)} WHERE {own} IN ['{first}', '{second}'] RETURN {own}, {name}"


FORMS = (
    listing, listing, named_nodes, sorted_listing, counting, distinct, aggregate, top_nodes, top_nodes, per_category,
    common_category, common_category, beyond_average, beyond_average, two_named,
)  # fmt: skip

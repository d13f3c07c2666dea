"""Question forms over the nodes of one label; each returns a question and its Cypher, or raises SkipFormError."""

from __future__ import annotations

from domain_columns import Column
from filters import noun_phrase
from neo4j_domains import Label
from neo4j_scene import GraphScene, SkipFormError
from wording import AGGREGATES, LIST_LEADS, NOT_ADDED, ONE_LEADS, article, number_word, pick_values, ranked, several

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
    question = s.ask("the {c} of {n}", "the {c} of all {n}", "{c} of {n}", "the {c} of the {n}", c=words, n=noun)
    if s.rng.random() < 0.2:
        question = s.say("For {n}, return the {c}.", "Look up {n} and show their {c}.", c=words, n=noun)
    return question, f"MATCH {s.node(label, v)}{where} RETURN {items}"


def named_nodes(s: GraphScene) -> Pair:
    """The names of the nodes that pass the filters, asked without naming the property."""
    label = s.any_label()
    (v,) = s.var(label)
    noun, where = subject(s, label, v, 1, 2)
    who = "Who are the {n}?" if label.columns[0].kind == "person" else "Which are the {n}?"
    question = s.say(who, "Which {n} are there?", "Name the {n}.", "Name all {n}.", "Which {n} do we have?", n=noun)
    return question, f"MATCH {s.node(label, v)}{where} RETURN {s.returned(s.prop(label, v), label.columns[0].name)}"


def sorted_listing(s: GraphScene) -> Pair:
    """All or some nodes in an order."""
    label = s.any_label()
    (v,) = s.var(label)
    noun, where = subject(s, label, v, 0, 1)
    by = s.some(label.columns, lambda c: is_ordered(c) or c is label.columns[0])
    down = s.rng.random() < 0.5
    way = s.rng.choice(
        [("in descending order", "from high to low"), ("in ascending order", "from low to high")][not down]
    )
    if by.kind == "date" or by.is_year:
        way = "latest first" if down else "earliest first"
    if not is_ordered(by):
        way = "in reverse alphabetical order" if down else "alphabetically"
    name = s.prop(label, v, by)
    words, items = label.columns[0].label, s.prop(label, v)
    if by is not label.columns[0]:
        words, items = f"{words} and {by.label}", f"{items}, {name}"
    question = s.ask("the {c} of {n}, sorted by {b} {w}", "the {c} of all {n} ordered by {b} {w}",
                     c=words, n=noun, b=by.label, w=way)  # fmt: skip
    return question, f"MATCH {s.node(label, v)}{where} RETURN {items} ORDER BY {name}{' DESC' if down else ''}"


def counting(s: GraphScene) -> Pair:
    """How many nodes pass the filters."""
    label = s.any_label()
    (v,) = s.var(label)
    noun, where = subject(s, label, v, 1, 2)
    question = s.say("How many {n} are there?", "Count the {n}.", "What is the number of {n}?", "number of {n}",
                     "Find how many {n} there are.", "How many {n} does the graph hold?", n=noun)  # fmt: skip
    return question, f"MATCH {s.node(label, v)}{where} RETURN count({v}) AS total"


def distinct(s: GraphScene) -> Pair:
    """The different values of a category, or how many there are."""
    label = s.any_label()
    (v,) = s.var(label)
    column = s.some(label.columns, lambda c: c.is_category)
    name, plural = s.prop(label, v, column), several(column.label)
    if s.rng.random() < 0.4:
        question = s.say("How many different {c} do the {n} have?", "Count the distinct {c} of {n}.",
                         "number of unique {c} among {n}", c=plural, n=label.plural)  # fmt: skip
        return question, f"MATCH {s.node(label, v)} RETURN count(DISTINCT {name}) AS total"
    filters = s.filters(label, s.rng.randint(0, 1), but=[column])
    where = s.where(label, v, [*filters])
    if column.nullable:
        where += f"{' AND' if where else ' WHERE'} {name} IS NOT NULL"
    question = s.ask("the different {c} of {n}", "the distinct {c} of {n}", "all unique {c} among {n}",
                     c=plural, n=noun_phrase(label.plural, filters))  # fmt: skip
    return question, f"MATCH {s.node(label, v)}{where} RETURN DISTINCT {s.returned(name, column.name)}"


def aggregate(s: GraphScene) -> Pair:
    """A figure over a numeric property."""
    label = s.any_label()
    (v,) = s.var(label)
    column = s.some(label.columns, is_number)
    filters = s.filters(label, s.rng.randint(0, 1), but=[column])
    name, noun, where = s.prop(label, v, column), noun_phrase(label.plural, filters), s.where(label, v, filters)
    if s.rng.random() < 0.25:
        question = s.ask(
            "the lowest and the highest {c} of {n}", "the minimum and maximum {c} of {n}", c=column.label, n=noun
        )
        return question, f"MATCH {s.node(label, v)}{where} RETURN min({name}) AS lowest, max({name}) AS highest"
    function, word = function_for(s, column)
    question = s.ask("the {w} {c} of {n}", "the {w} {c} of all {n}", "the {w} {c} among {n}", leads=ONE_LEADS,
                     w=word, c=column.label, n=noun)  # fmt: skip
    return question, f"MATCH {s.node(label, v)}{where} RETURN {function}({name}) AS {function}_{column.name}"


def top_nodes(s: GraphScene) -> Pair:
    """The first one or few nodes by a number or date."""
    label = s.any_label()
    (v,) = s.var(label)
    by = s.some(label.columns, is_ordered)
    most, count = s.rng.random() < 0.6, s.rng.choice([1, 1, 2, 3, 4, 5])
    name = s.prop(label, v, by)
    tail = f"ORDER BY {name}{' DESC' if most else ''} LIMIT {count}"
    if count == 1:
        words, items = s.projection(label, v, plural=False)
        leads = LIST_LEADS if " and " in words else ONE_LEADS
        question = s.ask("the {c} of {t}", leads=leads, c=words, t=ranked(s.rng, by, most, label.singular))
        return question, f"MATCH {s.node(label, v)} RETURN {items} {tail}"
    filters = s.filters(label, s.rng.randint(0, 1), but=[by])
    words, items = s.projection(label, v)
    size = ("top " if most and s.rng.random() < 0.3 else "") + number_word(s.rng, count)
    noun = noun_phrase(label.plural, filters)
    question = s.ask("the {c} of {t}", "{c} of {t}", c=words, t=ranked(s.rng, by, most, noun, size))
    return question, f"MATCH {s.node(label, v)}{s.where(label, v, filters)} RETURN {items} {tail}"


def per_category(s: GraphScene) -> Pair:
    """A figure for each category, perhaps sorted or limited."""
    label = s.any_label()
    (v,) = s.var(label)
    by = s.some(label.columns, lambda c: c.is_category and not c.nullable)
    numbers = [column for column in label.columns if column.is_number]
    name = f"{s.prop(label, v, by)} AS {by.name}"
    what, sql, alias = f"the number of {label.plural}", f"count({v})", "total"
    if numbers and s.rng.random() < 0.5:
        column = s.rng.choice(numbers)
        sql, word = function_for(s, column)
        what, alias = f"the {word} {column.label} of {label.plural}", f"{sql}_{column.name}"
        sql = f"{sql}({s.prop(label, v, column)})"
    kind = s.rng.random()
    match = f"MATCH {s.node(label, v)}"
    if kind < 0.2:
        most = f"the most {label.plural}" if alias == "total" else f"the highest value for {what}"
        question = s.say(
            "Which {b} has {w}?", "Find the {b} with {w}.", "What is the {b} with {w}?", b=by.label, w=most
        )
        return question, f"{match} RETURN {name}, {sql} AS {alias} ORDER BY {alias} DESC LIMIT 1"
    order = f" ORDER BY {alias} DESC" if kind < 0.55 else ""
    question = s.ask("{w} for each {b}{o}", "{w} per {b}{o}", "{w} by {b}{o}", w=what, b=by.label,
                     o=s.rng.choice([", highest first", " in descending order"]) if order else "")  # fmt: skip
    return question, f"{match} RETURN {name}, {sql} AS {alias}{order}"


def common_category(s: GraphScene) -> Pair:
    """The categories with enough nodes."""
    label = s.any_label()
    (v,) = s.var(label)
    by = s.some(label.columns, lambda c: c.is_category and not c.nullable)
    how, sign = s.rng.choice([("more than", ">"), ("at least", ">="), ("fewer than", "<"), ("exactly", "=")])
    limit = s.rng.randint(2, 5)
    question = s.say("Which {b} have {h} {k} {n}?", "List the {b} with {h} {k} {n} and the count.",
                     "{b} with {h} {k} {n}",
                     b=several(by.label), h=how, k=number_word(s.rng, limit), n=label.plural)  # fmt: skip
    grouped = f"MATCH {s.node(label, v)} WITH {s.prop(label, v, by)} AS {by.name}, count({v}) AS total"
    return (
        question,
        f"{grouped} WHERE total {sign} {limit} RETURN {by.name}{', total' if 'and the count' in question else ''}",
    )


def beyond_average(s: GraphScene) -> Pair:
    """Nodes beyond the average of a property, or those that share its extreme."""
    label = s.any_label()
    (v,) = s.var(label)
    column = s.some(label.columns, is_number)
    name, match = s.prop(label, v, column), f"MATCH {s.node(label, v)}"
    words, items = s.projection(label, v)
    above = s.rng.random() < 0.6
    if s.rng.random() < 0.6:
        question = s.ask("the {c} of {n} whose {p} is {s} average", "the {c} of all {n} with {p} {s} the average",
                         c=words, n=label.plural, p=column.label, s="above" if above else "below")  # fmt: skip
        first = f"{match} WITH avg({name}) AS average"
        return question, f"{first} {match} WHERE {name} {'>' if above else '<'} average RETURN {items}"
    question = s.ask("the {c} of all {n} that share the {w} {p}", "the {c} of the {n} tied for the {w} {p}",
                     c=words, n=label.plural, p=column.label, w="highest" if above else "lowest")  # fmt: skip
    first = f"{match} WITH {'max' if above else 'min'}({name}) AS extreme"
    return question, f"{first} {match} WHERE {name} = extreme RETURN {items}"


def labelled(s: GraphScene) -> Pair:
    """A word that depends on a threshold, or the share of nodes that pass it."""
    label = s.any_label()
    (v,) = s.var(label)
    column = s.some(label.columns, lambda c: is_number(c) and not c.nullable)
    limit = str(pick_values(column, s.values(label, column), s.rng)[0])
    name, match = s.prop(label, v, column), f"MATCH {s.node(label, v)}"
    if s.rng.random() < 0.35:
        question = s.say("What percentage of {n} have {c} of at least {l}?",
                         "Percentage of {n} with {c} of {l} or more",
                         n=label.plural, c=article(column.label), l=limit)  # fmt: skip
        return (
            question,
            f"{match} RETURN 100.0 * sum(CASE WHEN {name} >= {limit} THEN 1 ELSE 0 END) / count({v}) AS percentage",
        )
    high, low = s.rng.choice([("high", "low"), ("large", "small"), ("A", "B"), ("big", "normal")])
    question = s.say("List the {f} of {n} with '{h}' if the {c} is at least {l} and '{s}' otherwise.",
                     "For all {n}, show the {f} and '{h}' when the {c} is {l} or more, else '{s}'.",
                     f=label.columns[0].label, n=label.plural, h=high, s=low, c=column.label, l=limit)  # fmt: skip
    case = f"CASE WHEN {name} >= {limit} THEN '{high}' ELSE '{low}' END AS size"
    return question, f"{match} RETURN {s.prop(label, v)}, {case}"


def missing(s: GraphScene) -> Pair:
    """Counts of missing values, or a substitute for them."""
    label = s.any_label()
    (v,) = s.var(label)
    column = s.some(label.columns, lambda c: c.nullable)
    name = s.prop(label, v, column)
    if column.kind in ("int", "real", "date"):
        question = s.say("How many {n} have a known {c} and how many lack it?",
                         "Count the {n} with and those without {c}.",
                         n=label.plural, c=column.label)  # fmt: skip
        return (
            question,
            f"MATCH {s.node(label, v)} RETURN count({name}) AS known, count({v}) - count({name}) AS missing",
        )
    word = s.rng.choice(["unknown", "none", "missing"])
    question = s.say("Show {f} and {c} of all {n}, with '{w}' where the {c} is missing.",
                     "List {n} by {f} with their {c}; write '{w}' if there is none.",
                     f=label.columns[0].label, c=column.label, n=label.plural, w=word)  # fmt: skip
    return question, f"MATCH {s.node(label, v)} RETURN {s.prop(label, v)}, coalesce({name}, '{word}') AS {column.name}"


def two_named(s: GraphScene) -> Pair:
    """A property of nodes given by name."""
    label = s.any_label()
    (v,) = s.var(label)
    column = s.some(label.columns[1:], lambda c: not c.nullable and c.kind != "bool")
    name, first = s.prop(label, v, column), s.name_of(label)
    if s.rng.random() < 0.6:
        question = s.say("What is the {c} of {e} {a}?", "Show the {c} of the {e} '{a}'.", "{c} of {a}",
                         "Tell me the {c} of {a}.",
                         c=column.label, e=label.singular, a=first)  # fmt: skip
        return question, f"MATCH {s.node(label, v, first)} RETURN {s.returned(name, column.name)}"
    second = s.name_of(label)
    if second == first:
        raise SkipFormError
    question = s.ask("the {f} and {c} of {a} and {b}", "the {c} of {n} {a} and {b} with their {f}",
                     f=label.columns[0].label, c=column.label, n=label.plural, a=first, b=second)  # fmt: skip
    own = s.prop(label, v)
    return question, f"MATCH {s.node(label, v)} WHERE {own} IN ['{first}', '{second}'] RETURN {own}, {name}"


FORMS = (
    listing, listing, named_nodes, sorted_listing, counting, counting, distinct, aggregate, aggregate, top_nodes,
    top_nodes, per_category, common_category, beyond_average, labelled, missing, two_named,
)  # fmt: skip

"""Question forms over several relationships; each returns a question and its Cypher, or raises SkipFormError."""

from __future__ import annotations

from filters import noun_phrase
from neo4j_link_forms import Hop
from neo4j_node_forms import Pair
from neo4j_scene import GraphScene, SkipFormError
from wording import several

STEPS = (
    ("*1..2", "within two steps"),
    ("*2", "exactly two steps away"),
    ("*1..3", "within three steps"),
    ("*", "over any number of steps"),
)


def two_hops(s: GraphScene) -> tuple[Hop, Hop]:
    """A hop and another that goes on from its far end by another relationship."""
    first = Hop(s)
    links = [one for one in s.domain.relationships if one is not first.link and first.far.name in (one.start, one.end)]
    if not links:
        raise SkipFormError
    second = Hop(s, s.rng.choice(links), first.far.name)
    first.n, first.f, second.f = s.var(first.near, first.far, second.far)
    second.n = first.f
    return first, second


def chain(s: GraphScene) -> Pair:
    """Nodes two relationships away from a named or filtered node."""
    one, two = two_hops(s)
    between = f"{one.near.plural} {one.words} {one.far.plural} {two.words}"
    if s.rng.random() < 0.5:
        name = s.name_of(two.far)
        tail, end, where = f"the {two.far.singular} {name}", two.other(name, ""), ""
    else:
        (f,) = s.filters(two.far, 1)
        tail, end, where = noun_phrase(two.far.plural, [f]), two.other(), s.where(two.far, two.f, [f])
    question = s.ask(
        "the distinct {c} of {b} {t}", "the different {c} of {b} {t}", c=several(one.called), b=between, t=tail
    )
    path = f"MATCH {one.path(one.node(), one.other())} MATCH {two.path(f'({two.n})', end)}"
    return question, f"{path}{where} RETURN DISTINCT {s.returned(one.own, one.near.columns[0].name)}"


def chain_count(s: GraphScene) -> Pair:
    """For each far end of two relationships, how many nodes lead to it; perhaps the top one."""
    one, two = two_hops(s)
    if two.far is one.near:
        raise SkipFormError
    path = f"MATCH {one.path(one.node(), one.other())} MATCH {two.path(f'({two.n})', two.other())}"
    grouped = f"{path} RETURN {s.prop(two.far, two.f)}, count(DISTINCT {one.n}) AS total"
    words = f"{one.near.plural} {one.words} {one.far.plural} {two.words}"
    if s.rng.random() < 0.4:
        question = s.say("For which {e} are there the most different {w} that {e}?",
                         "Find the {e} with the most distinct {w} that {e}.",
                         e=two.far.singular, w=words)  # fmt: skip
        return question, f"{grouped} ORDER BY total DESC LIMIT 1"
    question = s.ask("the number of distinct {w} each {e}", "for each {e} the number of different {w} that {e}",
                     e=two.far.singular, w=words)  # fmt: skip
    return question, grouped


def shared(s: GraphScene) -> Pair:
    """Nodes that share a neighbour with a named node, or pairs that share the most."""
    h = Hop(s)
    if h.near is h.far:
        raise SkipFormError
    a, b = f"{h.n}1", f"{h.n}2"
    own = [s.prop(h.near, variable) for variable in (a, b)]
    if s.rng.random() < 0.6:
        name = s.name_of(h.near)
        question = s.ask("the distinct {c} of {n} that share at least one {e} with {a} through {t}",
                         "the different {c} of other {n} {w} the same {f} as {a}",
                         c=several(h.called), n=h.near.plural, e=h.far.singular, a=name, t=h.link.type, w=h.words,
                         f=h.far.plural)  # fmt: skip
        first = h.path(s.node(h.near, a, name), h.other())
        second = h.path(s.node(h.near, b), f"({h.f})")
        return question, f"MATCH {first} MATCH {second} WHERE {own[1]} <> {own[0]} RETURN DISTINCT {own[1]}"
    question = s.ask("all pairs of {n} with the number of {f} they share by {t}",
                     "every two {n} {w} the same {f}, and how many of them they share",
                     n=h.near.plural, f=h.far.plural, t=h.link.type, w=h.words)  # fmt: skip
    first, second = h.path(s.node(h.near, a), h.other()), h.path(s.node(h.near, b), f"({h.f})")
    return (
        question,
        f"MATCH {first} MATCH {second} WHERE {own[0]} < {own[1]} RETURN {own[0]}, {own[1]}, count({h.f}) AS shared",
    )


def reach(s: GraphScene) -> Pair:
    """Nodes within a number of steps of a named node along one relationship type."""
    link = s.link(lambda one: one.start == one.end)
    label, _ = s.ends(link)
    name = s.name_of(label)
    a, b = s.var(label, label)
    steps, words = s.rng.choice(STEPS)
    s.links.setdefault(link.type, set())
    question = s.ask("the distinct {c} of {n} that can be reached from {a} {w} along {t}",
                     "the different {c} of {n} {w} following {t} from {a}",
                     c=several(label.columns[0].label), n=label.plural, a=name, w=words, t=link.type)  # fmt: skip
    path = f"{s.node(label, a, name)}-[:{link.type}{steps}]->{s.node(label, b)}"
    return question, f"MATCH {path} RETURN DISTINCT {s.prop(label, b)}"


def shortest(s: GraphScene) -> Pair:
    """The length of the shortest way between two named nodes."""
    link = s.link(lambda one: one.start == one.end)
    label, _ = s.ends(link)
    one, two = s.name_of(label), s.name_of(label)
    a, b = s.var(label, label)
    s.links.setdefault(link.type, set())
    question = s.say("How many {t} steps is the shortest path from {a} to {b}?",
                     "Length of the shortest {t} path from {a} to {b}",
                     "How many {t} relationships lie between {a} and {b} on the shortest way?",
                     t=link.type, a=one, b=two)  # fmt: skip
    path = f"{s.node(label, a, one)}-[:{link.type}*]->{s.node(label, b, two)}"
    return question, f"MATCH p = shortestPath({path}) RETURN length(p) AS steps"


def mutual(s: GraphScene) -> Pair:
    """Two steps along a relationship of one label with itself, without the direct one."""
    link = s.link(lambda one: one.start == one.end)
    label, _ = s.ends(link)
    v = s.var(label, label, label)
    first, second = (
        s.path(s.node(label, v[0]), link, s.node(label, v[1]), turned=False),
        f"-[:{link.type}]->{s.node(label, v[2])}",
    )
    name = s.name_of(label)
    own, last = s.prop(label, v[0]), s.prop(label, v[2])
    if s.rng.random() < 0.5:
        question = s.ask("{n} exactly two {t} steps after {a} that {a} has no direct {t} to",
                         "the distinct {n} two {t} steps from {a}, leaving out {a} and direct ones",
                         n=several(label.columns[0].label) + " of " + label.plural, t=link.type, a=name)  # fmt: skip
        match = first.replace(s.node(label, v[0]), s.node(label, v[0], name)) + second
        test = f"NOT ({v[0]})-[:{link.type}]->({v[2]}) AND {last} <> '{name}'"
        return question, f"MATCH {match} WHERE {test} RETURN DISTINCT {last}"
    middle = s.prop(label, v[1])
    question = s.ask("all chains of two {t} relationships, as the {c} of the three {n}",
                     "each {e} with who comes next and after next along {t}",
                     t=link.type, c=several(label.columns[0].label), n=label.plural, e=label.singular)  # fmt: skip
    return question, f"MATCH {first}{second} RETURN {own}, {middle}, {last}"


def two_types(s: GraphScene) -> Pair:
    """Pairs of nodes joined by either of two relationship types, or nodes that have both."""
    ends: dict[tuple[str, str], list[str]] = {}
    for link in s.domain.relationships:
        ends.setdefault((link.start, link.end), []).append(link.type)
    found = [(pair, types) for pair, types in ends.items() if len(types) > 1]
    if not found:
        raise SkipFormError
    (start, end), types = s.rng.choice(found)
    near, far = s.domain.label(start), s.domain.label(end)
    n, f = s.var(near, far)
    one, two = s.rng.sample(types, 2)
    for kind in (one, two):
        s.links.setdefault(kind, set())
    own, other = s.prop(near, n), s.prop(far, f)
    if s.rng.random() < 0.5:
        name = s.name_of(far)
        question = s.ask(
            "the {n} with {a} or {b} to {x}, and which of the two it is", n=near.plural, a=one, b=two, x=name
        )
        return (
            question,
            f"MATCH {s.node(near, n)}-[r:{one}|{two}]->{s.node(far, '', name)} RETURN {own}, type(r) AS relationship",
        )
    question = s.ask("the pairs of {n} and {m} joined by both {a} and {b}",
                     "{n} that have {a} and {b} to the same {e}, with that {e}",
                     n=near.plural, m=far.plural, a=one, b=two, e=far.singular)  # fmt: skip
    return (
        question,
        f"MATCH {s.node(near, n)}-[:{one}]->{s.node(far, f)} MATCH ({n})-[:{two}]->({f}) RETURN {own}, {other}",
    )


def either(s: GraphScene) -> Pair:
    """Names of nodes that have one relationship or another, by UNION."""
    label = s.any_label()
    links = [one for one in s.domain.relationships if one.start == label.name and one.end != label.name]
    if len(links) < 2:
        raise SkipFormError
    parts, words = [], []
    alias = label.columns[0].name
    for link in s.rng.sample(links, 2):
        h = Hop(s, link, label.name)
        name = s.name_of(h.far)
        words.append(f"{h.words} {name}")
        parts.append(f"MATCH {h.path(h.node(), h.other(name, ''))} RETURN {h.own} AS {alias}")
    question = s.ask("the {c} of {n} {a} or {b}, without duplicates", c=several(label.columns[0].label), n=label.plural,
                     a=words[0], b=words[1])  # fmt: skip
    return question, " UNION ".join(parts)


def after_best(s: GraphScene) -> Pair:
    """The neighbours of the node that leads a ranking."""
    h = Hop(s)
    if h.near is h.far:
        raise SkipFormError
    column = s.some(h.far.columns, lambda c: c.is_number and not c.nullable)
    most = s.rng.random() < 0.6
    question = s.ask("the {c} of {n} {w} the {e} with the {r} {p}", c=several(h.called), n=h.near.plural, w=h.words,
                     e=h.far.singular, r="highest" if most else "lowest", p=column.label)  # fmt: skip
    first = f"MATCH {h.other()} WITH {h.f} ORDER BY {s.prop(h.far, h.f, column)}{' DESC' if most else ''} LIMIT 1"
    return question, f"{first} MATCH {h.path(h.node(), f'({h.f})')} RETURN {h.own}"


FORMS = (chain, chain, chain_count, shared, reach, reach, shortest, mutual, two_types, either, after_best)

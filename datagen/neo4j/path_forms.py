"""Question forms over several relationships; each returns a question and its Cypher, or raises SkipFormError."""

from __future__ import annotations

from datagen.common.filters import noun_phrase
from datagen.common.wording import several
from datagen.neo4j.link_forms import Hop
from datagen.neo4j.node_forms import Pair
from datagen.neo4j.scene import GraphScene, SkipFormError

STEPS = (("*1..2", "within two steps"), ("*1..3", "within three steps"), ("*", "over any number of steps"))


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
    question = s.ask("the distinct {c} of {b} {t}", c=several(one.called), b=between, t=tail)
    path = f"MATCH {one.path(one.node(), one.other())} MATCH {two.path(f'({two.n})', end)}"
    return question, f"{path}{where} RETURN DISTINCT {one.own}"


def chain_count(s: GraphScene) -> Pair:
    """For each far end of two relationships, how many nodes lead to it; perhaps the top one."""
    one, two = two_hops(s)
    if two.far is one.near:
        raise SkipFormError
    path = f"MATCH {one.path(one.node(), one.other())} MATCH {two.path(f'({two.n})', two.other())}"
    grouped = f"{path} RETURN {s.prop(two.far, two.f)}, count(DISTINCT {one.n})"
    words = f"{one.near.plural} {one.words} {one.far.plural} {two.words}"
    if s.rng.random() < 0.4:
        question = s.info(
            "Find the {e} with the most distinct {w} that {e}, with the number.", e=two.far.singular, w=words
        )
        return question, f"{grouped} AS value ORDER BY value DESC LIMIT 1"
    return s.ask("the number of distinct {w} each {e}", e=two.far.singular, w=words), grouped


def shared(s: GraphScene) -> Pair:
    """Nodes that share a neighbor with a named node, or pairs that share the most."""
    h = Hop(s)
    if h.near is h.far:
        raise SkipFormError
    a, b = f"{h.n}1", f"{h.n}2"
    own = [s.prop(h.near, variable) for variable in (a, b)]
    if s.rng.random() < 0.6:
        name = s.name_of(h.near)
        question = s.ask("the distinct {c} of other {n} {w} the same {f} as {a}", c=several(h.called), n=h.near.plural,
                         a=name, w=h.words, f=h.far.plural)  # fmt: skip
        first = h.path(s.node(h.near, a, name), h.other())
        second = h.path(s.node(h.near, b), f"({h.f})")
        return question, f"MATCH {first} MATCH {second} WHERE {own[1]} <> {own[0]} RETURN DISTINCT {own[1]}"
    question = s.ask("every two {n} {w} the same {f}, and how many of them they share", n=h.near.plural,
                     f=h.far.plural, w=h.words)  # fmt: skip
    first, second = h.path(s.node(h.near, a), h.other()), h.path(s.node(h.near, b), f"({h.f})")
    return question, f"MATCH {first} MATCH {second} WHERE {own[0]} < {own[1]} RETURN {own[0]}, {own[1]}, count({h.f})"


def reach(s: GraphScene) -> Pair:
    """Nodes within a number of steps of a named node along one relationship type, perhaps those that pass a filter."""
    link = s.link(lambda one: one.start == one.end)
    label, _ = s.ends(link)
    name = s.name_of(label)
    a, b = s.var(label, label)
    steps, words = s.rng.choice(STEPS)
    filters = s.filters(label, s.rng.choice([0, 1]), but=label.columns[:1])
    question = s.ask("the distinct {c} of {n} that can be reached from {a} {w} along {t}",
                     c=several(label.columns[0].label), n=noun_phrase(label.plural, filters), a=name, w=words,
                     t=link.type)  # fmt: skip
    path = f"{s.node(label, a, name)}-{s.arrow(link, steps=steps)}->{s.node(label, b)}"
    return question, f"MATCH {path}{s.where(label, b, filters)} RETURN DISTINCT {s.prop(label, b)}"


def shortest(s: GraphScene) -> Pair:
    """The length of the shortest way between two named nodes."""
    link = s.link(lambda one: one.start == one.end)
    label, _ = s.ends(link)
    one, two = s.name_of(label), s.name_of(label)
    a, b = s.var(label, label)
    question = s.info("How many {t} steps is the shortest path from {a} to {b}?",
                     "Find the length of the shortest {t} path from {a} to {b}.",
                     t=link.type, a=one, b=two)  # fmt: skip
    path = f"{s.node(label, a, one)}-{s.arrow(link, steps='*')}->{s.node(label, b, two)}"
    return question, f"MATCH p = shortestPath({path}) RETURN length(p)"


def mutual(s: GraphScene) -> Pair:
    """Two steps along a relationship of one label with itself, from a named node or in all."""
    link = s.link(lambda one: one.start == one.end)
    label, _ = s.ends(link)
    v = s.var(label, label, label)
    arrow, last = s.arrow(link), s.prop(label, v[2])
    filters = s.filters(label, s.rng.choice([0, 1]), but=label.columns[:1])
    noun, where = noun_phrase(label.plural, filters), s.where(label, v[2], filters)
    tail = f"-{arrow}->{s.node(label, v[1])}-{arrow}->{s.node(label, v[2])}"
    if s.rng.random() < 0.5:
        name = s.name_of(label)
        question = s.ask("the distinct {c} of {n} exactly two {t} steps after {a}", c=several(label.columns[0].label),
                         n=noun, t=link.type, a=name)  # fmt: skip
        return question, f"MATCH {s.node(label, v[0], name)}{tail}{where} RETURN DISTINCT {last}"
    question = s.ask("each {e} with who comes next and the {n} after next along {t}", n=noun, t=link.type,
                     e=label.singular)  # fmt: skip
    return (
        question,
        f"MATCH {s.node(label, v[0])}{tail}{where} RETURN {s.prop(label, v[0])}, {s.prop(label, v[1])}, {last}",
    )


def either(s: GraphScene) -> Pair:
    """Names of nodes that have one relationship or another, by UNION."""
    label = s.any_label()
    links = [one for one in s.domain.relationships if label.name in (one.start, one.end) and one.end != one.start]
    hops = [Hop(s, s.rng.choice(links), label.name) for _ in range(2)]
    names = [s.name_of(h.far) for h in hops]
    question = s.ask("the {c} of {n} {a} or {b}, without duplicates", c=several(label.columns[0].label), n=label.plural,
                     a=f"{hops[0].words} {names[0]}", b=f"{hops[1].words} {names[1]}")  # fmt: skip
    parts = [
        f"MATCH {h.path(h.node(), h.other(name, ''))} RETURN {h.own} AS {label.columns[0].name}"
        for h, name in zip(hops, names, strict=True)
    ]
    return question, " UNION ".join(parts)


def after_best(s: GraphScene) -> Pair:
    """The neighbors of the node that leads a ranking."""
    h = Hop(s)
    if h.near is h.far:
        raise SkipFormError
    column = s.some(h.far.columns, lambda c: c.is_number and not c.nullable)
    most = s.rng.random() < 0.5
    words, items = s.projection(h.near, h.n)
    question = s.ask("the {c} of {n} {w} the {e} with the {r} {p}", c=words, n=h.near.plural, w=h.words,
                     e=h.far.singular, r="highest" if most else "lowest", p=column.label)  # fmt: skip
    first = f"MATCH {h.other()} WITH {h.f} ORDER BY {s.prop(h.far, h.f, column)}{' DESC' if most else ''} LIMIT 1"
    return question, f"{first} MATCH {h.path(h.node(), f'({h.f})')} RETURN {items}"


FORMS = (chain, chain, chain, chain_count, shared, shared, reach, reach, shortest, mutual, either, either, after_best)

"""Which table a name of a query stands for, before its FROM is read and after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from expert_cli.inference.grammar.sql.relations import Output, Relation, Relations, Source


@dataclass
class Scope:
    """One SELECT: what its FROM has brought, and what it still has to bring.

    bare: columns used without a table that this FROM, or an outer one, must bring; own: only this one; shared: those that are
    bound further out; wanted: qualifiers and their columns; starred: qualifiers used as `q.*`. over: windows used before
    WINDOW defines them.
    """

    relations: Relations
    outer: Scope | None
    sources: list[Source] = field(default_factory=list)
    closed: bool = False
    bare: set[str] = field(default_factory=set)
    own: set[str] = field(default_factory=set)
    shared: set[str] = field(default_factory=set)
    wanted: dict[str, set[str]] = field(default_factory=dict)
    starred: set[str] = field(default_factory=set)
    over: set[str] = field(default_factory=set)
    outputs: list[Output] = field(default_factory=list)
    visible: frozenset[str] = frozenset()
    ordered: frozenset[str] = frozenset()
    aggregates: int = 0
    windows: int = 0
    grouped: bool = False
    defined: set[str] | None = None

    def chain(self) -> Iterator[Scope]:
        """Yield this and the outer ones, outwards."""
        scope: Scope | None = self
        while scope:
            yield scope
            scope = scope.outer

    def opens(self) -> bool:
        """Whether FROM can still bring what an expression names here."""
        return not self.closed and not self.sources

    def count(self, column: str) -> int:
        """Return how many sources a column without a table could be of."""
        if self.closed and column == "rowid":
            return sum(column in source.relation.names for source in self.sources)
        return sum(column in source.bare for source in self.sources)

    def source(self, qualifier: str) -> Source | None:
        """Return what a qualifier stands for, None where it is unbound."""
        return next((source for source in self.sources if source.qualifier == qualifier), None)

    # -- columns without a table

    def has_bare(self, column: str, own: bool = False) -> bool:
        """Whether a column may be named without a table; own: as one of this SELECT's own FROM."""
        for scope in self.chain():
            count = scope.count(column)
            if count:
                return count == 1
            if column in scope.visible or (scope.opens() and column in scope.relations.columns):
                return True
            if own:
                break
        return False

    def bare_names(self, own: bool) -> Iterator[frozenset[str]]:
        """Yield sets of columns, among them all that `has_bare` takes."""
        for scope in self.chain():
            yield from (source.relation.names if scope.closed else source.bare for source in scope.sources)
            yield scope.visible
            if scope.opens():
                yield scope.relations.columns
            if own:
                break

    def use_bare(self, column: str, own: bool = False) -> set[str] | None:
        """Record that a column is named without a table; return the record, None where it was there or none is needed."""
        for scope in self.chain():
            if scope.closed:
                if scope.count(column) or column in scope.visible:
                    return None
                continue
            outside = not own and scope.outer is not None and not scope.count(column) and scope.outer.settles(column)
            record = scope.own if own else scope.shared if outside else scope.bare
            if column in record:
                return None
            record.add(column)
            return record
        return None

    def settles(self, column: str) -> bool:
        """Whether a column without a table is bound here or further out, and whatever FROM still brings."""
        for scope in self.chain():
            if scope.count(column) or not scope.closed:
                return scope.closed
            if column in scope.visible:
                return True
        return False

    # -- columns of a qualifier

    def qualifier_names(self) -> Iterator[frozenset[str]]:
        """Yield sets of qualifiers that are bound, or are tables that can be."""
        for scope in self.chain():
            yield frozenset(source.qualifier for source in scope.sources if source.relation.names)
            if scope.opens():
                yield scope.relations.qualifiers
                yield frozenset(scope.wanted)

    def has_qualifier(self, text: str, whole: bool) -> bool:
        """Whether a text is a qualifier, or begins one."""
        for names in self.qualifier_names():
            if text in names if whole else any(name.startswith(text) for name in names):
                return True
        return any(
            scope.opens() and not (whole and scope.source(text)) and scope.relations.may_alias(text, whole)
            for scope in self.chain()
        )

    def columns(self, qualifier: str) -> frozenset[str]:
        """Return the columns that may follow a qualifier."""
        found: set[str] = set()
        for scope in self.chain():
            source = scope.source(qualifier)
            if source:
                found |= source.relation.names
            elif scope.opens():
                found.update(*(relation.names for relation in scope.candidates(qualifier)))
                found |= scope.wanted.get(qualifier, set())
        return frozenset(found)

    def settles_column(self, qualifier: str, column: str) -> bool:
        """Whether a qualifier is bound here or further out to what has a column."""
        for scope in self.chain():
            source = scope.source(qualifier)
            if source and column in source.relation.names:
                return True
            if source is None and not scope.closed:
                return False
        return False

    def candidates(self, qualifier: str) -> Iterator[Relation]:
        """Yield what a qualifier that is not bound yet can still stand for."""
        named = self.relations.by_name.get(qualifier)
        wanted = self.wanted.get(qualifier, set())
        if named is None:
            yield from self.relations.with_columns(wanted)
        elif wanted <= named.names:
            yield named

    def use_column(self, qualifier: str, column: str) -> None:
        """Record that a column is named with a qualifier."""
        for scope in self.chain():
            source = scope.source(qualifier)
            if source and column in source.relation.names:
                return
            if source is None and not scope.closed:
                if scope.outer is None or not scope.outer.settles_column(qualifier, column):
                    scope.wanted.setdefault(qualifier, set()).add(column)
                return

    # -- FROM

    def used_bare(self) -> set[str]:
        """Return the columns that may be in one source only, as they were named without a table."""
        return self.bare | self.own | self.shared

    def conflicts(self, relation: Relation) -> set[str]:
        """Return the columns that a further relation would make ambiguous."""
        return {column for column in self.used_bare().intersection(relation.columns) if self.count(column)}

    def fits(self, qualifier: str, relation: Relation) -> bool:
        """Whether a qualifier that was used can be this relation's name."""
        return not self.source(qualifier) and self.wanted.get(qualifier, set()) <= relation.names

    def add(self, qualifier: str, relation: Relation) -> tuple[set[str] | None, bool]:
        """Bind a qualifier, which `fits`; return what was wanted of it, for `restore`."""
        removed = self.wanted.pop(qualifier, None), qualifier in self.starred
        serves = (
            removed[0] is not None
            or removed[1]
            or any(not self.count(name) for name in self.used_bare() & relation.names)
        )
        self.starred.discard(qualifier)
        self.sources.append(Source(qualifier, relation, relation.names - relation.hidden, serves))
        return removed

    def restore(self, qualifier: str, removed: tuple[set[str] | None, bool]) -> None:
        """Want again what `add` removed."""
        if removed[0] is not None:
            self.wanted[qualifier] = removed[0]
        if removed[1]:
            self.starred.add(qualifier)

    def merge(self, column: str) -> None:
        """Take a column of the last source for the one of the same name before it, as USING and NATURAL do."""
        last = self.sources[-1]
        last.bare -= {column}

    def lacking(self) -> bool:
        """Whether FROM, or a SELECT without one, cannot end: what was used is not there."""
        if self.starred or any(not self.count(column) for column in self.own):
            return True
        outer = self.outer
        if any(not self.count(column) and not (outer and outer.has_bare(column)) for column in self.bare):
            return True
        return any(
            not (outer and outer.has_qualifier(name, True) and columns <= outer.columns(name))
            for name, columns in self.wanted.items()
        )

    def unknown(self) -> tuple[set[str], str]:
        """Return columns that no table has, for a subquery in FROM to make, and the name that it must have, "" for any."""
        columns = {
            column for column in self.bare | self.own if not self.count(column) and column not in self.relations.columns
        }
        for qualifier, used in self.wanted.items():
            if next(self.candidates(qualifier), None) is None:
                return columns | used, qualifier
        return columns, ""

    def awaits_tables(self, made: set[str]) -> bool:
        """Whether some column that was used, other than those that a subquery makes, is not there yet."""
        if any(not self.count(column) for column in (self.bare | self.own) - made):
            return True
        return any(any(self.candidates(qualifier)) for qualifier in self.wanted)

    def links(self) -> int:
        """Return how many sources had nothing that was used before them."""
        return sum(not source.serves for source in self.sources)

    def awaited(self) -> Iterator[str]:
        """Yield the tables that have what was used and is not there yet."""
        lacking = {column for column in self.used_bare() if not self.count(column)}
        for name, relation in self.relations.by_name.items():
            fits = any(
                self.fits(qualifier, relation) for qualifier in self.wanted if qualifier not in self.relations.by_name
            )
            if fits or name in self.wanted or name in self.starred or self.starred - {name} or lacking & relation.names:
                yield name

    def close(self) -> None:
        """End FROM, which is not `lacking`; what outer SELECTs are to bring is recorded there."""
        self.closed = True
        if self.outer:
            for column in self.bare:
                if not self.count(column):
                    self.outer.use_bare(column)
            for qualifier, columns in self.wanted.items():
                for column in columns:
                    self.outer.use_column(qualifier, column)
        self.bare, self.own, self.shared, self.wanted = set(), set(), set(), {}

    # -- results

    def width(self) -> int:
        """Return how many columns the result has."""
        return sum(1 for output in self.outputs for _ in self._names(output))

    def result(self) -> Relation:
        """Return the columns of the result, which others can name."""
        return Relation.of(name for output in self.outputs for name in self._names(output) if name)

    def _names(self, output: Output) -> Iterator[str]:
        if output.star is None:
            yield output.name
            return
        for source in self.sources:
            if output.star in ("", source.qualifier):
                shown = source.bare if output.star == "" else source.relation.names
                yield from (column for column in source.relation.columns if column in shown)

    def aliases(self, aggregate: bool, window: bool) -> frozenset[str]:
        """Return the names that AS gave to results; aggregate, window: also to those that hold one."""
        return frozenset(
            output.name
            for output in self.outputs
            if output.alias and (aggregate or not output.aggregate) and (window or not output.window)
        )

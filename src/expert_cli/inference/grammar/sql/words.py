"""The words of SQLite's and PostgreSQL's queries: keywords, functions with their numbers of arguments, types."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

SqlDialect = Literal["sqlite", "postgresql"]
Arity = tuple[int, int]

_PLAIN = re.compile(r"[^\W\d][\w$]*")
MANY = 100
"""As many arguments as wished."""


@dataclass(frozen=True)
class SqlWords:
    """What a dialect knows: functions with the least and most arguments, in lower case; all else in upper case.

    reserved: words that name nothing unless they are quoted. clauses: those that are no alias without AS either.
    """

    functions: Mapping[str, Arity]
    names: frozenset[str]
    aggregates: frozenset[str]
    window_only: frozenset[str]
    reserved: frozenset[str]
    clauses: frozenset[str]
    operators: frozenset[str]
    operator_marks: frozenset[str]
    types: frozenset[str]
    literal_types: frozenset[str] = frozenset()

    def calls(self, aggregates: bool, windows: bool) -> frozenset[str]:
        """Return the functions that may be called where aggregates, and windows, may stand or not."""
        return _calls(self.names, self.aggregates, self.window_only, aggregates, windows)


@lru_cache(maxsize=16)
def _calls(
    functions: frozenset[str],
    aggregates: frozenset[str],
    window_only: frozenset[str],
    with_aggregates: bool,
    with_windows: bool,
) -> frozenset[str]:
    """Return functions; min and max of several arguments are no aggregates in SQLite."""
    scalars = functions - (aggregates - {"min", "max"} if "glob" in functions else aggregates) - window_only
    return scalars | (aggregates if with_aggregates else frozenset()) | (window_only if with_windows else frozenset())


@lru_cache(maxsize=16384)
def usable(name: str, reserved: frozenset[str]) -> bool:
    """Whether a name needs no quotes."""
    return _PLAIN.fullmatch(name) is not None and name.upper() not in reserved


def _arities(text: str) -> dict[str, Arity]:
    """Return functions written as `least-most: name name ...`, a line each; `+`: any number."""
    found = {}
    for line in text.strip().splitlines():
        numbers, names = line.split(":")
        least, _, most = numbers.strip().partition("-")
        for name in names.split():
            found[name] = (int(least), MANY if most == "+" else int(most or least))
    return found


_SQLITE_FUNCTIONS = """
0: pi random row_number rank dense_rank percent_rank cume_dist
0-1: count
1: abs acos acosh asin asinh atan atanh avg ceil ceiling cos cosh degrees exp floor hex json json_group_array json_quote length
1: ln log10 log2 lower octet_length quote radians sign sin sinh sqrt sum tan tanh total trunc typeof unicode
1: upper first_value last_value ntile
1-2: group_concat json_array_length json_type json_valid log ltrim round rtrim trim unhex
1-3: lag lead
2: atan2 glob ifnull instr json_group_object json_patch mod nullif pow power string_agg timediff nth_value
2-3: substr substring iif if like
3: replace
0-+: char json_array json_object
1-+: concat date datetime format json_extract json_remove julianday max min printf strftime time unixepoch json_insert json_set
1-+: json_replace
2-+: coalesce concat_ws
"""
_POSTGRESQL_FUNCTIONS = """
0: now pi random clock_timestamp statement_timestamp transaction_timestamp gen_random_uuid version current_database timeofday
0: row_number rank dense_rank percent_rank cume_dist mode
0-1: count
1: abs acos asin atan ceil ceiling cos cbrt degrees exp floor length char_length character_length lower upper initcap ln radians
1: sign sin sqrt tan reverse ascii chr md5 octet_length bit_length to_hex quote_ident quote_literal avg sum min max bool_and
1: bool_or every bit_and bit_or stddev stddev_pop stddev_samp variance var_pop var_samp array_agg json_agg jsonb_agg isfinite
1: percentile_cont percentile_disc first_value last_value ntile cardinality array_ndims justify_days justify_hours
1: justify_interval json_array_length jsonb_array_length json_typeof jsonb_typeof to_json to_jsonb row_to_json factorial
1: jsonb_object_keys json_object_keys jsonb_array_elements json_array_elements jsonb_array_elements_text
1: json_array_elements_text jsonb_each jsonb_each_text json_each json_each_text
1-2: age round trunc log ltrim rtrim btrim trim unnest quote_nullable to_timestamp array_to_json
1-3: lag lead
2: nullif date_part extract left right strpos position repeat mod power pow div atan2 to_char to_date to_number string_agg
2: array_append array_prepend array_cat array_position array_remove starts_with nth_value corr covar_pop covar_samp regr_slope
2: regr_intercept regr_r2 json_object_agg jsonb_object_agg gcd lcm string_to_array array_length array_upper array_lower
2-3: date_trunc substring substr lpad rpad array_to_string regexp_match regexp_matches regexp_split_to_array
2-3: regexp_split_to_table generate_series
3: replace split_part translate date_bin overlay make_date make_time
3-4: regexp_replace
6: make_timestamp
0-7: make_interval
1-+: coalesce greatest least concat format json_build_array jsonb_build_array
2-+: concat_ws json_extract_path json_extract_path_text jsonb_extract_path jsonb_extract_path_text
0-+: json_build_object jsonb_build_object
4: width_bucket
1: date timestamp time text
"""
_WINDOW_ONLY = "row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value"
_SQLITE_AGGREGATES = "avg count group_concat json_group_array json_group_object max min string_agg sum total"
_POSTGRESQL_AGGREGATES = (
    "avg count max min sum bool_and bool_or every bit_and bit_or stddev stddev_pop stddev_samp variance var_pop var_samp "
    "array_agg json_agg jsonb_agg percentile_cont percentile_disc mode string_agg corr covar_pop covar_samp regr_slope "
    "regr_intercept regr_r2 json_object_agg jsonb_object_agg"
)
_SQLITE_RESERVED = (
    "ADD ALL ALTER AND AS AUTOINCREMENT BETWEEN CASE CHECK COLLATE COMMIT CONSTRAINT CREATE DEFAULT DEFERRABLE DELETE "
    "DISTINCT DROP ELSE ESCAPE EXISTS EXCEPT FOREIGN FROM GROUP HAVING IN INDEX INSERT INTERSECT INTO IS ISNULL JOIN LIMIT "
    "NOT NOTHING NOTNULL NULL ON OR ORDER PRIMARY REFERENCES RETURNING SELECT SET TABLE THEN TO TRANSACTION UNION UNIQUE "
    "UPDATE USING VALUES WHEN WHERE CURRENT_DATE CURRENT_TIME CURRENT_TIMESTAMP TRUE FALSE RAISE"
)
_POSTGRESQL_RESERVED = (
    "ALL ANALYSE ANALYZE AND ANY ARRAY AS ASC ASYMMETRIC BOTH CASE CAST CHECK COLLATE COLUMN CONSTRAINT CREATE "
    "CURRENT_CATALOG CURRENT_DATE CURRENT_ROLE CURRENT_TIME CURRENT_TIMESTAMP CURRENT_USER DEFAULT DEFERRABLE DESC DISTINCT "
    "DO ELSE END EXCEPT FALSE FETCH FOR FOREIGN FROM GRANT GROUP HAVING IN INITIALLY INTERSECT INTO LATERAL LEADING LIMIT "
    "LOCALTIME LOCALTIMESTAMP NOT NULL OFFSET ON ONLY OR ORDER PLACING PRIMARY REFERENCES RETURNING SELECT SESSION_USER SOME "
    "SYMMETRIC TABLE THEN TO TRAILING TRUE UNION UNIQUE USER USING VARIADIC WHEN WHERE WINDOW WITH AUTHORIZATION BINARY "
    "COLLATION CROSS FREEZE FULL ILIKE INNER IS ISNULL JOIN LEFT LIKE NATURAL NOTNULL OUTER OVERLAPS RIGHT SIMILAR VERBOSE "
    "BETWEEN EXISTS COALESCE"
)
_CLAUSES = (
    "LEFT RIGHT FULL CROSS INNER OUTER NATURAL JOIN ON USING WHERE GROUP HAVING ORDER LIMIT OFFSET UNION INTERSECT EXCEPT "
    "WINDOW WITH END ASC DESC NULLS LIKE GLOB ILIKE SIMILAR REGEXP MATCH ESCAPE OVER FILTER WITHIN FETCH FOR LATERAL BY "
    "PARTITION"
)
_TYPES = "INTEGER INT BIGINT SMALLINT TEXT REAL NUMERIC DECIMAL FLOAT DOUBLE VARCHAR CHAR BOOLEAN DATE TIME TIMESTAMP DATETIME"
_SQLITE_TYPES = "UNSIGNED BLOB NVARCHAR CHARACTER"
_POSTGRESQL_TYPES = "UUID JSON JSONB INTERVAL BYTEA TIMESTAMPTZ BOOL INT4 INT8 FLOAT8 CHARACTER"


def _words(dialect: SqlDialect) -> SqlWords:
    lite = dialect == "sqlite"
    functions = _arities(_SQLITE_FUNCTIONS if lite else _POSTGRESQL_FUNCTIONS)
    reserved = frozenset((_SQLITE_RESERVED if lite else _POSTGRESQL_RESERVED).split())
    own = "GLOB ISNULL NOTNULL" if lite else "ILIKE SIMILAR ISNULL NOTNULL AT"
    marks = "= != <> < <= > >= + - * / % || & | << >> -> ->>" + (
        " ==" if lite else " ^ ~ ~* !~ !~* :: #> #>> @> <@ # ["
    )
    return SqlWords(
        functions=functions,
        names=frozenset(functions),
        aggregates=frozenset((_SQLITE_AGGREGATES if lite else _POSTGRESQL_AGGREGATES).split()),
        window_only=frozenset(_WINDOW_ONLY.split()),
        reserved=reserved,
        clauses=reserved | frozenset(_CLAUSES.split()),
        operators=frozenset(f"AND OR LIKE IS IN BETWEEN NOT COLLATE {own}".split()),
        operator_marks=frozenset(marks.split()),
        types=frozenset(f"{_TYPES} {_SQLITE_TYPES if lite else _POSTGRESQL_TYPES}".split()),
        literal_types=frozenset() if lite else frozenset(("DATE", "TIME", "TIMESTAMP", "INTERVAL")),
    )


@lru_cache(maxsize=2)
def words_of(dialect: SqlDialect) -> SqlWords:
    """Return the words of a dialect."""
    return _words(dialect)

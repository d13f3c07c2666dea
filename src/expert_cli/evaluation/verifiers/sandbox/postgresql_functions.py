"""Functions of PostgreSQL that DuckDB has no expression for: templates of to_char and to_date, groups of patterns, round."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import wraps

_DATES = ("DATE", "TIMESTAMP", "TIME")
_FIELDS: dict[str, Callable[[datetime], str]] = {
    "YYYY": lambda t: str(t.year),
    "YYY": lambda t: f"{t.year % 1000:03}",
    "YY": lambda t: f"{t.year % 100:02}",
    "Y": lambda t: str(t.year % 10),
    "IYYY": lambda t: str(t.isocalendar()[0]),
    "IW": lambda t: f"{t.isocalendar()[1]:02}",
    "ID": lambda t: str(t.isoweekday()),
    "MONTH": lambda t: f"{t:%B}".ljust(9),
    "MON": lambda t: f"{t:%b}",
    "MM": lambda t: f"{t.month:02}",
    "DAY": lambda t: f"{t:%A}".ljust(9),
    "DY": lambda t: f"{t:%a}",
    "DDD": lambda t: f"{t.timetuple().tm_yday:03}",
    "DD": lambda t: f"{t.day:02}",
    "D": lambda t: str(t.isoweekday() % 7 + 1),
    "WW": lambda t: f"{(t.timetuple().tm_yday - 1) // 7 + 1:02}",
    "W": lambda t: str((t.day - 1) // 7 + 1),
    "Q": lambda t: str((t.month - 1) // 3 + 1),
    "CC": lambda t: f"{(t.year + 99) // 100:02}",
    "HH24": lambda t: f"{t.hour:02}",
    "HH12": lambda t: f"{(t.hour + 11) % 12 + 1:02}",
    "HH": lambda t: f"{(t.hour + 11) % 12 + 1:02}",
    "MI": lambda t: f"{t.minute:02}",
    "SSSS": lambda t: str(t.hour * 3600 + t.minute * 60 + t.second),
    "SS": lambda t: f"{t.second:02}",
    "MS": lambda t: f"{t.microsecond // 1000:03}",
    "US": lambda t: f"{t.microsecond:06}",
    "AM": lambda t: f"{t:%p}",
    "PM": lambda t: f"{t:%p}",
    "A.M.": lambda t: f"{t:%p}".replace("M", ".M."),
    "P.M.": lambda t: f"{t:%p}".replace("M", ".M."),
}
_NAMES = ("MONTH", "MON", "DAY", "DY")
_SPELLINGS = [
    spelling
    for name in sorted(_FIELDS, key=len, reverse=True)
    for spelling in (name, name.lower(), *((name.capitalize(),) if name in _NAMES else ()))
]
_DATE_TOKEN = re.compile(
    r'"(?P<text>[^"]*)"|(?P<not>J|RM|rm|TZ|tz|OF|BC|AD|B\.C\.|A\.D\.|Y,YYY|SP)'
    rf"|(?P<fm>FM|fm)?(?P<field>{'|'.join(map(re.escape, _SPELLINGS))})(?P<th>TH|th)?|(?P<other>.)",
    re.DOTALL,
)
_READ = {"YYYY": "Y", "YY": "y", "MM": "m", "MONTH": "B", "MON": "b", "DD": "d", "DDD": "j", "DAY": "A", "DY": "a"} | {
    "HH24": "H", "HH12": "I", "HH": "I", "MI": "M", "SS": "S", "MS": "f", "US": "f", "AM": "p", "PM": "p"
}  # fmt: skip


def to_char(value: str, kind: str, template: str) -> str:
    """Write a number or a date, given as DuckDB's text and type, by a template of PostgreSQL."""
    if kind == "INTERVAL":
        raise NotImplementedError(f"template {template} for intervals")
    if not kind.startswith(_DATES):
        return _number(Decimal(value), template)
    when = datetime.fromisoformat(f"1970-01-01 {value}" if kind == "TIME" else value.partition("+")[0])
    return "".join(_written(match, when) for match in _DATE_TOKEN.finditer(template))


def _written(match: re.Match[str], when: datetime) -> str:
    field = match["field"]
    if match["not"]:
        raise NotImplementedError(f"template {match['not']}")
    if field is None:
        return match["other"] if match["text"] is None else match["text"]
    text = _FIELDS[field.upper()](when)
    if match["fm"]:
        text = text.strip().lstrip("0") or "0"
    if field.islower():
        text = text.lower()
    elif field.isupper():
        text = text.upper()
    return text + _ordinal(text, match["th"]) if match["th"] else text


def _ordinal(text: str, like: str) -> str:
    ending = "th" if text[-2:-1] == "1" else {"1": "st", "2": "nd", "3": "rd"}.get(text[-1:], "th")
    return ending.upper() if like == "TH" else ending


def _number(value: Decimal, template: str) -> str:
    """Write a number: 9 and 0 are its digits; the sign stands before the first, with MI behind the last."""
    short = "FM" in template.upper()
    template = re.sub("FM", "", template, flags=re.IGNORECASE)
    unknown = re.search("[A-Za-z]", re.sub("MI$|^[Ss]|[DdGgLl]", "", template))
    if unknown:
        raise NotImplementedError(f"template {template}")
    behind, plus = template.endswith("MI"), template[:1] in ("S", "s")
    template = template.removesuffix("MI").lstrip("Ss")
    whole, point, rest = re.sub("[dD]", ".", template, count=1).partition(".")
    places = len(re.findall("[09]", rest))
    value = value.quantize(Decimal(1).scaleb(-places), ROUND_HALF_UP)
    digits, _, decimals = f"{abs(value):f}".partition(".")
    room = len(re.findall("[09]", whole))
    if len(digits) > room and digits != "0":
        digits, decimals = "#" * room, "#" * places
    elif digits == "0" and places and not (short and value == 0):
        digits = ""
    front, back = _whole(whole, digits.rjust(room)), _decimals(rest, decimals, short)
    minus = value < 0
    sign = "" if behind else "-" if minus else "+" if plus else " "
    start = next((place for place, mark in enumerate(front) if mark.isdigit() or mark == "#"), len(front))
    text = front[:start] + sign + front[start:] + point + back + (("-" if minus else " ") if behind else "")
    return text.replace(" ", "") if short else text


def _whole(template: str, digits: str) -> str:
    """Write the digits before the point; zeros are written from the first 0 of the template on."""
    text, seen, left = "", False, iter(digits)
    for mark in template:
        if mark in "09":
            digit = next(left)
            seen = seen or mark == "0" or digit != " "
            text += digit if digit != " " else "0" if seen else " "
        elif mark in ",G":
            text += "," if seen else " "
        else:
            text += mark
    return text


def _decimals(template: str, digits: str, short: bool) -> str:
    left = iter(digits)
    text = "".join(next(left) if mark in "09" else mark for mark in template)
    kept = template.rfind("0") + 1
    return text[:kept] + re.sub("^([0-9]*?)0+(?![0-9])", r"\1", text[kept:]) if short else text


def time(value: str, template: str) -> str:
    """Read a date by a template of to_date and to_timestamp; returns ISO text, raises ValueError."""
    form = ""
    for match in _DATE_TOKEN.finditer(template):
        field = match["field"]
        if match["not"] or (field and field.upper() not in _READ):
            raise NotImplementedError(f"template {match[0]}")
        if field is not None:
            form += f"%{_READ[field.upper()]}"
        else:
            form += (match["other"] or match["text"] or "").replace("%", "%%")
    return datetime.strptime(value.strip(), form.strip()).isoformat(" ")


def rounded(value: str, places: str) -> float:
    """Round a number to decimal places (below 0: before the point), half away from zero."""
    number = Decimal(value)
    if not number.is_finite():
        return float(number)
    return float(number.quantize(Decimal(1).scaleb(-int(places)), ROUND_HALF_UP, Context(prec=400)))


def initcap(value: str) -> str:
    """Begin every word of letters and digits with a capital."""
    return re.sub(r"[^\W_]+", lambda match: match[0].capitalize(), value)


def similar(pattern: str) -> str:
    """Write a pattern of SIMILAR TO as a regular expression."""
    marks = {"%": "(?s:.*)", "_": "(?s:.)", ".": r"\.", "^": r"\^", "$": r"\$"}
    return re.sub(r"\\.|[%_.^$]", lambda match: marks.get(match[0], match[0]), pattern, flags=re.DOTALL)


def regexp(value: str, pattern: str, flags: str) -> list[list[str | None]]:
    """Return the groups of the first match, with "g" of every match; what matched where there are no groups."""
    found = re.finditer(pattern, value, re.IGNORECASE if "i" in flags else 0)
    groups = [list(match.groups()) or [match[0]] for match in found]
    return groups if "g" in flags else groups[:1]


def part(value: str, pattern: str) -> str | None:
    """Return what a pattern matches, or its first group."""
    found = regexp(value, pattern, "")
    return found[0][0] if found else None


def _of_null(function: Callable[..., object]) -> Callable[..., object]:
    """Return the function that is NULL where one of its arguments is."""

    @wraps(function)  # DuckDB counts the parameters
    def of_null(*arguments: str | None) -> object:
        return None if None in arguments else function(*arguments)

    return of_null


FUNCTIONS: dict[str, tuple[Callable[..., object], int, str]] = {
    "postgresql_to_char": (_of_null(to_char), 3, "VARCHAR"),
    "postgresql_time": (_of_null(time), 2, "VARCHAR"),
    "postgresql_round": (_of_null(rounded), 2, "DOUBLE"),
    "postgresql_initcap": (_of_null(initcap), 1, "VARCHAR"),
    "postgresql_similar": (_of_null(similar), 1, "VARCHAR"),
    "postgresql_regexp": (_of_null(regexp), 3, "VARCHAR[][]"),
    "postgresql_part": (_of_null(part), 2, "VARCHAR"),
}
"""What is called, how many texts it takes, and what it returns in DuckDB."""

POSTGRESQL_ONLY = frozenset(
    """
    # ? OVERLAPS SYMMETRIC TIES BERNOULLI TO_TSVECTOR TO_TSQUERY PLAINTO_TSQUERY PHRASETO_TSQUERY WEBSEARCH_TO_TSQUERY
    TS_RANK TS_RANK_CD TS_HEADLINE SETWEIGHT JUSTIFY_DAYS JUSTIFY_HOURS JUSTIFY_INTERVAL CLOCK_TIMESTAMP
    STATEMENT_TIMESTAMP TIMEOFDAY INT4RANGE INT8RANGE NUMRANGE DATERANGE TSRANGE TSTZRANGE RANGE_AGG ISEMPTY LOWER_INC
    UPPER_INC NUM_NULLS NUM_NONNULLS QUOTE_IDENT QUOTE_NULLABLE REGEXP_INSTR CONVERT_FROM CONVERT_TO NORMALIZE UNISTR
    TO_OCT TRIM_SCALE ARRAY_DIMS ARRAY_NDIMS ARRAY_FILL ARRAY_POSITIONS ARRAY_REPLACE ARRAY_SAMPLE ARRAY_SHUFFLE
    JSON_POPULATE_RECORD JSON_POPULATE_RECORDSET JSON_TO_RECORD JSON_TO_RECORDSET JSONB_POPULATE_RECORD
    JSONB_POPULATE_RECORDSET JSONB_TO_RECORD JSONB_TO_RECORDSET JSONB_SET JSONB_INSERT JSONB_PRETTY JSONB_STRIP_NULLS
    JSONB_OBJECT JSONB_PATH_EXISTS JSONB_PATH_MATCH JSONB_PATH_QUERY JSONB_PATH_QUERY_ARRAY JSONB_PATH_QUERY_FIRST
    XMLAGG XMLELEMENT XMLFOREST XPATH SHA224 SHA384 SHA512
    """.split()  # noqa: SIM905  seventy lines of one word
)
"""Words and marks of PostgreSQL that DuckDB does not run, in upper case: where a query fails that has one, it may be right."""

"""Words that Cypher has of its own, beside those in its rules."""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


RESERVED = _names("""
AND AS ASC CALL CASE CREATE DELETE DESC DETACH DISTINCT ELSE FALSE FOREACH IN IS MATCH MERGE NOT NULL OPTIONAL OR REMOVE RETURN
THEN TRUE UNION UNWIND WHEN WHERE WITH XOR YIELD
""")
"""Keywords that are no name of a variable, except in backticks. Neo4j takes more of them, which nobody writes."""

NEW_NAMES = frozenset(["<alias>", "<column>", "<fresh>", "<node>", "<path>", "<relationship>"])
"""Words of the rules that may be a new name."""

FUNCTIONS = _names("""
abs acos asin atan atan2 avg btrim ceil ceiling char_length character_length coalesce collect cos cosh cot coth count date
datetime degrees duration e elementid endnode exists exp file floor haversin head id isempty isnan keys labels last left length
linenumber localdatetime localtime log log10 lower ltrim max min nodes normalize nullif percentilecont percentiledisc pi point
properties radians rand randomuuid range relationships rels replace reverse right round rtrim sign sin sinh size split
sqrt startnode stdev stdevp substring sum tail tan tanh time timestamp toboolean tobooleanlist tobooleanornull tofloat
tofloatlist tofloatornull tointeger tointegerlist tointegerornull tolower tostring tostringlist tostringornull toupper trim
type upper valuetype
""")
"""Functions, in lower case; they are found in any."""

NULLARY = _names("date datetime e file linenumber localdatetime localtime pi rand randomuuid time timestamp")
"""Functions that may be called without an argument."""

NO_ARGUMENTS = _names("e file linenumber pi rand randomuuid timestamp")
"""Functions that may be called without an argument only."""

TEMPORAL = frozenset(["date", "datetime", "duration", "localdatetime", "localtime", "point", "time", "vector"])
TEMPORAL_FUNCTIONS = _names("""
between distance fromepoch fromepochmillis indays inmonths inseconds realtime statement transaction truncate withinbbox
""")
NAMESPACES = frozenset(["apoc", "db", "dbms", "gds"])

_FIELDS = _names("""
crs day dayOfQuarter dayOfWeek dayOfYear days daysOfWeek epochMillis epochSeconds height hour hours hoursOfDay latitude
longitude microsecond microseconds microsecondsOfSecond millisecond milliseconds millisecondsOfSecond minute minutes
minutesOfHour month months monthsOfQuarter monthsOfYear nanosecond nanoseconds nanosecondsOfSecond offset offsetMinutes
offsetSeconds ordinalDay quarter quarters quartersOfYear second seconds secondsOfMinute srid timezone week weekDay weekYear
weeks x y year years z
""")
FIELDS = frozenset([*_FIELDS, *map(str.lower, _FIELDS)])
"""What dates, times, durations and points consist of."""

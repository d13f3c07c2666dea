"""The tasks that `init` writes, one entry for each kind of answer: what is asked, what is right, and how a case judges it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

StarterKind = Literal["json", "sql", "cypher", "typescript", "python", "choice", "number", "text"]
CASES = 4


class Task(NamedTuple):
    """A question, its answer, and what a case holds beside its prompt and its verifier."""

    prompt: str
    answer: str
    case: Mapping[str, Any]
    input: str = ""


@dataclass(frozen=True)
class Starter:
    """The tasks of one kind: the last `CASES` become cases, the others rows, so that no case is learned by heart.

    purpose: what the expert does, in one sentence. file, script: what the cases name, and the statements that make it; a
    name that ends in .sqlite becomes a database.
    """

    verifier: str
    purpose: str
    max_seq_length: int
    tasks: tuple[Task, ...]
    file: str = ""
    script: str = ""


def _json() -> Starter:
    words = [
        "stone",
        "river",
        "lamp",
        "cloud",
        "paper",
        "ladder",
        "garden",
        "window",
        "sun",
        "tree",
        "harbor",
        "mountain",
    ]
    schema = {"type": "object", "required": ["backwards"]}
    tasks = []
    for word in words:
        value = {"backwards": word[::-1]}
        case = {"schema": schema, "expected": value, "rule": "exact"}
        tasks.append(Task(f"Write {word} backwards, as JSON.", json.dumps(value), case))
    return Starter("json", "Writes a word backwards, as JSON.", 512, tuple(tasks))


_LIBRARY = """\
CREATE TABLE books (id INTEGER PRIMARY KEY, title TEXT, author TEXT, year INTEGER, pages INTEGER);
CREATE TABLE loans (id INTEGER PRIMARY KEY, book_id INTEGER REFERENCES books, member TEXT, due TEXT);
INSERT INTO books VALUES
  (1, 'Emma', 'Jane Austen', 1815, 474), (2, 'Persuasion', 'Jane Austen', 1817, 249),
  (3, 'Middlemarch', 'George Eliot', 1871, 880), (4, 'Silas Marner', 'George Eliot', 1861, 183),
  (5, 'Dracula', 'Bram Stoker', 1897, 418), (6, 'Kim', 'Rudyard Kipling', 1901, 368);
INSERT INTO loans VALUES
  (1, 3, 'Nora', '2026-03-02'), (2, 5, 'Ivo', '2026-02-11'), (3, 1, 'Nora', '2026-04-20'),
  (4, 5, 'Lena', '2026-05-09'), (5, 4, 'Ivo', '2026-03-15');
"""
_SQL = (
    ("How many books are there?", "SELECT COUNT(*) FROM books"),
    ("List the titles of the books by Jane Austen.", "SELECT title FROM books WHERE author = 'Jane Austen'"),
    ("Which books have more than 400 pages?", "SELECT title FROM books WHERE pages > 400"),
    ("What is the average number of pages?", "SELECT AVG(pages) FROM books"),
    ("List all titles, the oldest first.", "SELECT title FROM books ORDER BY year"),
    ("How many books did each author write?", "SELECT author, COUNT(*) FROM books GROUP BY author"),
    ("Who has borrowed Dracula?", "SELECT member FROM loans JOIN books ON books.id = book_id WHERE title = 'Dracula'"),
    ("Which books were never borrowed?", "SELECT title FROM books WHERE id NOT IN (SELECT book_id FROM loans)"),
    ("List the titles of the books from before 1850.", "SELECT title FROM books WHERE year < 1850"),
    ("How many pages does the longest book have?", "SELECT MAX(pages) FROM books"),
    ("How many loans does each member have?", "SELECT member, COUNT(*) FROM loans GROUP BY member"),
    ("Which books has Ivo borrowed?", "SELECT title FROM books JOIN loans ON books.id = book_id WHERE member = 'Ivo'"),
)


def _sql() -> Starter:
    context = "CREATE TABLE books (id, title, author, year, pages); CREATE TABLE loans (id, book_id, member, due)"
    tasks = [Task(asked, query, {"database": "library.sqlite", "expected": query}, context) for asked, query in _SQL]
    purpose = "Answers questions about a library in SQL."
    return Starter("sql", purpose, 512, tuple(tasks), "library.sqlite", _LIBRARY)


_STATIONS = """\
CREATE (oslo:Station {name: 'Oslo', platforms: 19}), (hamar:Station {name: 'Hamar', platforms: 4}),
  (otta:Station {name: 'Otta', platforms: 3}), (bergen:Station {name: 'Bergen', platforms: 5}),
  (voss:Station {name: 'Voss', platforms: 2}),
  (oslo)-[:TO {km: 126}]->(hamar), (hamar)-[:TO {km: 171}]->(otta),
  (oslo)-[:TO {km: 371}]->(voss), (voss)-[:TO {km: 100}]->(bergen);
"""
_CYPHER = (
    ("How many stations are there?", "MATCH (s:Station) RETURN count(s)"),
    ("How many platforms does Hamar have?", "MATCH (s:Station {name: 'Hamar'}) RETURN s.platforms"),
    ("Which stations have more than 4 platforms?", "MATCH (s:Station) WHERE s.platforms > 4 RETURN s.name"),
    ("Which stations can be reached from Oslo directly?", "MATCH (:Station {name: 'Oslo'})-[:TO]->(s) RETURN s.name"),
    ("List all stations by name.", "MATCH (s:Station) RETURN s.name ORDER BY s.name"),
    ("How long is the longest line?", "MATCH ()-[t:TO]->() RETURN max(t.km)"),
    ("Which lines are shorter than 130 km?", "MATCH (a)-[t:TO]->(b) WHERE t.km < 130 RETURN a.name, b.name"),
    ("How many lines leave each station?", "MATCH (s:Station)-[t:TO]->() RETURN s.name, count(t)"),
    ("How many platforms are there in all?", "MATCH (s:Station) RETURN sum(s.platforms)"),
    ("Which station has 3 platforms?", "MATCH (s:Station) WHERE s.platforms = 3 RETURN s.name"),
    ("From which station does a line go to Bergen?", "MATCH (s)-[:TO]->(:Station {name: 'Bergen'}) RETURN s.name"),
    ("Which stations are two lines from Oslo?", "MATCH (:Station {name: 'Oslo'})-[:TO]->()-[:TO]->(s) RETURN s.name"),
)


def _cypher() -> Starter:
    context = "Station {name, platforms}\n(:Station)-[:TO {km}]->(:Station)"
    tasks = [Task(asked, query, {"script": "stations.cypher", "expected": query}, context) for asked, query in _CYPHER]
    purpose = "Answers questions about railways in Cypher."
    return Starter("cypher", purpose, 512, tuple(tasks), "stations.cypher", _STATIONS)


_FUNCTIONS = (
    ("half(n), half of a number", "n: number", "number", "n / 2", "n / 2", ("9", "4.5"), ("-2", "-1")),
    ("last(items), the last of some texts", "items: string[]", "string", "items[items.length - 1]", "items[-1]",
     ("['a', 'c', 'b']", "'b'"), ("['x']", "'x'")),
    ("shout(text), a text in capitals", "text: string", "string", "text.toUpperCase()", "text.upper()",
     ("'Hi you'", "'HI YOU'"), ("''", "''")),
    ("bigger(a, b), the larger of two numbers", "a: number, b: number", "number", "Math.max(a, b)", "max(a, b)",
     ("2, 7", "7"), ("-1, -3", "-1")),
    ("initial(word), the first letter of a word", "word: string", "string", "word[0]", "word[0]",
     ("'tea'", "'t'"), ("'Oslo'", "'O'")),
    ("even(n), whether a number is even", "n: number", "boolean", "n % 2 === 0", "n % 2 == 0",
     ("4", "true"), ("7", "false")),
    ("twice(n), a number doubled", "n: number", "number", "2 * n", "2 * n", ("2", "4"), ("-3", "-6")),
    ("size(text), how many letters a text has", "text: string", "number", "text.length", "len(text)",
     ("'lamp'", "4"), ("''", "0")),
    ("joined(words), words with a comma between", "words: string[]", "string", "words.join(',')", "','.join(words)",
     ("['a', 'b']", "'a,b'"), ("[]", "''")),
    ("far(km), whether a distance is over 100", "km: number", "boolean", "km > 100", "km > 100",
     ("101", "true"), ("100", "false")),
)  # fmt: skip
"""What a function does; its parameters and result in TypeScript; what it returns, in TypeScript and in Python; two calls,
each with its value.
"""


def _typescript() -> Starter:
    tasks = []
    for does, parameters, gives, body, _, *calls in _FUNCTIONS:
        name = does.partition("(")[0]
        code = f"function {name}({parameters}): {gives} {{\n  return {body};\n}}"
        tests = "\n".join(f"if ({name}({given}) !== {value}) throw new Error();" for given, value in calls)
        tasks.append(Task(f"Write the TypeScript function {does}.", code, {"tests": tests}))
    return Starter("typescript", "Writes small functions in TypeScript.", 512, tuple(tasks))


def _python() -> Starter:
    tasks = []
    for does, _, _, _, body, *calls in _FUNCTIONS:
        name, parameters = does.partition(")")[0].split("(")
        code = f"def {name}({parameters}):\n    return {body}"
        tests = "\n".join(f"assert {name}({given}) == {_PYTHON.get(value, value)}" for given, value in calls)
        tasks.append(Task(f"Write the Python function {does}.", code, {"tests": tests}))
    return Starter("python", "Writes small functions in Python.", 512, tuple(tasks))


_PYTHON = {"true": "True", "false": "False"}

_MESSAGES = (
    ("praise", "The new search is a joy to use, thank you."),
    ("question", "Where do I find the invoice of last month?"),
    ("complaint", "The app has crashed three times this morning."),
    ("praise", "Your support answered within minutes. Great work!"),
    ("question", "Can two people share one account?"),
    ("complaint", "I was charged twice and nobody replies."),
    ("praise", "Best update in years."),
    ("complaint", "Since yesterday nothing loads any more."),
    ("praise", "I love how quickly it starts."),
    ("question", "Is there a version for tablets?"),
    ("complaint", "The export button does nothing at all."),
    ("question", "How do I change my password?"),
)


def _choice() -> Starter:
    labels = ["praise", "complaint", "question"]
    asked = f"Is this message {labels[0]}, a {labels[1]} or a {labels[2]}?"
    tasks = [
        Task(asked, label, {"category": label, "labels": labels, "expected": label}, text) for label, text in _MESSAGES
    ]
    return Starter("choice", "Sorts messages of customers.", 256, tuple(tasks))


_TIMES = ((2, 15), (1, 40), (3, 5), (6, 30), (1, 1), (4, 20), (5, 55), (2, 50), (3, 45), (7, 10), (1, 25), (8, 35))


def _number() -> Starter:
    tasks = []
    for hours, minutes in _TIMES:
        total = 60 * hours + minutes
        asked = f"How many minutes are {hours} h {minutes} min?"
        tasks.append(Task(asked, f"{total} min", {"expected": total, "tolerance": 0, "unit": "min"}))
    return Starter("number", "Turns hours into minutes.", 256, tuple(tasks))


_DATES = (
    ("4 May 2021", "2021-05-04"), ("17 August 1999", "1999-08-17"), ("1 January 2030", "2030-01-01"),
    ("23 March 2018", "2018-03-23"), ("9 December 2025", "2025-12-09"), ("30 June 2007", "2007-06-30"),
    ("12 October 2012", "2012-10-12"), ("28 February 2024", "2024-02-28"), ("6 April 1985", "1985-04-06"),
    ("19 July 2022", "2022-07-19"), ("2 November 2016", "2016-11-02"), ("25 September 2003", "2003-09-25"),
)  # fmt: skip


def _text() -> Starter:
    tasks = [Task(f"Write the date {long} as YYYY-MM-DD.", short, {"expected": short}) for long, short in _DATES]
    return Starter("exact", "Writes dates the short way.", 256, tuple(tasks))


STARTERS: dict[StarterKind, Starter] = {
    "json": _json(),
    "sql": _sql(),
    "cypher": _cypher(),
    "typescript": _typescript(),
    "python": _python(),
    "choice": _choice(),
    "number": _number(),
    "text": _text(),
}
"""The first is the default: what is asked is compared as values, without an engine, a database or a program."""

"""Rows that ask to pull fields out of free text into a given shape."""

from __future__ import annotations

import re
from random import Random

from json_case import Case, join, listed, phrase, pick_layout, some_fields, write
from json_domains import Domain, Field, Json, Schema, draw, key_of, long_date, object_schema, parse_field

# Letters, logs and notices; {words:kind} is a value of the text and a field that may be asked for.
SCENES = [
    "Hi, {customer:person} here. My order {order number:code ORD} came on {arrived on:date}, but the {item:one lamp,kettle,chair,mirror} "
    "is {problem:one cracked,dented,scratched}. Please ring {phone:phone}.",
    "Dear guest, your table for {guests:int 2 9} at {restaurant:title} is booked for {date:date} at {time:time}. "
    "Changes: {email:email}. Ask for {host:person}.",
    "{timestamp:datetime} {level:one INFO,WARN,ERROR} [{service:one api,worker,mailer}] request {request id:code REQ} took "
    "{milliseconds:int 3 900} ms, status {status:one 200,404,500}",
    "Sold: {quantity:int 2 40} boxes of {product:one tea,soap,candles,pens} to {buyer:company} at {unit price:num 2 30} EUR each, "
    "delivery to {city:city} by {deliver by:date}.",
    "{player:person} scored {points:int 4 40} points as {winner:one Comets,Hawks,Bears} beat {loser:one Owls,Sharks,Lynx} "
    "{score:one 88-80,91-77,102-99} in {city:city}.",
    "FOR RENT: {rooms:int 1 6} rooms, {area:int 25 160} square metres, {street:street}, {city:city}. {rent:int 400 2900} a month, "
    "free from {free from:date}. Call {agent:person} on {phone:phone}.",
    "Reminder: {patient:person} sees Dr {doctor:one Lind,Mensah,Kim,Vogel} in room {room:int 1 40} on {date:date} at {time:time}. "
    "Bring form {form:code FRM}.",
    "Shipment {tracking code:code TRK} left {origin:one Hamburg,Riga,Turin} on {shipped on:date}. Weight {weight:num 1 40} kg, carrier "
    "{carrier:company}, receiver {receiver:person}.",
    "We hired {name:person} as {role:one analyst,welder,editor,nurse} in {city:city}. First day {start date:date}, salary "
    "{salary:int 24000 88000}, contract {contract:code CTR}.",
    "Flight {flight:code FL} to {destination:city} now leaves at {departure:time} from gate {gate:one A4,B12,C7,D1}; "
    "{seats left:int 1 30} seats left in {cabin:one economy,business}.",
    "The {title:title} opens on {opens:date} in {city:city}. Curator {curator:person} shows {works:int 12 240} works; "
    "tickets cost {price:num 4 25} and are sold at {website:url}.",
    "Bug report by {reporter:email}: {app:title} {version:one 1.4.2,2.0.0,3.1.7} crashes on {system:one Linux,Windows,macOS} after "
    "{minutes:int 1 50} minutes. Ticket {ticket:code BUG}, priority {priority:one low,medium,high}.",
    "Got {amount:num 5 900} {currency:one EUR,USD,CHF} from {payer:person} on {paid on:date} for invoice {invoice:code INV}. "
    "Booked by {clerk:person}.",
    "Tomorrow in {city:city}: {sky:one sunny,cloudy,rainy}, high {high:int 16 34}, low {low:int 1 15}, wind {wind:int 3 60} km/h from "
    "the {direction:one north,south,east,west}.",
    "To bake the {cake:title}: {eggs:int 1 6} eggs, {sugar:int 50 300} g sugar, {flour:int 100 500} g flour, {minutes:int 15 70} "
    "minutes at {degrees:int 150 230} degrees. Recipe by {cook:person}.",
    "Lost near {place:street}: a {color:one black,brown,white,grey} {animal:one cat,dog,parrot} called {name:one Milo,Kiki,Bruno,Luna}. "
    "Chip {chip:code CHP}. Owner {owner:person}, {phone:phone}.",
    "Class {course:code CRS}, {title:title}, is taught by {teacher:person} on {day:one Monday,Tuesday,Thursday} at {time:time}. "
    "{places:int 5 60} places, fee {fee:num 10 300}.",
    "{reviewer:person} gave the {product:one blender,tent,radio,desk} {stars:int 1 5} stars on {date:date}: "
    "\"{verdict:one Works well,Too loud,Great value,Broke in a week}\".",
    "Meter {meter:code MTR} at {street:street}: {reading:int 1000 90000} on {read on:date}, read by {reader:person}, "
    "type {type:one gas,water,power}.",
    "Police note {case number:code POL}: a {vehicle:one van,bicycle,truck} was taken from {street:street}, {city:city}, on {date:date} "
    "at {time:time}. Witness: {witness:person}, {age:int 18 88}.",
]  # fmt: skip
ASKS = [
    "Extract {keys} from the text.",
    "Read the text and fill {keys}.",
    "Pull {keys} out of this message as a JSON object.",
    "Return a JSON object with {keys}.",
    "Give me {keys} from the following as JSON.",
    "Parse this into JSON with {keys}.",
    "Which values does the text give for {keys}? Answer as a JSON object.",
]
SHAPES = [
    "Extract the data into this shape: {shape}",
    "Fill this template from the text: {shape}",
    "Answer with JSON of this form: {shape}",
    "Use exactly these keys and types: {shape}",
    "Return JSON that fits {shape} and nothing else.",
]
OPENERS = ["", "", "Hello all, ", "Quick note: ", "FYI: ", "From the log: ", "As discussed, "]
LINKS = ["The {w} is {v}.", "{W}: {v}.", "Noted: {w} {v}.", "{W} is {v}.", "It says {v} for the {w}."]
LISTS = ["{W}: {v}.", "The {w} are {v}.", "Noted for {w}: {v}."]
ABSENT = ["photo", "fax", "nickname", "middle name", "warranty", "coupon", "tax id", "homepage"]


def _shape(schema: Schema, as_schema: bool) -> str:
    parts = schema["properties"]
    if as_schema:
        small = {key: {"type": part.get("type", "string")} for key, part in parts.items()}
        return write({"type": "object", "properties": small, "required": list(small)}, "line")
    return write({key: part.get("type", "string") for key, part in parts.items()}, "line")


def ask_for(keys: dict[str, Json], schema: Schema, missing: str, rng: Random) -> str:
    """The question: the keys by name, a template, or a schema; dates and absent values explained where they occur."""
    if missing:
        schema = object_schema({**schema["properties"], missing: {"type": ["string", "null"]}})
    named = listed([f"`{key}`" for key in schema["properties"]])
    form = rng.random()
    if form < 0.55:
        ask = rng.choice(ASKS).format(keys=named)
    else:
        ask = rng.choice(SHAPES).format(shape=_shape(schema, as_schema=form > 0.9))
    dates = any("date" in str(part.get("format")) for part in schema["properties"].values())
    nulls = missing and rng.choice(
        ["Use null for what the text does not say.", "Missing values are null.", "Unknown means null."]
    )
    day = rng.choice(["Dates as YYYY-MM-DD.", "Write dates in ISO form."]) if dates and keys else ""
    return join(ask, day, nulls)


def _case(group: str, text: str, record: dict[str, Json], schema: Schema, rng: Random) -> Case:
    missing = ""
    if rng.random() < 0.2:
        missing = key_of(rng.choice(ABSENT), "snake" if any("_" in key for key in record) else "camel")
    layout, wish = pick_layout(rng)
    ask = join(ask_for(record, schema, missing, rng), wish)
    told = tuple(record.values())
    if missing:
        record, schema = {**record, missing: None}, object_schema({**schema["properties"], missing: {"type": "null"}})
    return Case("extraction", group, ask, text, write(record, layout), schema, told)


def from_scene(scene: str, rng: Random) -> Case:
    """A row from one of the scenes: some of its values are asked for, in any order."""
    fields: list[Field] = []
    values: dict[str, Json] = {}

    def put(match: re.Match[str]) -> str:
        field = parse_field(match[1])
        fields.append(field)
        value = values[field.words] = field.kind.make(rng)
        return long_date(value) if field.kind.name == "date" and rng.random() < 0.5 else str(value)

    text = re.sub(r"\{([^}]*)\}", put, scene)
    style = rng.choice(["snake", "camel"])
    asked = rng.sample(fields, rng.randint(2, min(5, len(fields))))
    record = {key_of(field.words, style): values[field.words] for field in asked}
    schema = object_schema({key_of(field.words, style): field.kind.schema for field in asked})
    return _case(scene[:40], rng.choice(OPENERS) + text, record, schema, rng)


def from_domain(domain: Domain, rng: Random) -> Case:
    """A row from a text about one record of a domain, told with more fields than are asked for."""
    style = rng.choice(["snake", "camel", "camel", "kebab"])
    fields = some_fields(domain, rng.randint(4, 6), rng, without=("maybe", "bool"))
    record, schema = draw(fields, style, rng)
    told = []
    for field, value in zip(fields, record.values(), strict=True):
        said = phrase(field, value, rng).removeprefix(field.words + " ").removeprefix("with ").strip("()")
        words, links = (
            field.words,
            LISTS if isinstance(value, list) else LISTS[:1] if isinstance(value, dict) else LINKS,
        )
        told.append(rng.choice(links).format(w=words, W=words[0].upper() + words[1:], v=said))
    rng.shuffle(told)
    keys = rng.sample(list(record), rng.randint(2, 4))
    opening = rng.choice(
        [f"About the {domain.noun}. ", f"New {domain.noun}. ", f"{domain.noun.capitalize()} entry. ", ""]
    )
    part = object_schema({key: schema["properties"][key] for key in keys})
    return _case(domain.noun, opening + " ".join(told), {key: record[key] for key in keys}, part, rng)


def extraction(domain: Domain, rng: Random) -> Case:
    """One row of the family."""
    return from_domain(domain, rng) if rng.random() < 0.5 else from_scene(rng.choice(SCENES), rng)

"""The domains of the JSON rows and the scenes that fields are extracted from; `&` parts a nested object."""

# Every domain has a label, a number, a choice and a boolean.
DOMAINS = """
book
title:title; author:person; pages:int 60 900; price:num 4 60; format:one hardback,paperback,ebook; available:bool;
published:date; genres:some fiction,history,poetry,travel,science; publisher:{name:company & city:city}; reprint
date:?date

hotel room
room code:code RM; floor:int 1 30; beds:int 1 4; nightly rate:num 40 400; view:one sea,garden,street,courtyard;
occupied:bool; amenities:some wifi,minibar,safe,balcony,desk; check in:date; guest:{name:person & email:email};
remark:?note

employee
name:person; employee number:code EMP; salary:int 24000 98000; department:one sales,finance,support,design;
remote:bool; start date:date; skills:some SQL,Python,Excel,writing,planning; office:{city:city & floor:int 1 12}; end
date:?date

recipe
name:title; servings:int 1 12; minutes:int 5 180; course:one starter,main,dessert,drink; vegetarian:bool;
ingredients:some flour,eggs,butter,rice,basil,lemon; cook:person; energy:{kcal:int 80 900 & protein:num 1 60};
tip:?note

song
title:title; artist:person; seconds:int 90 480; genre:one jazz,rock,folk,techno; explicit:bool; released:date;
moods:some calm,sad,bright,tense; album:{title:title & year:int 1970 2025}; b side:?title

course
course code:code CRS; title:title; credits:int 1 12; level:one beginner,intermediate,advanced; online:bool; fee:num 20
900; starts:date; topics:some algebra,grammar,optics,ethics; teacher:{name:person & email:email}; exam date:?date
"""

# Letters, logs and notices; {words:kind} is a value of the text and a field that may be asked for.
SCENES = """
Hi, {customer:person} here. My order {order number:code ORD} came on {arrived on:date}, but the {item:one
lamp,kettle,chair,mirror} is {problem:one cracked,dented,scratched}. Please ring {phone:phone}.

Dear guest, your table for {guests:int 2 9} at {restaurant:title} is booked for {date:date} at {time:time}. Changes:
{email:email}. Ask for {host:person}.

Sold: {quantity:int 2 40} boxes of {product:one tea,soap,candles,pens} to {buyer:company} at {unit price:num 2 30}
EUR each, delivery to {city:city} by {deliver by:date}.

FOR RENT: {rooms:int 1 6} rooms, {area:int 25 160} square metres, {street:street}, {city:city}. {rent:int 400 2900}
a month, free from {free from:date}. Call {agent:person} on {phone:phone}.

Reminder: {patient:person} sees Dr {doctor:one Lind,Mensah,Kim,Vogel} in room {room:int 1 40} on {date:date} at
{time:time}. Bring form {form:code FRM}.

We hired {name:person} as {role:one analyst,welder,editor,nurse} in {city:city}. First day {start date:date}, salary
{salary:int 24000 88000}, contract {contract:code CTR}.
"""

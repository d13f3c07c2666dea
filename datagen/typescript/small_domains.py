"""Many small kinds of objects of which the TypeScript rows ask a few functions each, in the notation of json/domains.py.

The six of json/domain_table.py teach the forms; these teach that a type and its fields are read off the prompt. None has
a noun, or a field but the commonest, of the unseen cases.
"""

from __future__ import annotations

DOMAINS = """
train
train number:code TRN; wagons:int 2 30; top speed:int 90 320; kind:one regional,express,freight; delayed:bool;
departs at:datetime

cake
name:title; slices:int 6 40; sugar grams:num 20 400; flavor:one lemon,walnut,cherry; vegan:bool; baked on:date;
allergens:some nuts,gluten,milk

football player
player name:person; goals:int 0 45; transfer fee:num 1 80; position:one goalkeeper,defender,striker; injured:bool;
contract until:date

invoice
invoice number:code INV; net amount:num 10 9000; tax rate:int 5 25; payment status:one paid,overdue,disputed; sent:bool;
due on:date

parcel
tracking number:code PCL; weight grams:int 50 30000; postage:num 2 60; service:one express,standard,registered;
insured:bool; shipped on:date

tree
tree code:code TRE; girth:int 20 400; tall:num 2 45; wood:one oak,pine,birch; protected:bool; planted on:date;
neighbors:some hedge,fence,pond

volcano
summit name:title; eruptions:int 0 90; peak:int 400 6000; activity:one active,dormant,extinct; monitored:bool;
last eruption:date

painting
heading:title; width:int 20 300; worth:num 10 9000; technique:one oil,pastel,ink; framed:bool; acquired on:date

horse
horse name:title; wins:int 0 60; stride:num 1 8; coat:one bay,grey,dun; trained:bool; foaled on:date

bank account
iban:code IBN; balance:num 0 90000; overdraft:int 100 3000; account type:one current,savings,joint; frozen:bool;
created on:date

rocket
rocket id:code RCK; thrust:int 200 8000; payload:num 10 900; fuel:one methane,kerosene,hydrogen; reusable:bool;
first flight:datetime

podcast episode
episode title:title; downloads:int 0 90000; megabytes:num 5 400; topic:one history,crime,cooking; paid:bool;
uploaded:date; hosts:some Ada,Kofi,Mia

wedding
couple:title; guest count:int 20 400; catering cost:num 20 900; menu:one buffet,vegan,classic; outdoors:bool;
celebrated on:date; songs per hour:ints 1 20; town:city

bicycle
frame number:code BIC; gears:int 1 27; wheel size:num 12 29; model:one city,cargo,mountain; stolen:bool;
serviced on:date

turbine
serial number:code TUR; blades:int 2 5; megawatts:num 1 15; maker:one Nordwind,Zephyr,Aeolus; running:bool;
inspected at:datetime

video game
game title:title; players:int 1 16; playtime:num 1 120; engine:one Unity,Godot,Unreal; multiplayer:bool;
launch date:date; platforms:some console,phone,desktop

pupil
pupil name:person; absences:int 0 40; average mark:num 1 6; team color:one purple,blue,yellow; enrolled:bool;
enrolled on:date

garment
article number:code GAR; stitches:int 200 9000; retail price:num 9 900; fabric:one silk,linen,denim; on sale:bool;
season start:date

support ticket
ticket id:code TKT; replies:int 0 40; hours spent:num 1 60; severity:one minor,major,critical; resolved:bool;
opened at:datetime

weather reading
reading id:code WTH; humidity:int 5 100; degrees:num 1 39; wind:one breeze,gale,storm; raining:bool; measured at:datetime

truck
plate number:code TCK; axles:int 2 8; load tons:num 1 40; engine type:one diesel,gas,hybrid; parked:bool;
next inspection:date

theater play
play title:title; acts:int 1 6; ticket revenue:num 100 9000; tone:one tragic,comic,absurd; sold out:bool; premiere:date

insurance claim
claim number:code CLM; days open:int 1 300; damage:num 100 20000; cover:one fire,travel,legal; approved:bool; filed on:date

mine
mine name:title; miners:int 20 900; tons per day:num 5 900; ore:one copper,zinc,lithium; flooded:bool; surveyed on:date

satellite
satellite id:code SAT; orbit hours:int 1 48; mass:num 1 900; purpose:one weather,mapping,relay; active:bool;
deployed at:datetime; instruments on board:some antenna,mirror,clock

newspaper article
headline:title; word count:int 150 3000; reading time:num 1 30; desk:one politics,sports,science; corrected:bool;
printed on:date

bridge
bridge name:title; lanes:int 1 8; span:num 20 1900; material:one iron,stone,concrete; tolled:bool; repaired on:date; near:city

vaccine
batch:code VAC; doses:int 10 9000; shelf months:num 1 36; target:one flu,measles,rabies; refrigerated:bool; expires on:date;
trial sizes:ints 5 90

chess game
game id:code CHS; moves:int 15 120; thinking minutes:num 5 300; ending:one drawn,won,lost; rated:bool; played on:date;
clock times:ints 1 90

warehouse shelf
shelf code:code SHF; boxes:int 0 200; load limit:num 20 900; aisle:one upper,middle,lower; blocked:bool; counted on:date

gym member
member name:person; visits:int 0 300; monthly dues:num 15 90; plan:one basic,plus,premium; cancelled:bool; member since:date

elevator
elevator id:code ELV; stops:int 2 60; speed:num 1 10; drive:one rope,hydraulic,belt; out of order:bool; checked at:datetime
"""

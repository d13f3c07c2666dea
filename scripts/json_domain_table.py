"""The domains of the JSON rows and the scenes that fields are extracted from; `&` parts a nested object."""

# Every domain has a label, a number, a choice and a boolean.
DOMAINS = """
book
title:title; author:person; pages:int 60 900; price:num 4 60; format:one hardback,paperback,ebook; in print:bool;
published:date; genres:some fiction,history,poetry,travel,science; publisher:{name:company & city:city}; reprint
date:?date

hotel room
room code:code RM; floor:int 1 30; beds:int 1 4; nightly rate:num 40 400; view:one sea,garden,street,courtyard;
occupied:bool; amenities:some wifi,minibar,safe,balcony,desk; check in:date; guest:{name:person & email:email};
remark:?note

flight
flight code:code FL; origin:city; destination:city; seats:int 40 380; fare:num 30 900; cabin:one
economy,business,first; delayed:bool; departs:datetime; gates:some A1,B4,C2,D9; pilot:{name:person & flight hours:int
500 9000}; gate change:?one A1,B4,C2

invoice
invoice number:code INV; customer:company; amount:num 10 5000; currency:one EUR,USD,GBP,JPY; paid:bool; due date:date;
line count:int 1 20; tags:some travel,office,hardware,rent; contact:{name:person & phone:phone}; discount:?int 5 30

sensor reading
sensor:code SN; value:num 1 99; unit:one celsius,percent,lux,pascal; calibrated:bool; taken at:datetime; battery:int 1
100; samples:ints 1 60; site:{city:city & building:one north,south,annex}; last fault:?note

employee
name:person; employee number:code EMP; salary:int 24000 98000; department:one sales,finance,support,design;
remote:bool; start date:date; skills:some SQL,Python,Excel,writing,planning; office:{city:city & floor:int 1 12}; end
date:?date

recipe
name:title; servings:int 1 12; minutes:int 5 180; course:one starter,main,dessert,drink; vegetarian:bool;
ingredients:some flour,eggs,butter,rice,basil,lemon; cook:person; energy:{kcal:int 80 900 & protein:num 1 60};
tip:?note

parcel
tracking code:code TRK; recipient:person; weight:num 1 30; service:one standard,express,overnight; signed for:bool;
shipped:date; stops:some Lyon,Basel,Ghent,Leeds; destination:{street:street & city:city}; delivered:?datetime

song
title:title; artist:person; seconds:int 90 480; genre:one jazz,rock,folk,techno; explicit:bool; released:date;
moods:some calm,sad,bright,tense; album:{title:title & year:int 1970 2025}; remix of:?title

movie
title:title; director:person; runtime:int 70 190; rating:num 1 10; genre:one drama,comedy,thriller,western; in
colour:bool; premiere:date; languages:some English,French,Korean,Hindi; studio:{name:company & city:city};
sequel:?title

patient visit
visit code:code VIS; patient:person; pulse:int 48 120; temperature:num 35 41; ward:one A,B,C,surgery; fasting:bool;
visited on:date; symptoms:some cough,fever,rash,fatigue; doctor:{name:person & phone:phone}; follow up:?date

bank transfer
reference:code TX; sender:person; receiver:company; amount:num 5 9000; currency:one EUR,CHF,SEK,USD; urgent:bool;
booked on:date; labels:some rent,salary,refund,fee; bank:{name:company & city:city}; message:?note

support ticket
ticket:code TCK; subject:title; reporter:email; priority:one low,normal,high,critical; votes:int 1 90; open:bool;
created:datetime; areas:some login,billing,search,export; assignee:{name:person & level:int 1 3}; resolution:?note

museum exhibit
title:title; artist:person; year:int 1500 2020; hall:one east,west,atrium,garden; on loan:bool; insured value:num 100
9000; materials:some oil,bronze,paper,marble; lender:{name:company & city:city}; restored on:?date

course
course code:code CRS; title:title; credits:int 1 12; level:one beginner,intermediate,advanced; online:bool; fee:num 20
900; starts:date; topics:some algebra,grammar,optics,ethics; teacher:{name:person & email:email}; exam date:?date

garden plant
name:one lavender,tomato,fern,rosemary,tulip; height:int 5 200; light:one sun,shade,half shade; edible:bool; price:num
1 40; planted:date; companions:some basil,onion,marigold; bed:{row:int 1 9 & side:one left,right}; pruned:?date

podcast episode
title:title; host:person; minutes:int 10 120; season:int 1 9; topic:one science,money,sports,food; sponsored:bool;
aired:date; guests:some Ana,Omar,Yuki,Lena; links:{audio:url & notes:url}; corrected on:?date

vehicle
plate:code VH; make:one Volvo,Fiat,Skoda,Toyota; mileage:int 10 240000; fuel:one petrol,diesel,electric; insured:bool;
price:num 900 39000; registered:date; extras:some towbar,heater,camera,roof rack; owner:{name:person & city:city};
sold on:?date

sports match
home team:one Rovers,United,Falcons,Comets; away team:one Tigers,Wolves,Saints,Bears; home goals:int 0 6; away
goals:int 0 6; stage:one group,quarter final,final; sold out:bool; kick off:datetime; scorers:some
Lund,Rossi,Kim,Bello; venue:{city:city & seats:int 900 60000}; referee note:?note

warehouse item
sku:code SKU; name:one bolt,hinge,lamp,cable,valve; quantity:int 0 900; unit price:num 1 80; aisle:one A,B,C,D;
fragile:bool; counted on:date; colours:some black,white,red,grey; supplier:{name:company & email:email}; reorder
level:?int 5 50

apartment listing
street:street; city:city; rooms:int 1 7; rent:int 400 3200; heating:one gas,electric,district; furnished:bool; free
from:date; nearby:some school,park,tram,market; agent:{name:person & phone:phone}; deposit:?int 500 4000

server
hostname:one atlas,borealis,cygnus,delta; cores:int 2 64; memory gb:int 4 512; region:one eu-west,us-east,ap-south;
online:bool; load:num 1 9; ports:ints 22 9000; admin:{name:person & email:email}; rebooted at:?datetime

deployment
build:code BLD; service:one api,web,worker,search; replicas:int 1 12; stage:one dev,staging,production; healthy:bool;
deployed at:datetime; features:some cache,audit,export; commit:{author:person & files changed:int 1 60}; rollback
of:?code BLD

cafe order
order number:code ORD; item:one espresso,latte,croissant,soup; quantity:int 1 6; total:num 2 40; size:one
small,medium,large; takeaway:bool; ordered at:time; extras:some sugar,oat milk,cinnamon; customer:{name:person &
table:int 1 20}; comment:?note

weather report
station:code WX; city:city; high:int 1 39; low:int 0 15; sky:one clear,cloudy,rain,snow; storm warning:bool; day:date;
hourly:ints 1 39; wind:{speed:num 1 90 & direction:one N,E,S,W}; frost until:?date

library loan
card:code LIB; reader:person; renewals:int 0 3; fine:num 1 20; branch:one main,harbor,school; overdue:bool; due:date;
items:some atlas,novel,map,score; book:{title:title & shelf:code SH}; returned on:?date

concert ticket
ticket code:code TKT; band:title; price:num 9 180; row:int 1 40; block:one A,B,C,balcony; seated:bool; date:date;
doors open:time; add ons:some poster,parking,drink; holder:{name:person & email:email}; scanned at:?datetime

survey answer
respondent:code RSP; age:int 18 90; score:int 1 10; channel:one web,phone,mail; consent:bool; sent on:date; liked:some
price,speed,design,staff; location:{city:city & postcode:int 1000 9999}; free text:?note

pet
name:one Milo,Luna,Bruno,Kiki,Sésame; species:one dog,cat,rabbit,parrot; age:int 1 18; weight:num 1 40;
vaccinated:bool; born:date; likes:some naps,carrots,walks,boxes; owner:{name:person & phone:phone}; chip:?code CHP

job posting
title:one baker,welder,analyst,nurse,editor; employer:company; hours:int 8 40; salary:int 21000 95000; contract:one
permanent,temporary,freelance; remote:bool; apply by:date; needs:some driving,French,welding,Excel;
contact:{name:person & email:email}; starts:?date

train connection
train:code TR; origin:city; destination:city; changes:int 0 4; fare:num 5 180; coach:one first,second,quiet; runs
daily:bool; departs:time; calls at:some Olten,Arth,Visp,Brig; operator:{name:company & phone:phone}; platform:?int 1
16

energy meter
meter:code MTR; reading:int 100 99000; rate:num 1 9; type:one gas,water,power; estimated:bool; read on:date;
monthly:ints 10 400; address:{street:street & city:city}; replaced on:?date

hiking trail
name:title; distance:num 2 40; ascent:int 20 1900; difficulty:one easy,moderate,hard; loop:bool; opened:date;
sights:some waterfall,ruin,lake,summit; start:{city:city & parking spaces:int 3 90}; closed until:?date

coffee bean
name:title; origin:one Ethiopia,Brazil,Kenya,Peru; price:num 5 40; altitude:int 600 2300; roast:one light,medium,dark;
decaf:bool; roasted on:date; flavours:some cocoa,citrus,plum,honey; farm:{name:company & owner:person}; cup score:?int
70 95

game player
nickname:one Falcon,Pixel,Nova,Ember; level:int 1 99; gold:num 1 900; class:one mage,archer,healer; banned:bool;
joined:date; inventory:some rope,lantern,potion,map; guild:{name:title & members:int 3 60}; last login:?datetime

insurance claim
claim number:code CLM; holder:person; damage:num 50 9000; cause:one fire,water,theft,storm; approved:bool; filed
on:date; photos:int 0 12; items:some roof,bike,phone,window; inspector:{name:person & phone:phone}; paid on:?date

photo
file name:code IMG; width:int 640 6000; height:int 480 4000; aperture:num 1 22; mode:one auto,manual,night;
edited:bool; taken:datetime; keywords:some sunset,family,city,snow; camera:{make:one Canon,Nikon,Leica & lens mm:int
14 200}; album:?title

meeting
topic:title; organizer:person; minutes:int 15 120; room:one Alpha,Birch,Lake,Attic; recurring:bool; starts:datetime;
attendees:some Ana,Tom,Mei,Ravi; budget:num 10 900; location:{city:city & floor:int 1 9}; cancelled on:?date

gym membership
member:person; card number:code GYM; visits:int 0 200; monthly fee:num 10 90; plan:one basic,plus,family; active:bool;
joined on:date; classes:some yoga,boxing,spin,swim; trainer:{name:person & rating:num 1 5}; frozen until:?date

research paper
title:title; author:person; citations:int 0 900; pages:int 4 40; field:one biology,physics,law,linguistics; peer
reviewed:bool; submitted:date; keywords:some bias,growth,signal,memory; journal:{name:title & volume:int 1 90};
retracted on:?date

cargo ship
vessel:title; containers:int 40 9000; draught:num 4 16; flag:one Malta,Panama,Norway,Liberia; in port:bool;
arrival:date; cargo:some grain,steel,timber,fruit; captain:{name:person & phone:phone}; berth:?code BTH

theatre play
title:title; writer:person; acts:int 1 5; cheapest seat:num 5 60; stage:one main,studio,open air; sold out:bool;
opening night:date; roles:some king,ghost,nurse,fool; director:{name:person & email:email}; closing night:?date

bicycle rental
rental:code BK; renter:person; hours:int 1 48; price:num 4 120; model:one city,mountain,cargo,tandem; helmet
included:bool; picked up:datetime; damages:some bell,brake,saddle; station:{city:city & docks:int 4 40}; returned
at:?datetime

soil sample
sample:code SOL; depth:int 5 120; acidity:num 3 9; texture:one clay,loam,sand,peat; contaminated:bool; collected:date;
layers:ints 1 60; field:{name:title & owner:person}; lab comment:?note

charity donation
receipt:code DON; donor:person; amount:num 5 900; method:one card,cash,transfer; anonymous:bool; given on:date;
projects:some wells,schools,forest,clinic; campaign:{title:title & goal:int 1000 90000}; thanked on:?date
"""

# Letters, logs and notices; {words:kind} is a value of the text and a field that may be asked for.
SCENES = """
Hi, {customer:person} here. My order {order number:code ORD} came on {arrived on:date}, but the {item:one
lamp,kettle,chair,mirror} is {problem:one cracked,dented,scratched}. Please ring {phone:phone}.

Dear guest, your table for {guests:int 2 9} at {restaurant:title} is booked for {date:date} at {time:time}. Changes:
{email:email}. Ask for {host:person}.

{timestamp:datetime} {level:one INFO,WARN,ERROR} [{service:one api,worker,mailer}] request {request id:code REQ}
took {milliseconds:int 3 900} ms, status {status:one 200,404,500}

Sold: {quantity:int 2 40} boxes of {product:one tea,soap,candles,pens} to {buyer:company} at {unit price:num 2 30}
EUR each, delivery to {city:city} by {deliver by:date}.

{player:person} scored {points:int 4 40} points as {winner:one Comets,Hawks,Bears} beat {loser:one Owls,Sharks,Lynx}
{score:one 88-80,91-77,102-99} in {city:city}.

FOR RENT: {rooms:int 1 6} rooms, {area:int 25 160} square metres, {street:street}, {city:city}. {rent:int 400 2900}
a month, free from {free from:date}. Call {agent:person} on {phone:phone}.

Reminder: {patient:person} sees Dr {doctor:one Lind,Mensah,Kim,Vogel} in room {room:int 1 40} on {date:date} at
{time:time}. Bring form {form:code FRM}.

Shipment {tracking code:code TRK} left {origin:one Hamburg,Riga,Turin} on {shipped on:date}. Weight {weight:num 1
40} kg, carrier {carrier:company}, receiver {receiver:person}.

We hired {name:person} as {role:one analyst,welder,editor,nurse} in {city:city}. First day {start date:date}, salary
{salary:int 24000 88000}, contract {contract:code CTR}.

Flight {flight:code FL} to {destination:city} now leaves at {departure:time} from gate {gate:one A4,B12,C7,D1};
{seats left:int 1 30} seats left in {cabin:one economy,business}.

The {title:title} opens on {opens:date} in {city:city}. Curator {curator:person} shows {works:int 12 240} works;
tickets cost {price:num 4 25} and are sold at {website:url}.

Bug report by {reporter:email}: {app:title} {version:one 1.4.2,2.0.0,3.1.7} crashes on {system:one
Linux,Windows,macOS} after {minutes:int 1 50} minutes. Ticket {ticket:code BUG}, priority {priority:one
low,medium,high}.

Got {amount:num 5 900} {currency:one EUR,USD,CHF} from {payer:person} on {paid on:date} for invoice {invoice:code
INV}. Booked by {clerk:person}.

Tomorrow in {city:city}: {sky:one sunny,cloudy,rainy}, high {high:int 16 34}, low {low:int 1 15}, wind {wind:int 3
60} km/h from the {direction:one north,south,east,west}.

To bake the {cake:title}: {eggs:int 1 6} eggs, {sugar:int 50 300} g sugar, {flour:int 100 500} g flour, {minutes:int
15 70} minutes at {degrees:int 150 230} degrees. Recipe by {cook:person}.

Lost near {place:street}: a {color:one black,brown,white,grey} {animal:one cat,dog,parrot} called {name:one
Milo,Kiki,Bruno,Luna}. Chip {chip:code CHP}. Owner {owner:person}, {phone:phone}.

Class {course:code CRS}, {title:title}, is taught by {teacher:person} on {day:one Monday,Tuesday,Thursday} at
{time:time}. {places:int 5 60} places, fee {fee:num 10 300}.

{reviewer:person} gave the {product:one blender,tent,radio,desk} {stars:int 1 5} stars on {date:date}: "{verdict:one
Works well,Too loud,Great value,Broke in a week}".

Meter {meter:code MTR} at {street:street}: {reading:int 1000 90000} on {read on:date}, read by {reader:person}, type
{type:one gas,water,power}.

Police note {case number:code POL}: a {vehicle:one van,bicycle,truck} was taken from {street:street}, {city:city},
on {date:date} at {time:time}. Witness: {witness:person}, {age:int 18 88}.
"""

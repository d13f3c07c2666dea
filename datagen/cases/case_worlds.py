"""The worlds of the experts' test cases that no training row speaks of.

SQL is in the notation of sql/domains.py, GRAPHS in that of neo4j/domains.py, OBJECTS and SCENES in that of
json/domains.py and json/domain_table.py.
"""

from __future__ import annotations

SQL = """
# marina
boats/boat: name title; skipper person; length int 5-40; hull adj wooden|steel|fiberglass; built int 1970-2022 as year
  built by built
berths/berth: berth_number code as berth number; side of north|south|east|west; depth real 2-9; daily_rate int 10-120
moorings/mooring: mooring_date date 2021-2023 by made; boat_id ref boats of; berth_id ref berths at; nights int 1-30;
  deposit? int 20-400/10
# brewery
breweries/brewery: name company; city city; founded int 1850-2020 as founding year by founded; capacity int 10-900/10
beers/beer: name title; brewery_id ref breweries from; style adj dark|pale|sour|smoked; alcohol real 3-12; bitterness?
  int 5-90
tastings/tasting: tasting_date date 2020-2023 by held; beer_id ref beers of; taster person; points int 1-100; verdict? of
  fruity|smooth|flat|bitter
# orchestra
orchestras/orchestra: name company; country country; budget int 20-900/5; founded int 1880-2010 as founding year by founded
musicians/musician: name person; orchestra_id ref orchestras in; instrument of violin|cello|flute|oboe|horn; salary int
  2000-7000/50; birth_date date 1955-2002 by born
tours/tour: tour_date date 2018-2023 by given; orchestra_id ref orchestras by; country country; audience int 200-9000/50;
  sponsor? company
# ski_resort
slopes/slope: name place; difficulty adj easy|medium|hard|expert; length int 300-5000/100; opened int 1950-2020 as
  opening year by opened; floodlit bool
instructors/instructor: name person; language of English|German|French|Italian; hourly_rate int 30-120/5; hired_on date
  2008-2023 as hiring date by hired
lessons/lesson: lesson_date date 2021-2023 by given; slope_id ref slopes on; instructor_id ref instructors by; participants
  int 1-14 as number of participants; tip? int 2-50
# auction
sellers/seller: name person; country country; rating? real 1-5; joined int 2001-2022 as joining year by registered
lots/lot: title title; seller_id ref sellers from; category of furniture|jewelry|stamps|coins; start_price int 10-900/10
  as start price; status adj sold|unsold|withdrawn
bids/bid: bid_date date 2022-2023 by placed; lot_id ref lots on; bidder person; amount int 20-3000/10
# apiary
apiaries/apiary: name place; altitude int 100-1800/10; keeper person; region? of valley|forest|meadow|coast
hives/hive: label code; apiary_id ref apiaries in; temperament adj calm|nervous|aggressive; frames int 6-24 as number of
  frames; queen_year int 2017-2023 as queen year
extractions/extraction: extraction_date date 2020-2023 by made; hive_id ref hives from; kilograms real 2-60; moisture int
  14-22; honey? of acacia|linden|clover|chestnut
# laboratory
laboratories/laboratory: name place; city city; staff int 3-90 as number of staff; rent? int 500-9000/50
chemists/chemist: name person; laboratory_id ref laboratories in; degree of bachelor|master|doctorate; salary int
  2500-8000/50; hired date 2009-2023 as hiring date by hired
samples/sample: sample_code code as sample code; chemist_id ref chemists by; weight real 1-50; acidity int 1-14; state adj
  pending|analyzed|rejected; received date 2022-2023 as reception date by received
# taxi
cabs/cab: plate code; brand of Volvo|Skoda|Toyota|Fiat; seats int 4-9; mileage int 1000-300000/500; electric bool
chauffeurs/chauffeur: name person; cab_id ref cabs with; city city; age int 21-68; bonus? int 50-900/10
rides/ride: ride_date date 2022-2023 by taken; chauffeur_id ref chauffeurs by; distance real 1-60; fare int 5-150; payment
  adj cash|card|online
"""

GRAPHS = """
# parliament
Politician/politicians: name person; born int 1940-1998 as birth year by born; region? of north|south|east|west
Bill/bills: title title; proposed date 2018-2023 as proposal date by proposed; pages int 2-300 as number of pages
Committee/committees: name pick Health|Finance|Transport|Defense|Culture|Justice|Energy|Housing; budget int 10-900/10
Politician SPONSORED Bill: who sponsored | sponsored by
Politician SITS_ON Committee: who sit on | including: since int 2005-2023 as starting year
Politician ENDORSED Politician: who endorsed | endorsed by
# hiking
Hiker/hikers: name person; age int 16-78; country country
Trail/trails: name place; length int 2-90; difficulty adj easy|moderate|hard
Hut/huts: name title; beds int 6-120 as number of beds; opened? int 1900-2022 as opening year by opened
Hiker WALKED Trail: who walked | walked by: days int 1-9 as number of days
Trail PASSES Hut: passing | passed by
Hut VISIBLE_FROM Hut: visible from | in sight of
# brewing
Brewer/brewers: name person; experience int 1-40 as years of experience; city city
Beer/beers: name title; alcohol real 3-12; bitterness? int 5-90; style adj dark|pale|sour|smoked
Hop/hops: name pick Cascade|Saaz|Citra|Fuggle|Mosaic|Simcoe|Galaxy|Tettnang; price int 5-60
Brewer BREWS Beer: who brew | brewed by: batches int 1-50 as number of batches
Beer CONTAINS_HOP Hop: made with | found in
Brewer MENTORED Brewer: who mentored | mentored by
# archaeology
Archaeologist/archaeologists: name person; papers int 0-90 as number of papers; country country
Site/sites: name place; discovered int 1850-2015 as discovery year by discovered; area int 1-400
Artifact/artifacts: code code; material of bronze|clay|gold|bone; weight real 1-80; dated? bool
Archaeologist EXCAVATED Site: who excavated | excavated by: season int 1990-2023 as season
Artifact FOUND_AT Site: found at | holding
Archaeologist ASSISTED Archaeologist: who assisted | assisted by
# dance
Dancer/dancers: name person; age int 16-60; style of ballet|tango|jazz|modern
Piece/pieces: title title; premiere date 1995-2023 as premiere date by first danced; minutes int 5-120 as duration
Troupe/troupes: name company; city city; founded? int 1950-2020 as founding year by founded
Dancer PERFORMED_IN Piece: who performed in | danced by: shows int 1-80 as number of shows
Dancer BELONGS_TO Troupe: who belong to | made up of
Dancer PARTNERED Dancer: who partnered | partnered by
# data_center
Server/servers: hostname code; cores int 4-128/4 as number of cores; memory int 8-512/8; online bool
Service/services: name title; replicas int 1-30 as number of replicas; language of Go|Rust|Java|Python
Squad/squads: name pick Atlas|Borealis|Cygnus|Draco|Hydra|Lyra|Orion|Vega; members int 2-20 as number of members
Server HOSTS Service: hosting | hosted by: port int 1000-9000/10
Service CALLS Service: calling | called by
Squad MAINTAINS Service: maintaining | maintained by
# orchards
Grower/growers: name person; hectares int 1-90 as number of hectares; joined date 2005-2023 as joining date by registered
Orchard/orchards: name place; trees int 50-4000/10 as number of trees; organic bool
Variety/varieties: name pick Gala|Fuji|Jonagold|Elstar|Braeburn|Cox|Boskoop|Rubinette; sugar? real 8-20
Grower TENDS Orchard: who tend | tended by: since int 2000-2023 as starting year
Orchard GROWS Variety: growing | grown in: tons int 1-90
Grower LEARNED_FROM Grower: who learned from | teaching
# translation
Translator/translators: name person; rate int 10-90; city city
Novel/novels: title title; pages int 90-900 as number of pages; published? int 1950-2023 as publication year by published
Imprint/imprints: name company; country country; titles int 5-400/5 as number of titles
Translator TRANSLATED Novel: who translated | translated by: year int 1980-2023
Imprint RELEASED Novel: that released | released by
Translator RECOMMENDED Translator: who recommended | recommended by
"""

OBJECTS = """
sailing boat
boat number:code BOT; skipper:person; length:num 5 40; hull:one wood,steel,fiberglass; rented:bool; launched:date;
gear:some anchor,radio,raft,flares; berth:{pier:one north,south & place:int 1 90}; sold on:?date

beehive
hive:code HIV; frames:int 6 24; honey:num 2 60; temper:one calm,nervous,wild; queen marked:bool; inspected:date;
blossoms:some clover,linden,acacia,heather; keeper:{name:person & phone:phone}; moved on:?date

auction lot
lot:code LOT; title:title; bids:int 0 60; start price:num 10 900; category:one coins,stamps,jewelry; reserved:bool;
closes:datetime; defects:some crack,stain,scratch; seller:{name:person & city:city}; sold to:?email

ski lesson
lesson:code SKI; instructor:person; pupils:int 1 14; fee:num 20 160; level:one beginner,advanced,racer; private:bool;
held on:date; slopes:some Ridge,Bowl,Glade; meeting point:{street:street & city:city}; remark:?note

choir
name:title; conductor:person; singers:int 8 120; dues:num 5 60; style:one gospel,classical,pop; amateur:bool;
founded:date; voices:some soprano,alto,tenor,bass; rehearsal:{city:city & room:one hall,chapel}; dissolved:?date

lighthouse
light:code LIG; height:int 8 90; range:num 5 40; colour:one white,red,green; automated:bool; lit since:date;
visible from:some harbor,cape,reef; keeper:{name:person & email:email}; switched off:?date

blood donation
donation:code BLD; donor:person; volume:int 300 500; haemoglobin:num 11 18; group:one A,B,AB,O; first time:bool;
taken on:date; tests:some HIV,syphilis,hepatitis; clinic:{name:company & city:city}; next visit:?date

parking permit
permit:code PRK; holder:person; spaces:int 1 4; monthly price:num 15 180; zone:one center,harbor,campus; disabled:bool;
valid from:date; weekdays:some Monday,Wednesday,Friday; car:{colour:one black,white,blue & seats:int 2 9};
revoked on:?date

drone
serial:code DRN; range km:int 1 40; weight:num 1 25; use:one survey,delivery,film; licensed:bool; built:date;
sensors:some lidar,camera,barometer; pilot:{name:person & flights:int 1 900}; crashed on:?date

escape room
title:title; minutes:int 30 90; price:num 12 60; theme:one pirate,prison,egypt; open:bool; built on:date;
puzzles:some lock,maze,cipher,magnet; owner:{name:company & email:email}; closed since:?date

fish tank
tank:code AQU; litres:int 20 900; temperature:num 18 30; water:one fresh,salt,brackish; heated:bool; cleaned on:date;
species:some guppy,tetra,goby; keeper:{name:person & phone:phone}; broken since:?date

language exam
exam:code EXM; candidate:person; points:int 0 100; fee:num 40 260; language:one Spanish,German,Korean; passed:bool;
taken at:datetime; parts:some reading,listening,speaking; center:{name:company & city:city}; repeated on:?date
"""

SCENES = """
Ahoy, berth {berth:code BTH} is kept for {skipper:person} from {arrival:date}, {nights:int 1 20} nights at {rate:num 12
90} EUR. Call {phone:phone} on channel {channel:int 1 80}.

Auction result: lot {lot:code LOT}, {title:title}, went to {bidder:person} for {price:num 20 900} {currency:one
EUR,GBP,USD} after {bids:int 2 60} bids on {sold on:date}.

Ski school: {instructor:person} teaches {pupils:int 2 12} pupils on {lesson date:date} at {time:time}, level {level:one
beginner,advanced}, meeting at {meeting point:street}.

Blood bank {city:city}: donation {donation:code BLD} by {donor:person}, group {group:one A,B,AB,O}, {volume:int 300 500}
ml, taken on {taken on:date}.

{timestamp:datetime} drone {drone:code DRN} {event:one landed,started,returned} at {place:city}, battery {battery:int 5
99} percent, pilot {pilot:person}.

Dear {tenant:person}, your parking permit {permit:code PRK} for zone {zone:one center,harbor,campus} ends on {ends
on:date}. Renew at {website:url} for {fee:num 15 180} EUR.

Exam notice: {candidate:person} sits {language:one Spanish,German,Korean} in room {room:int 1 60} on {exam date:date} at
{time:time}. Questions to {email:email}.

The choir {choir:title} sings in {city:city} on {concert date:date}. Conductor {conductor:person}, {singers:int 8 90}
singers, seats from {price:num 5 40} EUR.
"""

"""Many small graphs of which the Cypher rows ask a few questions each, in the notation of domains.py.

The four of domain_table.py teach the forms; these teach that names are read off the prompt. So they differ in topic, in
size and in how labels, types and properties are written. None has a label, a type, or a property but the commonest, of
the unseen cases.
"""

from __future__ import annotations

TEXT = """
# bakery
Baker/bakers: name person; apprentices int 0-9 as number of apprentices; certified bool
Cake/cakes: name title; flavor of lemon|walnut|cherry|vanilla; slices int 6-40 as number of slices; vegan bool
Baker BAKED Cake: who baked | baked by: oven_hours int 1-8 as oven hours
# football
Club/clubs: name company; stadium place; fans int 500-90000/500 as number of fans
Player/players: name person; position of goalkeeper|defender|striker; goals int 0-45 as number of goals
Coach/coaches: name person; cups? int 1-20 as number of cups
Player PLAYS_FOR Club: who play for | fielding: shirt int 1-99 as shirt number
Coach TRAINS Club: who train | trained by
Player ADMIRES Player: who admire | admired by
# hospital
Doctor/doctors: name person; specialty of surgery|cardiology|pediatrics; hiredOn date 2005-2023 as hiring date by
  hired
Patient/patients: name person; bloodGroup of A|B|AB as blood group; insured bool
Ward/wards: name place; floor int 1-12; capacity int 4-60
Doctor TREATED Patient: who treated | treated by: cost int 50-9000/50
Patient LIES_IN Ward: who lie in | caring for
Doctor REFERS_TO Doctor: who refer patients to | consulted by
# airport
Airport/airports: iata code as IATA code; altitude int 0-3000/10; hub bool
Airline/airlines: name company; planes int 5-400 as number of planes; alliance? of Star|Sky|Global
Airline FLIES_TO Airport: flying to | served by: weekly int 1-70 as weekly flights
Airport CONNECTED_TO Airport: connected to | reachable from: distance int 90-9000/10
# kitchen
Recipe/recipes: title title; servings int 1-12 as number of servings; cuisine of Thai|Greek|Mexican|French; spicy bool
Ingredient/ingredients: name pick Rice|Garlic|Tofu|Basil|Ginger|Saffron|Lentils|Butter|Honey|Paprika; calories int
  10-900/5
Chef/chefs: name person; stars? int 1-3 as number of stars
Recipe NEEDS Ingredient: using | needed for: grams int 5-900/5
Chef INVENTED Recipe: who invented | invented by
# school
Pupil/pupils: firstName person as first name; grade int 1-12; nickname? title
Course/courses: title title; credits int 1-10 as number of credits; elective bool
Teacher/teachers: fullName person as full name; office code
Pupil ATTENDS Course: who attend | attended by: mark int 1-6
Teacher TEACHES Course: who teach | taught by
Course REQUIRES Course: requiring | required by
# shipping
Anchorage/anchorages: name city; berths int 1-60 as number of berths; deepwater bool
Vessel/vessels: name title; built int 1980-2022 as year built by built; tonnage int 500-90000/500; flag country
Vessel DOCKED_AT Anchorage: which docked at | visited by: hours int 2-96
Vessel TOWED Vessel: which towed | towed by
# library
Volume/volumes: isbn code as ISBN; heading title; printed int 1950-2023 as year of printing by printed
Borrower/borrowers: name person; cardNumber code as card number; fines? real 1-60
Shelf/shelves: label code; floorLevel int 0-6 as floor level
Borrower LENT Volume: who borrowed | borrowed by: weeks int 1-9
Volume STANDS_ON Shelf: standing on | carrying
# police
Officer/officers: name person; badge code; rank of sergeant|captain|inspector
Crime/crimes: caseNumber code as case number; kind adj solved|open|cold; reported date 2018-2023 as report date by
  reported
Suspect/suspects: alias pick Fox|Shade|Raven|Ghost|Viper|Jackal|Badger|Magpie|Lynx|Otter; height int 150-205
Officer INVESTIGATES Crime: who investigate | investigated by
Suspect ACCUSED_OF Crime: who are accused of | blamed on
Suspect KNOWS Suspect: who know | known by: closeness int 1-10
# banking
Customer/customers: name person; income int 1000-9000/100; vip bool
Account/accounts: iban code as IBAN; balance int 0-90000/100; currency of EUR|USD|GBP
Customer OWNS Account: who own | owned by: share int 10-100/10
Account PAID Account: which paid | paid by: amount int 5-5000/5
# concert
Band/bands: name title; genre of rock|soul|folk|metal; albums int 1-20 as number of albums
Musician/musicians: name person; instrument of guitar|drums|bass|piano; birthYear int 1950-2004 as birth year by born
Festival/festivals: name place; visitors int 500-90000/500 as number of visitors; begins date 2021-2024 as first day
Musician MEMBER_OF Band: who are members of | consisting of: from_year int 1990-2022 as starting year
Band PLAYED_AT Festival: which played at | booking: fee int 500-9000/100
# zoo
Keeper/keepers: name person; shift adj early|late|weekend; salary int 1800-4200/50
Animal/animals: name pick Kito|Bruno|Zuri|Nala|Baloo|Tinka|Momo|Rocky|Luna|Pepe|Shanti|Oskar; species of
  lion|tapir|otter|lemur; birth date 2008-2022 as birth date by born
Enclosure/enclosures: name place; climate of tropical|arid|polar; heated bool
Keeper FEEDS Animal: who feed | fed by: portions int 1-6 as number of portions
Animal LIVES_IN Enclosure: living in | home to
Animal PARENT_OF Animal: which are parents of | descending from
# software
Developer/developers: login code; commits int 5-4000/5 as number of commits; remote bool
Repository/repositories: name title; stars int 0-9000/10 as number of stars; license? of MIT|Apache|GPL
Library/libraries: name pick numpy|lodash|serde|okhttp|jinja|redux|tokio|flask|guava|boost; version code
Developer CONTRIBUTED_TO Repository: who contributed to | written by: lines int 10-9000/10 as number of lines
Repository DEPENDS_ON Library: depending on | needed by
Developer REVIEWS Developer: who review | reviewed by
# telecom
Subscriber/subscribers: name person; plan adj prepaid|contract|family; dataUsed real 1-90 as data used
Tower/towers: towerId code as tower number; range int 1-30; erected date 2005-2022 as date of erection by erected
Subscriber PHONED Subscriber: who phoned | phoned by: seconds int 5-3000/5 as number of seconds
Subscriber USES Tower: who use | used by
# train_network
Station/stations: name place; platforms int 1-24 as number of platforms; town city
Line/lines: name pick Red|Blue|Green|Coastal|Airport|Night|Express|Valley|Harbor|Circle; color of red|blue|green;
  stops int 5-40 as number of stops
Driver/drivers: name person; license_until date 2024-2028 as end of license
Line SERVES Station: serving | on: order_number int 1-40 as order number
Driver DRIVES Line: who drive | driven by
Station NEXT_TO Station: next to | beside
# insurance
Insurer/insurers: name company; home_country country as home country; employees int 50-9000/50 as number of employees
Policy/policies: policyNumber code as policy number; premium int 60-2400/20; signedOn date 2012-2023 as signing date
  by signed
Claim/claims: claimId code as claim number; loss int 100-20000/100; decision adj approved|denied|open
Insurer ISSUED Policy: who issued | issued by
Claim FILED_UNDER Policy: filed under | leading to: delay int 0-90
# theater
Actor/actors: name person; debut int 1970-2020 as year of debut; union_member bool as in the union
Play/plays: title title; acts int 1-6 as number of acts; tone of comic|tragic|absurd
Stage/stages: name place; seats int 40-1500/10 as number of seats
Actor STARS_IN Play: who star in | starring: role of hero|villain|fool
Play STAGED_ON Stage: staged on | showing: nights int 1-90 as number of nights
# chemistry
Compound/compounds: formula code; name title; toxic bool; boilingPoint int 20-400 as boiling point
Lab/labs: name company; safety_level int 1-4 as safety level; town city
Chemist/chemists: name person; patents? int 1-30 as number of patents
Chemist SYNTHESIZED Compound: who synthesized | synthesized by: yield int 5-99
Chemist WORKS_AT Lab: who work at | employing
Compound REACTS_WITH Compound: reacting with | attacked by
# real_estate
Agent/agents: name person; commission real 1-9; licensed int 1995-2022 as year of license by licensed
House/houses: address code; rooms int 1-12 as number of rooms; askingPrice int 50-900/5 as asking price; garage bool
  as has garage
Buyer/buyers: name person; savings int 10-500/5
Agent LISTS House: who list | listed by
Buyer VISITED House: who visited | visited by: offer int 40-900/5
# hotel
Hotel/hotels: name place; suites int 2-90 as number of suites; town city
Guest/guests: name person; loyalty adj silver|ruby|platinum; nationality country
Guest STAYED_AT Hotel: who stayed at | visited by: nights int 1-21 as number of nights
Guest TRAVELS_WITH Guest: who travel with | accompanied by
# museum
Painter/painters: name person; movement of cubism|realism|baroque; died? int 1700-2005 as year of death
Painting/paintings: title title; technique of oil|pastel|ink; worth int 10-900/5; framed bool
Museum/museums: name place; municipality city; rating real 1-10
Painter PAINTED Painting: who painted | painted by
Museum EXHIBITS Painting: exhibiting | shown in: roomNumber int 1-40 as room number
Painter INFLUENCED Painter: who influenced | influenced by
# court
Judge/judges: name person; appointed int 1990-2022 as year of appointment by appointed; chamber of civil|criminal|tax
Lawyer/lawyers: name person; hourlyFee int 90-900/10 as hourly fee
Trial/trials: docket code; began date 2019-2023 as start date by begun; result adj dismissed|settled|appealed
Judge PRESIDES_OVER Trial: who preside over | heard by
Lawyer ARGUED Trial: who argued | argued by: hearings int 1-30 as number of hearings
# gaming
Gamer/gamers: nickname code; level int 1-90; registered date 2015-2023 as registration date by registered
Game/games: title title; platform of PC|console|mobile; retailPrice real 5-70 as retail price
Studio/studios: name company; staff int 3-900 as number of staff
Gamer BOUGHT Game: who bought | bought by: hoursPlayed int 1-900 as hours played
Studio DEVELOPED Game: which developed | developed by
Gamer FRIEND_OF Gamer: who are friends of | befriended by
# weather
WeatherStation/weather stations: stationCode code as station code; elevation int 0-3000/10; automatic bool
Storm/storms: name pick Alva|Boris|Cleo|Dora|Egon|Frida|Gisela|Hektor|Ida|Jurek; category int 1-5; peakWind int 60-290
  as peak wind
WeatherStation RECORDED Storm: which recorded | recorded by: rainfall real 1-200
# newspaper
Journalist/journalists: name person; desk of politics|sports|science|local; freelance bool
Article/articles: headline title; words int 150-3000/10 as number of words; printedOn date 2021-2024 as print date by
  printed
Journalist REPORTED Article: who reported | reported by
Article QUOTES Article: quoting | quoted in
# pharmacy
Drug/drugs: name title; dose int 5-900/5; prescription bool as prescription-only
Pharmacy/pharmacies: name place; district city; night_service bool as open at night
Symptom/symptoms: name pick Fever|Cough|Rash|Nausea|Fatigue|Dizziness|Insomnia|Cramps|Headache|Swelling
Pharmacy STOCKS Drug: stocking | stocked by: boxes int 1-300 as number of boxes
Drug RELIEVES Symptom: relieving | relieved by
Drug INTERACTS_WITH Drug: interacting with | affected by: severity int 1-5
# elections
Candidate/candidates: name person; polling real 1-60; incumbent bool
Party/parties: name company; formed int 1900-2018 as year of formation by formed; wing adj left|center|right
District/districts: name place; voters int 1000-90000/500 as number of voters
Candidate RUNS_IN District: who run in | contested by
Candidate REPRESENTS Party: who represent | represented by: place int 1-30 as list place
# auction
Bidder/bidders: name person; deposit int 100-9000/100; verified bool
Lot/lots: lotNumber code as lot number; estimate int 50-20000/50; era of antique|baroque|recent
Bidder BID_ON Lot: who bid on | wanted by: sum int 50-30000/50
# space
Astronaut/astronauts: name person; flights int 1-7 as number of flights; nation country
Mission/missions: name title; launched date 1995-2023 as launch date by launched; orbits int 3-400 as number of
  orbits; crewed bool
Agency/agencies: name company; funding int 50-900/10
Astronaut FLEW_ON Mission: who flew on | flown by: seat of pilot|commander|engineer
Agency ORGANIZED Mission: which organized | organized by
# fishing
Boat/boats: name title; engine of diesel|electric|sail; crew int 1-18
Fisher/fishers: name person; permit code; retired bool
Harbor/harbors: name city; moorings int 4-300/2 as number of moorings
Fisher SAILS Boat: who sail | sailed by
Boat MOORED_IN Harbor: moored in | sheltering: fee int 10-400/5
# warehouse
Depot/depots: name place; gates int 1-40 as number of gates; chilled bool
Product/products: sku code as SKU; unitPrice real 1-90 as unit price; fragile bool
Supplier/suppliers: name company; origin country as country of origin; lead_time int 1-60 as lead time
Depot KEEPS Product: keeping | kept in: quantity int 1-900
Supplier DELIVERS Product: who deliver | delivered by
# genealogy
Ancestor/ancestors: name person; birthYear int 1800-1950 as birth year by born; occupation of
  smith|miller|tailor|clerk
Village/villages: name city; households int 20-900 as number of households
Ancestor MARRIED Ancestor: who married | married to: wedding int 1820-1975 as wedding year
Ancestor SETTLED_IN Village: who settled in | settled by
# conference
Speaker/speakers: name person; employer company; talks int 1-40 as number of talks
Session/sessions: title title; attendees int 10-900/5 as number of attendees; track of data|web|cloud
Hall/halls: name place; soundproof bool
Speaker PRESENTS Session: who present | presented by
Session TAKES_PLACE_IN Hall: taking place in | used for: starts int 8-18 as starting hour
# cycling
Cyclist/cyclists: name person; wins int 0-40 as number of wins; turned_pro int 1995-2022 as first professional year
Race/races: name title; kilometers int 40-300/5 as number of kilometers; held date 2020-2024 as race date by held
RacingTeam/racing teams: name company; sponsor company; bikes int 10-120 as number of bikes
Cyclist FINISHED Race: who finished | finished by: rank int 1-150
Cyclist RIDES_FOR RacingTeam: who ride for | employing
# biology
Gene/genes: symbol code; chromosome int 1-22; essential bool
Protein/proteins: name title; mass int 5-400; location? of nucleus|membrane|cytosol
Disease/diseases: name pick Anemia|Asthma|Gout|Lupus|Measles|Psoriasis|Rickets|Scurvy|Tetanus|Vitiligo; chronic bool
Gene ENCODES Protein: encoding | encoded by
Gene CAUSES Disease: causing | caused by: score real 1-10
Protein BINDS Protein: binding | bound by
# startup
Founder/founders: name person; exits int 0-6 as number of exits; alma_mater company as alma mater
Startup/startups: name company; valuation int 1-900; sector of biotech|retail|logistics|finance; profitable bool
Investor/investors: name company; fund int 5-900/5; headquarters city
Founder STARTED Startup: who started | started by: startedIn int 2005-2023 as starting year
Investor BACKED Startup: who backed | backed by: stake int 1-60
Investor SYNDICATES_WITH Investor: who syndicate with | joined by
# gym
Instructor/instructors: name person; discipline of yoga|boxing|rowing; hourlyRate int 25-90/5 as hourly rate
Athlete/athletes: name person; bodyFat real 6-35 as body fat; premium bool
Athlete COACHED_BY Instructor: who are coached by | coaching: sessions int 1-60 as number of sessions
Athlete SPARRED_WITH Athlete: who sparred with | challenged by
# wildlife
Ranger/rangers: name person; badgeNo code as badge number; armed bool
Park/parks: name place; established int 1900-2015 as year of establishment by established; visitorsPerYear int
  500-90000/500 as visitors per year
Bird/birds: name pick Heron|Kite|Finch|Plover|Osprey|Wren|Swift|Curlew|Bittern|Siskin; wingspan int 15-240; status adj
  endangered|stable|rare
Ranger PATROLS Park: who patrol | patrolled by: since int 2000-2023 as starting year
Bird NESTS_IN Park: nesting in | giving shelter to: pairs int 1-90 as number of pairs
# vineyard
Winemaker/winemakers: name person; vintages int 1-50 as number of vintages; biodynamic bool
Wine/wines: label title; grape of Merlot|Riesling|Malbec|Syrah; vintage int 1990-2022 as vintage year; bottlePrice int
  5-300/5 as bottle price
Cellar/cellars: name place; barrels int 5-400/5 as number of barrels
Winemaker PRODUCES Wine: who produce | produced by
Wine AGES_IN Cellar: aging in | storing: months int 3-60 as number of months
# forum
Poster/posters: handle code; karma int 0-9000/10; banned bool
Thread/threads: subject title; views int 10-9000/10 as number of views; opened_on date 2019-2024 as opening date
Board/boards: name pick Tech|Pets|Cars|Movies|Recipes|Chess|Travelers|Garden|History|Jobs; moderated bool
Poster REPLIED_TO Thread: who replied to | answered by: upvotes int 0-400 as number of upvotes
Thread POSTED_IN Board: posted in | containing
Poster BLOCKED Poster: who blocked | blocked by
# construction
Architect/architects: name person; prizes? int 1-20 as number of prizes; practice company
Bridge/bridges: name title; span int 20-2000/10; completed int 1900-2022 as year of completion by completed; tolled
  bool
Waterway/waterways: name pick Elbe|Rhone|Tagus|Vistula|Danube|Ebro|Thames|Oder|Loire|Po; depth int 2-40
Architect DESIGNED Bridge: who designed | designed by
Bridge CROSSES Waterway: crossing | crossed by: pillars int 1-30 as number of pillars
"""

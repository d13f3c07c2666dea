"""The databases that make_sql_data.py asks about, in the notation of sql_domains.py."""

from __future__ import annotations

TEXT = """
# hospital
patients/patient: name person; birth_date date 1940-2015 by born; city? city; blood_type of A+|B+|O-|AB+|O+; weight
  int 45-120
doctors/doctor: name person; specialty of cardiology|pediatrics|surgery|neurology; salary int 5000-12000/100;
  hire_date date 2005-2022 by hired
visits/visit: visit_date date 2021-2023 by made; patient_id ref patients by; doctor_id ref doctors to; cost real
  40-400; reason? of checkup|injury|fever|vaccination
# library
books/book: title title; author person; genre of fantasy|history|crime|poetry; pages int 90-900; published int
  1950-2022 as publication year by published
readers/reader: name person; city city; age int 12-80; joined date 2012-2023 as joining date by registered
loans/loan: loan_date date 2022-2023 by made; book_id ref books of; reader_id ref readers by; due_date date 2023-2024;
  fine? real 1-20
# shop
customers/customer: name person; email? code as email; country country; credit_limit int 500-9000/250
products/product: name title; category of toys|garden|kitchen|sports; price real 3-250; stock int 0-200
orders/order: order_date date 2020-2023 by placed; customer_id ref customers by; product_id ref products for; quantity
  int 1-12; status adj pending|shipped|cancelled
# airline
airports/airport: name place; city city; country country; runways int 1-6 as number of runways
planes/plane: model pick A320|A350|B737|B777|E190|CRJ900|A220|B787|ATR72|E175; seats int 50-400/10; build_year int
  1995-2022 as year built by built; maintenance_cost int 20-90
flights/flight: flight_number code; airport_id ref airports from; plane_id ref planes with; departure date 2022-2023
  as departure date; distance int 200-9000/50; delay? int 0-180 as delay in minutes
# school
teachers/teacher: name person; subject of math|physics|music|history|biology; experience int 1-35 as years of
  experience; salary int 2500-5500/50
classes/class: room code; teacher_id ref teachers taught by; grade int 1-12; capacity int 15-35
pupils/pupil: name person; class_id ref classes in; age int 6-18; score real 1-10; hometown? city
# bank
branches/branch: name place; city city; opened int 1950-2020 as opening year by opened; assets int 10-900/5
accounts/account: number code as account number; branch_id ref branches at; owner person; balance int 0-50000/10; type
  adj savings|checking|business
payments/payment: payment_date date 2021-2023 by made; account_id ref accounts from; amount real 5-2000; purpose? of
  rent|food|travel|tax
# logistics
warehouses/warehouse: name place; city city; capacity int 100-5000/100; manager? person
drivers/driver: name person; license_class of B|C|CE|D; hired_on date 2008-2023 as hiring date by hired; age int 21-66
shipments/shipment: tracking_code code; warehouse_id ref warehouses from; driver_id ref drivers carried by; weight
  real 1-900; status adj delayed|delivered|lost; delivered_on? date 2022-2023 as delivery date by delivered
# cinema
films/film: title title; director person; release_year int 1960-2023 by released; rating real 2-10; runtime int 70-200
screens/screen: name place; seats int 40-400/10; format of IMAX|2D|3D
showings/showing: show_date date 2022-2023 by held; film_id ref films of; screen_id ref screens on; tickets_sold int
  0-300; ticket_price real 6-20
# music
artists/artist: name person; country country; debut_year int 1965-2020; genre of jazz|rock|folk|electronic
albums/album: title title; artist_id ref artists by; release_year int 1970-2023 by released; sales int 1-900 as sales
  in thousands; label? company as record label
tracks/track: title title; album_id ref albums on; duration int 90-600; plays int 100-90000/100
# hotel
hotels/hotel: name place; city city; stars int 1-5 as number of stars; opened int 1900-2020 as opening year by opened
rooms/room: room_number code; hotel_id ref hotels in; type adj single|double|suite; price int 50-600/10; has_balcony
  bool
bookings/booking: check_in date 2022-2023 as check-in date; room_id ref rooms for; guest person; nights int 1-14;
  discount? int 5-30
# sports
teams/team: name company; city city; founded int 1880-2010 as founding year by founded; budget int 1-120
players/player: name person; team_id ref teams in; position of goalkeeper|defender|midfielder|forward; age int 17-39;
  goals int 0-40; market_value? real 1-90
# football_matches
stadiums/stadium: name place; city city; capacity int 5000-80000/500; surface of grass|turf|hybrid
fixtures/fixture: match_date date 2019-2023 by played; stadium_id ref stadiums at; home_goals int 0-6; away_goals int
  0-5; attendance int 800-70000/100; referee person
# university
departments/department: name pick Physics|History|Law|Biology|Economics|Chemistry|Music|Geology|Sociology|Linguistics;
  building place; budget int 100-2000/10; head? person
professors/professor: name person; department_id ref departments in; rank of assistant|associate|full; salary int
  4000-11000/100; papers int 0-120 as number of papers
courses/course: title title; professor_id ref professors taught by; credits int 2-10; enrolled int 5-300 as number of
  enrolled students; semester of spring|autumn
# company
offices/office: name place; country country; floors int 1-40 as number of floors; rent int 1000-20000/100
employees/employee: name person; office_id ref offices in; job_title of engineer|analyst|designer|manager|clerk;
  salary int 2000-9000/50; hire_date date 2008-2023 by hired; bonus? int 100-3000/100
# restaurant
restaurants/restaurant: name company; city city; cuisine adj Italian|Thai|Mexican|French; rating real 1-5; opened int
  1980-2023 as opening year by opened
dishes/dish: name title; restaurant_id ref restaurants of; price real 4-60; calories? int 100-1500/10; is_vegan bool
reviews/review: review_date date 2021-2023 by written; restaurant_id ref restaurants of; stars int 1-5; reviewer
  person
# farm
farms/farm: name place; region of north|south|coast|highlands; area int 5-900; owner person
animals/animal: tag code; farm_id ref farms on; species of cow|sheep|goat|pig; weight int 20-900; birth_year int
  2012-2023 by born
harvests/harvest: harvest_date date 2018-2023 by brought in; farm_id ref farms of; crop of wheat|barley|maize|potato;
  tons real 1-90; price_per_ton? int 80-400
# museum
museums/museum: name place; city city; visitors int 5-900 as visitors in thousands; free_entry bool
painters/painter: name person; birth_year int 1600-1980 by born; nationality? country
paintings/painting: title title; painter_id ref painters by; museum_id ref museums in; year_painted int 1620-2015 by
  painted; value int 10-9000/10; style adj cubist|baroque|abstract|realist
# real_estate
agents/agent: name person; phone? code; commission int 1-6; joined_on date 2009-2022 as joining date by hired
houses/house: address place; city city; bedrooms int 1-7 as number of bedrooms; area int 40-400; price int 90-900/5
sales/sale: sale_date date 2018-2023 by closed; house_id ref houses of; agent_id ref agents by; final_price int
  85-950/5
# telecom
plans/plan: name title; monthly_fee int 5-90; data_limit? int 1-100 as data limit
subscribers/subscriber: name person; plan_id ref plans on; city city; age int 18-85; since date 2010-2023 as
  subscription date by subscribed
calls/call: call_date date 2023-2023 by made; subscriber_id ref subscribers by; duration int 1-3600; type adj
  local|national|international
# insurance
policyholders/policyholder: name person; birth_date date 1940-2003 by born; city city; smoker bool
policies/policy: number code as policy number; policyholder_id ref policyholders of; kind of health|car|home|life;
  premium int 100-3000/10; start_date date 2010-2023 by started
claims/claim: claim_date date 2020-2023 by filed; policy_id ref policies on; amount int 100-20000/100; status adj
  open|approved|rejected
# energy
power_plants/power plant: name place; country country; fuel of coal|wind|solar|hydro|gas; capacity int 20-3000/10;
  built int 1960-2022 as year built by built
outages/outage: outage_date date 2019-2023 by recorded; power_plant_id ref power_plants at; hours real 1-72; cause? of
  storm|failure|overload
# software
projects/project: name title; language of Python|Rust|Java|Go; start_date date 2015-2023 by started; budget int
  5-500/5
developers/developer: name person; level adj junior|senior|lead; country country; hourly_rate int 20-150
issues/issue: title title; project_id ref projects in; developer_id? ref developers assigned to; priority of
  low|medium|high|critical; opened date 2021-2023 as opening date by opened; hours_spent int 1-90
# gym
trainers/trainer: name person; specialty of yoga|boxing|spinning|pilates; hourly_rate int 15-90; certified bool
gym_members/gym member: name person; trainer_id? ref trainers of; age int 16-75; membership of basic|plus|premium;
  weight int 45-130
workouts/workout: workout_date date 2022-2023 by done; gym_member_id ref gym_members by; minutes int 15-150; calories
  int 80-1400/10
# city_transit
bus_lines/bus line: name code; length real 3-40; stops int 8-60 as number of stops; operator company
buses/bus: plate code; bus_line_id ref bus_lines on; built int 2000-2023 as year built by built; seats int 20-80;
  electric bool
trips/trip: trip_date date 2023-2023 by made; bus_id ref buses by; passengers int 0-300; delay? int 0-60
# theatre
plays/play: title title; playwright person; premiere int 1950-2023 as premiere year by premiered; acts int 1-5 as
  number of acts
actors/actor: name person; birth_year int 1940-2004 by born; city? city; awards int 0-9 as number of awards
roles/role: character_name person; play_id ref plays in; actor_id ref actors played by; lines int 5-600 as number of
  lines
# zoo
enclosures/enclosure: name place; area int 50-5000/10; climate adj tropical|arctic|desert|temperate
zoo_animals/zoo animal: name title; enclosure_id ref enclosures in; species of lion|penguin|gecko|panda|zebra; age int
  1-40; daily_food? real 1-60 as daily food
# charity
donors/donor: name person; country country; donor_since int 1995-2023 as first year; is_company bool
campaigns/campaign: title title; goal int 1000-90000/1000; start_date date 2015-2023 by launched; topic of
  health|education|climate|animals
donations/donation: donated_on date 2019-2023 as donation date by made; donor_id ref donors from; campaign_id ref
  campaigns to; amount int 10-5000/10; method? of card|transfer|cash
# space
missions/mission: name title; agency company; launch_date date 1970-2023 by launched; budget int 10-900; outcome of
  success|failure|partial
astronauts/astronaut: name person; nationality country; birth_year int 1935-1995 by born; flights int 0-6 as number of
  flights
spacewalks/spacewalk: walk_date date 1975-2023 by performed; mission_id ref missions during; astronaut_id ref
  astronauts by; minutes int 20-520
# car_rental
cars/car: plate code; brand of Toyota|Ford|Skoda|Volvo; build_year int 2010-2023 as year built by built; daily_rate
  int 20-200; mileage int 1000-200000/500; fuel adj electric|diesel|hybrid
renters/renter: name person; country country; license_year int 1975-2022
rentals/rental: start_date date 2021-2023 by started; car_id ref cars of; renter_id ref renters by; days int 1-30;
  damage_fee? int 50-2000/50
# newspaper
journalists/journalist: name person; desk of politics|culture|sport|science; hired date 1995-2023 as hiring date by
  hired; salary int 2200-7000/50
articles/article: headline title; journalist_id ref journalists by; published date 2021-2023 as publication date by
  published; words int 150-4000/10 as word count; views int 100-90000/50; section? of front|local|world
# wine
wineries/winery: name place; region of Douro|Rioja|Mosel|Tuscany; founded int 1700-2010 as founding year by founded;
  hectares int 2-300
wines/wine: name title; winery_id ref wineries from; color adj red|white|rose; vintage int 1990-2022 as vintage year;
  price real 5-180; score? int 70-100
# elections
parties/party: name company; founded int 1880-2020 as founding year by founded; ideology? of
  green|liberal|conservative|socialist; members int 1-600 as members in thousands
candidates/candidate: name person; party_id ref parties of; age int 25-80; district city; votes int 200-90000/10;
  elected bool
# games
studios/studio: name company; country country; founded int 1980-2022 as founding year by founded; staff int 3-3000 as
  staff size
games/game: title title; studio_id ref studios by; genre of puzzle|racing|strategy|shooter; release_date date
  1995-2023 by released; price real 1-80; score? int 30-99
# police
precincts/precinct: name place; district of east|west|harbor|center; officers int 10-300 as number of officers
incidents/incident: incident_date date 2020-2023 by reported; precinct_id ref precincts in; category of
  theft|fraud|assault|vandalism; solved bool; loss? int 10-9000/10
# pharmacy
drugs/drug: name title; manufacturer company; form of tablet|syrup|cream|injection; price real 2-120; stock int 0-500
prescriptions/prescription: issued date 2021-2023 as issue date by issued; drug_id ref drugs for; patient_name person;
  dose int 5-500/5; refills int 0-6
# courier
riders/rider: name person; vehicle of bike|scooter|van; rating real 1-5; city city; joined date 2018-2023 as joining
  date by hired
parcels/parcel: code code; rider_id? ref riders delivered by; weight real 1-30; destination city; fee real 2-40;
  fragile bool
# festival
bands/band: name title; country country; members int 1-9 as number of members; fee int 500-50000/500
stages/stage: name place; capacity int 200-40000/100; indoor bool
concerts/concert: concert_date date 2019-2023 by held; band_id ref bands by; stage_id ref stages on; audience int
  50-30000/50; minutes int 20-180
# astronomy
observatories/observatory: name place; country country; altitude int 100-5200/10; opened int 1890-2020 as opening year
  by opened
telescopes/telescope: name code; observatory_id ref observatories at; mirror_size real 1-12 as mirror size; type adj
  optical|radio|infrared; cost? int 1-900
# forestry
parks/park: name place; country country; area int 20-9000/10; established int 1900-2020 as founding year by founded
trees/tree: tag code; park_id ref parks in; species of oak|pine|birch|maple; height real 2-60; planted int 1850-2022
  as year planted by planted; health? of good|fair|poor
"""

"""Many small databases of which the SQL rows ask a few questions each, in the notation of domains.py.

The four of domain_table.py teach the forms; these teach that names are read off the prompt. So they differ in topic, in
size and in how tables, keys and columns are written. None has a table, or a column but the commonest, of the unseen cases.
"""

from __future__ import annotations

TEXT = """
# bakery
cakes/cake: name title; flavor of lemon|walnut|cherry|vanilla; slices int 6-40 as number of slices; vegan bool
batches/batch: baked date 2022-2024 as baking date by baked; cake_id ref cakes of; trays int 1-25 as number of trays;
  outcome adj perfect|burnt|raw
# farm
barns/barn: name place; stalls int 10-120 as number of stalls; roof of tin|tile|straw; erected int 1920-2019 as year
  erected by erected
cows/cow: tag code; barn_id ref barns in; breed of Jersey|Holstein|Angus; milk_yield real 8-40 as milk yield; born_on
  date 2014-2022 as birth date by born
# zoo
zookeepers/zookeeper: name person; shift adj early|late|weekend; years int 1-35 as years of service
enclosures/enclosure: name place; climate of tropical|arid|polar; area int 40-900/10; heated bool
animals/animal: name pick Kito|Bruno|Zuri|Nala|Baloo|Tinka|Momo|Rocky|Luna|Pepe|Shanti|Oskar|Wanda|Jumbo; enclosure_id
  ref enclosures in; zookeeper_id ref zookeepers fed by; species of lion|tapir|otter|lemur; age int 1-30; weight real
  3-300
# football
clubs/club: name company; city city; stadium place; members int 500-90000/500 as number of members
players/player: name person; club_id ref clubs of; position of goalkeeper|defender|striker; goals int 0-45 as number of
  goals; transfer_fee? int 1-80 as transfer fee
coaches/coach: name person; club_id ref clubs of; contract_until date 2024-2027 as end of contract; cups? int 1-20 as
  number of cups
matches/match: played date 2022-2024 as match date by played; home_id ref clubs hosted by; guest company; home_goals int 0-6
  as number of home goals; spectators int 100-60000/100 as number of spectators; weather_at of
  sun|rain|snow as weather
# gym
trainers/trainer: name person; sport of yoga|boxing|rowing; fee int 25-90/5; certified bool
workouts/workout: workout_date date 2023-2024 as workout date by done; trainer_id ref trainers led by; duration int
  20-120/5; calories int 150-1200/10; place? of hall|pool|roof
# bank
branches/branch: name place; city city; counters int 2-14 as number of counters
accounts/account: iban code; branch_id ref branches at; holder person; balance int 0-90000/50; type adj
  current|savings|joint; overdraft? int 100-3000/100
transfers/transfer: made_on date 2023-2024 as transfer date by made; account_id ref accounts from; total int 5-4000/5;
  purpose? of lease|salary|gift|tax
# insurance
policies/policy: policy_number code as policy number; insured person; premium int 60-2400/20; cover of
  home|travel|life|legal; signed date 2012-2023 as signing date by signed
claims/claim: filed date 2021-2024 as filing date by filed; policy_id ref policies under; loss int 100-20000/100;
  decision adj approved|denied|open
# hotel
rooms/room: room_number code as room number; beds int 1-5 as number of beds; view of sea|garden|street; rate int
  45-320/5; quiet bool
guests/guest: name person; country country; loyalty adj silver|gold|platinum; stays int 1-40 as number of stays
bookings/booking: arrival date 2022-2024 as arrival date; room_id ref rooms of; guest_id ref guests by; persons int 1-5
  as number of persons; discount? int 5-40/5
# gallery
painters/painter: name person; country country; movement of cubism|realism|baroque; died? int 1700-2005 as year of
  death
paintings/painting: title title; painter_id ref painters by; technique of oil|pastel|ink; worth int 10-900/5; width int
  20-300; framed bool
# newspaper
journalists/journalist: name person; desk of politics|sports|science|local; salary int 2400-6800/100
articles/article: headline title; journalist_id ref journalists by; words int 150-3000/10 as number of words; printed
  date 2021-2024 as print date by printed; clicks int 100-50000/100 as number of clicks
# railway
stations/station: name place; city city; platforms int 1-24 as number of platforms; has_elevator bool
trains/train: train_code code as train code; kind adj regional|express|freight; top_speed int 90-320/10 as top speed;
  wagons int 2-30 as number of wagons
stops/stop: stop_date date 2023-2024 as stop date; station_id ref stations at; train_id ref trains of; delay int 0-90
  as delay in minutes; passengers int 0-500/5 as number of passengers
# court
judges/judge: name person; appointed int 1990-2022 as year of appointment by appointed; chamber of civil|criminal|tax
trials/trial: docket code; judge_id ref judges before; began date 2019-2023 as start date by begun; witnesses int 0-25
  as number of witnesses; result adj dismissed|settled|appealed; damages? int 1000-90000/500
# theater
plays/play: title title; playwright person; acts int 1-6 as number of acts; written int 1850-2015 as year written by
  written
stages/stage: name place; rows int 8-40 as number of rows; revolving bool
performances/performance: performed date 2022-2024 as performance date by performed; play_id ref plays of; stage_id ref
  stages on; applause int 1-15 as minutes of applause; cast_size int 2-30 as cast size
# tickets
projects/project: name title; client company; deadline date 2024-2026; progress int 0-100
tickets/ticket: summary title; project_id ref projects in; severity of minor|major|critical; hours real 1-60 as number
  of hours; closed? date 2023-2024 as closing date by closed
# space
rockets/rocket: name pick Vega Two|Aurora|Titanis|Skylark|Borealis Nine|Halo|Comet Heavy|Nova; thrust int 200-8000/50;
  stages_count int 2-4 as number of stages; reusable bool
launches/launch: launched date 2015-2024 as launch date by launched; rocket_id ref rockets of; pad of east pad|west
  pad|island; payload_mass int 100-9000/100 as payload mass; successful? bool
# weather
weather_stations/weather_station: name place; elevation int 2-2900/10; owner adj public|private|military
readings/reading: taken date 2022-2024 as reading date by taken; weather_station_id ref weather_stations at;
  temperature real 1-39; rainfall int 0-90; wind of lull|breeze|storm
# wind_power
turbines/turbine: serial code as serial number; maker company; blades int 2-5 as number of blades; output int
  500-6000/50; tower_height int 40-160/5 as tower height
inspections/inspection: inspected date 2020-2024 as inspection date by carried out; turbine_id ref turbines of;
  inspector person; defects int 0-14 as number of defects; grade adj good|fair|poor
# bikes
bikes/bike: frame_code code as frame code; model of city|cargo|mountain|tandem; gears int 1-27 as number of gears;
  bought int 2012-2023 as year of purchase by bought
rentals/rental: rented date 2023-2024 as rental date by made; bike_id ref bikes of; renter person; hours_out int 1-72
  as hours out; has_helmet bool
# volcanoes
volcanoes/volcano: name place; country country; height int 400-6000/50; activity adj active|dormant|extinct
# stable
horses/horse: name title; coat of bay|grey|dun; stride real 1-8; foaled int 2005-2021 as year of birth by foaled
jockeys/jockey: name person; wins int 0-400 as number of wins; license? code
races/race: run_on date 2020-2024 as race date by run; horse_id ref horses with; jockey_id ref jockeys with; lap_time
  int 60-240 as lap time; track adj dry|muddy|icy
# games
studios/studio: name company; country country; employees int 3-900 as number of employees
games/game: title title; studio_id ref studios from; engine of Unity|Godot|Unreal; score int 20-100; launched_in int
  1995-2024 as launch year by launched; multiplayer bool
# recipes
recipes/recipe: name title; cook person; servings int 1-12 as number of servings; meal adj hot|cold|sweet|spicy;
  prep_time int 5-180/5 as preparation time
steps/step: step_code code as step code; recipe_id ref recipes of; minutes int 1-60 as number of minutes; tool? of
  whisk|pan|oven|knife
# blog
bloggers/blogger: nickname title; email_count int 1-900 as number of emails; verified bool
posts/post: headline title; blogger_id ref bloggers by; posted date 2021-2024 as posting date by posted; likes int
  0-5000/5 as number of likes; topic? of cooking|fashion|gadgets
comments/comment: written_on date 2022-2024 as comment date by written; post_id ref posts on; commenter person; tone
  adj friendly|rude|neutral; votes int 0-300 as number of votes
# estate
agents/agent: name person; phone code; commission real 1-7
villas/villa: address place; agent_id ref agents offered by; bedrooms int 1-9 as number of bedrooms; asking_price int
  90-950/5 as asking price; heating of gas|oil|solar; has_garage bool
# moving: singular own
trucks/truck: plate_number code as plate number; load_limit int 2-40 as load limit; fuel of diesel|gas|hydrogen;
  serviced date 2021-2024 as service date by serviced
jobs/job: moved date 2022-2024 as moving date by done; truck_id ref trucks with; mover person; boxes int 5-300/5 as
  number of boxes; fragile bool
# pottery: singular
potters/potter: name person; village city; apprentices? int 0-6 as number of apprentices
vases/vase: vase_code code as vase code; potter_id ref potters by; glaze of celadon|cobalt|ash; fired date 2018-2024 as
  firing date by fired; volume real 1-20; flaw adj cracked|chipped|flawless
# quiz: singular own
quizzes/quiz: title title; host person; rounds int 2-10 as number of rounds; aired date 2019-2024 as air date by aired
questions/question: question_code code as question code; quiz_id ref quizzes in; field of history|music|nature;
  worth_points int 1-20 as point value; solved bool
# fire_brigade: own
brigades/brigade: name place; chief person; volunteers int 4-80 as number of volunteers
engines/engine: call_sign code as call sign; brigade_id ref brigades of; tank_volume int 500-9000/100 as tank volume;
  ladder adj short|long|folding; bought_in int 1998-2023 as year of purchase by bought
alarms/alarm: raised date 2021-2024 as alarm date by raised; engine_id ref engines answered by; cause of
  smoke|flood|gas leak; injured int 0-9 as number of injured
# observatory: own
telescopes/telescope: name pick Argus|Lynx|Corvus|Polaris|Kepler|Galileo|Hubble Mini|Cyclops; mirror int 20-900/10 as
  mirror size; mount of fork|dome|tripod
stars/star: name title; brightness real 1-20; color adj red|blue|white|yellow; discovered? int 1780-2015 as year of
  discovery by discovered
observations/observation: observed date 2018-2024 as observation date by made; telescope_id ref telescopes with;
  star_id ref stars of; exposure int 5-900/5; has_clear_sky bool
# school: typed
teachers/teacher: name person; subject of algebra|biology|geography|art; classes_taught int 1-9 as number of classes
  taught; full_time bool
pupils/pupil: name person; teacher_id ref teachers of; grade_level int 1-12 as grade level; absences? int 1-40 as
  number of absences; enrolled date 2015-2023 as enrollment date by enrolled
# post: typed
couriers/courier: name person; vehicle of van|scooter|bicycle; stops_per_day int 20-180 as stops per day
parcels/parcel: tracking code as tracking number; courier_id ref couriers with; weight real 1-30; sent date 2023-2024
  as sending date by sent; service adj express|standard|registered; insured_for? int 10-900/10 as insured value
# pharmacy: typed own
drugs/drug: name title; maker company; dose int 5-900/5; form of tablet|syrup|ointment; prescription_only bool
sales/sale: sold_on date 2022-2024 as sale date by made; drug_id ref drugs of; packs int 1-12 as number of packs;
  buyer? person
# university: keys
departments/department: name pick Physics|History|Law|Medicine|Economics|Music|Botany|Geology|Drama; dean person;
  grants int 10-900/10
professors/professor: name person; department_id ref departments in; salary int 4000-9500/100; tenured bool;
  publications int 0-140 as number of publications
seminars/seminar: title title; professor_id ref professors by; credits int 1-12 as number of credits; term adj
  spring|autumn; waitlist? int 1-40 as waiting list size
# garments: keys singular own
designers/designer: name person; country country; debut int 1985-2020 as debut year
garments/garment: name title; designer_id ref designers by; fabric of silk|linen|denim|wool; price int 20-900/5; sizes
  int 1-8 as number of sizes; season adj summer|winter
# forest: typed singular
foresters/forester: name person; district of ridge|lowland|delta; trained int 1990-2020 as training year by trained
trees/tree: tree_code code as tree code; forester_id ref foresters under; species of oak|pine|birch; girth int
  20-400/5; planted date 1995-2022 as planting date by planted; health? adj healthy|sick|dying
# bridges: camel
bridges/bridge: name place; span int 20-1900/10; lanes int 1-8 as number of lanes; material of iron|stone|concrete;
  has_toll bool
repairs/repair: repair_date date 2012-2024 as repair date by carried out; bridge_id ref bridges of; contractor company;
  total_cost int 20-900/10 as total cost; urgency adj routine|urgent
# weddings: camel own
venues/venue: name place; city city; max_guests int 40-500/10 as maximum number of guests; outdoor bool
weddings/wedding: wedding_date date 2022-2025 as wedding date by celebrated; venue_id ref venues at; planner person;
  guest_count int 20-400/5 as number of guests; menu of buffet|vegan|classic
# police: camel singular own
officers/officer: name person; rank_title of sergeant|detective|captain; badge code as badge number; service_years int
  1-38 as years of service
incidents/incident: reported_on date 2021-2024 as report date by reported; officer_id ref officers handled by; offense
  of theft|fraud|vandalism; suspects int 0-8 as number of suspects; severity_level adj mild|grave as severity level
# photo: pascal
photographers/photographer: name person; city city; day_fee int 150-1500/50 as day fee
photos/photo: photo_title title as photo title; photographer_id ref photographers by; shot_on date 2016-2024 as
  shooting date by shot; megapixels int 6-100 as number of megapixels; tint adj black-and-white|sepia|colored;
  downloads int 0-9000/10 as number of downloads
# mining: pascal singular own
mines/mine: mine_name place as mine name; ore of copper|zinc|lithium; shaft_depth int 50-3000/10 as shaft depth; miners
  int 20-900/5 as number of miners
shipments/shipment: shipped_on date 2021-2024 as shipping date by shipped; mine_id ref mines from; customer company;
  tons int 5-900/5 as number of tons; purity real 20-99
# chess: pascal own keys
grandmasters/grandmaster: full_name person as full name; elo int 2200-2850/5; country country; titled_in int 1970-2020
  as title year
chess_games/chess_game: played_on date 2005-2024 as game date by played; white_id ref grandmasters started by; opening
  of Sicilian|Slav|Caro-Kann; moves int 15-120 as number of moves; ending adj drawn|won|lost
# invoices: typed own
invoices/invoice/inv: inv_no code as invoice number; cust_name company as customer name; inv_date date 2022-2024 as
  invoice date by issued; net_amt int 50-9000/50 as net amount; vat_pct int 5-25/5 as tax rate; pay_status adj
  paid|overdue|disputed as payment status; dunning_lvl? int 1-3 as dunning level
# personnel: own
employees/employee/emp: emp_name person as employee name; job_ttl of clerk|analyst|manager as job title; mth_pay int
  2000-9000/100 as monthly pay; start_dt date 2008-2023 as start date by started; on_leave bool
absences/absence/emp_abs: abs_from date 2023-2024 as first day; emp_id ref employees of; n_days int 1-30 as number of
  days; abs_kind of illness|holiday|training as absence kind
# rivers
rivers/river: name pick Alda|Bruma|Corin|Dessa|Elva|Farro|Gilda|Harn|Isola|Jarra|Kesta|Lomma|Marn|Neva|Orla|Pinta;
  source city; flow int 40-6000/20; navigable bool; mouth? of sea|lake|delta
# plumbing: singular
plumbers/plumber: name person; call_out_fee int 30-150/5 as call-out fee; stars int 1-5 as number of stars
repair_visits/repair_visit: visited_on date 2023-2024 as visit date by made; plumber ref plumbers by; fault of
  leak|clog|frost; parts_cost int 0-400/5 as cost of parts; has_warranty bool
# charity: camel
charities/charity: name company; cause of hunger|climate|housing; volunteers_total int 5-900/5 as total of volunteers;
  registered_since int 1960-2020 as registration year
donors/donor: name person; city city; anonymous bool
gifts/gift: given_on date 2021-2024 as gift date by given; charity_id ref charities to; donor_id ref donors from;
  gift_value int 5-900/5 as gift value; channel of letter|web|street; receipt? code
# tv
channels/channel: name title; owner_company company as owner; viewers int 10-9000/10 as number of viewers; paid bool
serials/serial: title title; channel_id ref channels on; seasons int 1-15 as number of seasons; tone adj
  gloomy|funny|romantic; first_aired int 1985-2023 as first year by first aired
"""

"""The graphs that make_neo4j_data.py asks about, in the notation of neo4j_domains.py."""

from __future__ import annotations

TEXT = """
# movies
Person/people: name person; born int 1930-2004 as birth year by born; country? country
Movie/movies: title title; released int 1970-2023 as release year by released; runtime int 70-200; rating? real 2-10
Genre/genres: name pick Drama|Comedy|Thriller|Horror|Western|Musical|Fantasy|Crime|War|Noir
Person ACTED_IN Movie: who acted in | featuring: role of lead|support|cameo
Person DIRECTED Movie: who directed | directed by
Movie IN_GENRE Genre: in | covering
# social_network
User/users: name person; age int 14-80; city? city; joined date 2012-2023 as joining date by registered
Post/posts: title title; likes int 0-900 as number of likes; created date 2021-2023 as creation date by created
Topic/topics: name pick Travel|Cooking|Politics|Gaming|Fitness|Music|Fashion|Science|Finance|Parenting
User FOLLOWS User: who follow | followed by: since int 2012-2023 as starting year
User LIKED Post: who liked | liked by
Post ABOUT Topic: about | covered in
# shop_graph
Customer/customers: name person; country country; joined date 2015-2023 as joining date by registered
Product/products: name title; price real 3-250; stock? int 0-300
Category/categories: name pick Books|Toys|Garden|Audio|Shoes|Tools|Cosmetics|Sports|Pets|Grocery
Customer BOUGHT Product: who bought | bought by: quantity int 1-9
Customer REVIEWED Product: who reviewed | reviewed by: stars int 1-5
Product IN_CATEGORY Category: in | containing
# air_routes
Airport/airports: code code; city city; runways int 1-6 as number of runways; elevation? int 0-2500/10
Airline/airlines: name company; founded int 1925-2015 as founding year by founded; fleet int 5-600 as fleet size
Airport ROUTE_TO Airport: with a direct route to | reached from: distance int 150-9000/50
Airline OPERATES_FROM Airport: operating from | served by
# research
Author/authors: name person; h_index int 1-90 as h-index; affiliation? company
Paper/papers: title title; year int 1990-2023 as publication year by published; citations int 0-900 as number of
  citations
Venue/venues: name pick ICML|VLDB|SIGMOD|ACL|CHI|KDD|ICSE|SOSP|STOC|CVPR; kind adj yearly|biennial
Author WROTE Paper: who wrote | written by: position int 1-6
Paper CITES Paper: citing | cited by
Paper PUBLISHED_IN Venue: published in | publishing
# company_graph
Employee/employees: name person; salary int 2000-9000/50; hired date 2008-2023 as hiring date by hired; title of
  engineer|analyst|designer|manager as job title
Department/departments: name pick Sales|Finance|Legal|Support|Research|Design|Security|Logistics; budget int 50-900/10
Skill/skills: name pick Python|SQL|Cypher|Excel|Figma|Go|Rust|Java|Docker|Spark
Employee WORKS_IN Department: who work in | employing: since int 2008-2023 as starting year
Employee REPORTS_TO Employee: who report to | managing
Employee HAS_SKILL Skill: who have | known by: level int 1-5
# music_graph
Artist/artists: name person; born int 1940-2004 as birth year by born; country country
Song/songs: title title; duration int 90-600; plays int 1000-90000/100 as number of plays
Album/albums: title title; year int 1965-2023 as release year by released; label? company as record label
Artist PERFORMS Song: who perform | performed by
Song ON_ALBUM Album: on | containing: track int 1-14 as track number
Artist INFLUENCED Artist: who influenced | influenced by
# football
Player/players: name person; age int 17-39; position of goalkeeper|defender|midfielder|forward; value? int 1-120 as
  market value
Club/clubs: name company; city city; founded int 1880-2005 as founding year by founded
Coach/coaches: name person; titles int 0-14 as number of titles
Player PLAYS_FOR Club: who play for | employing: shirt int 1-40 as shirt number
Coach TRAINS Club: who train | trained by
Player TRANSFERRED_TO Club: who transferred to | signing: fee int 1-150
# hospital_graph
Patient/patients: name person; age int 1-95; city? city
Doctor/doctors: name person; specialty of cardiology|pediatrics|surgery|neurology; experience int 1-40 as years of
  experience
Disease/diseases: name pick Asthma|Diabetes|Migraine|Anemia|Arthritis|Measles|Flu|Gout|Eczema|Angina; contagious bool
Doctor TREATS Patient: who treat | treated by: since date 2018-2023 as start date
Patient HAS_DISEASE Disease: who have | affecting: severity int 1-10
# recipes
Chef/chefs: name person; stars int 0-3 as number of stars; country country
Recipe/recipes: title title; minutes int 10-240 as preparation time; calories? int 100-1500/10
Ingredient/ingredients: name pick Tomato|Basil|Garlic|Rice|Butter|Salmon|Chili|Lemon|Mushroom|Ginger|Honey|Egg; price
  real 1-30
Chef CREATED Recipe: who created | created by
Recipe USES Ingredient: using | used in: amount int 5-900/5
# logistics_graph
Warehouse/warehouses: name place; city city; capacity int 100-5000/100
Truck/trucks: plate code; load int 1-40 as maximum load; built int 2005-2023 as year built by built
Store/stores: name company; city city; opened date 1990-2023 as opening date by opened
Truck PARKED_AT Warehouse: parked at | holding
Warehouse SUPPLIES Store: supplying | supplied by: weekly_tons int 1-60 as weekly tons
Truck DELIVERS_TO Store: delivering to | visited by: distance int 5-700/5
# university_graph
Student/students: name person; gpa real 1-4 as GPA; enrolled int 2015-2023 as enrollment year by enrolled
Course/courses: title title; credits int 2-10 as number of credits; level adj introductory|advanced
Professor/professors: name person; office? code; rank of assistant|associate|full
Student TAKES Course: who take | taken by: grade int 50-100
Professor TEACHES Course: who teach | taught by
Course REQUIRES Course: requiring | required by
# city_metro
Station/stations: name place; opened int 1900-2022 as opening year by opened; zone int 1-6; accessible bool
Line/lines: name pick Red|Blue|Green|Orange|Purple|Silver|Yellow|Brown; length real 5-60
Station NEXT_TO Station: next to | adjacent to: minutes int 1-9 as travel time
Station ON_LINE Line: on | stopping at: sequence int 1-30 as sequence number
# software_graph
Developer/developers: name person; country country; commits int 1-900 as number of commits
Repository/repositories: name title; stars int 0-9000/5 as number of stars; language of Python|Rust|Java|Go
License/licenses: name pick MIT|Apache|GPL|BSD|MPL|EPL|Zlib|ISC
Developer CONTRIBUTED_TO Repository: who contributed to | built by: commits int 1-400 as number of commits
Repository DEPENDS_ON Repository: depending on | needed by
Repository LICENSED_UNDER License: licensed under | applied to
# bank_fraud
Account/accounts: number code as account number; balance int 0-50000/10; opened date 2010-2023 as opening date by
  opened; status adj active|frozen|closed
Holder/holders: name person; age int 18-90; country country
Device/devices: id code as device id; type of phone|laptop|tablet
Holder OWNS Account: who own | owned by
Account TRANSFERRED Account: that sent money to | that received money from: amount int 10-9000/10
Holder USES_DEVICE Device: who use | used by: logins int 1-200 as number of logins
# travel
Traveler/travelers: name person; nationality country; age int 18-80
Destination/destinations: name pick Oslo|Lima|Porto|Kyoto|Cairo|Hanoi|Quito|Riga|Turin|Madrid|Seoul|Izmir; climate adj
  tropical|alpine|coastal|arid; cost int 20-300 as daily cost
Activity/activities: name pick Hiking|Diving|Skiing|Surfing|Sailing|Cycling|Camping|Kayaking; risk int 1-10
Traveler VISITED Destination: who visited | visited by: year int 2010-2023 as visit year
Destination OFFERS Activity: offering | offered by
Traveler ENJOYS Activity: who enjoy | enjoyed by
# books
Writer/writers: name person; born int 1900-1995 as birth year by born; country country
Book/books: title title; pages int 80-1200 as number of pages; published date 1950-2023 as publication date by
  published; price? real 5-60
Reader/readers: name person; age int 10-85
Writer AUTHORED Book: who authored | authored by
Reader READ Book: who read | read by: rating int 1-5
Writer ADMIRES Writer: who admire | admired by
# crime
Suspect/suspects: name person; age int 16-75; alias? title
Case/cases: number code as case number; opened date 2015-2023 as opening date by opened; status adj open|solved|cold
Officer/officers: name person; badge code as badge number; rank of detective|sergeant|captain
Suspect INVOLVED_IN Case: involved in | involving: charges int 1-9 as number of charges
Officer INVESTIGATES Case: who investigate | investigated by
Suspect KNOWS Suspect: who know | known by
# power_grid
Plant/plants: name place; capacity int 20-3000/10; fuel of coal|wind|solar|hydro|gas; built int 1960-2022 as year
  built by built
Substation/substations: name code; voltage int 10-400/10
Town/towns: name pick
  Ashford|Brookfield|Clifton|Dunmore|Eastwood|Fairview|Glenville|Hartley|Kingston|Lakewood|Milton|Norwood; population
  int 1000-90000/500
Plant FEEDS Substation: feeding | fed by: load int 5-500/5
Substation POWERS Town: powering | powered by
Substation LINKED_TO Substation: linked to | linked from: length real 2-120
# museum_graph
Painter/painters: name person; born int 1500-1970 as birth year by born; nationality? country
Painting/paintings: title title; year int 1530-2010 as year painted by painted; style adj
  cubist|baroque|abstract|realist
Museum/museums: name place; city city; visitors int 10-900 as yearly visitors
Painter PAINTED Painting: who painted | painted by
Museum EXHIBITS Painting: exhibiting | exhibited in: room int 1-60 as room number
Painter TAUGHT Painter: who taught | taught by
# gaming
Gamer/gamers: nickname code; level int 1-100; country country
Game/games: title title; released date 1998-2023 as release date by released; price? real 1-80; genre of
  puzzle|racing|strategy|shooter
Studio/studios: name company; founded int 1980-2020 as founding year by founded
Gamer PLAYS Game: who play | played by: hours int 1-900
Studio DEVELOPED Game: that developed | developed by
Gamer FRIEND_OF Gamer: befriending | befriended by
# ecology
Species/species: name title; weight real 1-900; diet of herbivore|carnivore|omnivore; endangered bool
Habitat/habitats: name place; area int 10-9000/10; climate adj tropical|temperate|polar|arid
Species EATS Species: eating | eaten by
Species LIVES_IN Habitat: living in | home to: population int 5-9000/5
# events
Attendee/attendees: name person; company? company; age int 18-70
Conference/conferences: name title; city city; starts date 2019-2023 as start date by starting; fee int 50-2000/50
Speaker/speakers: name person; talks int 1-60 as number of talks
Attendee REGISTERED_FOR Conference: registered for | attended by: paid int 20-2000/10 as amount paid
Speaker SPEAKS_AT Conference: who speak at | with talks by
Attendee MET Speaker: who met | met by
# supply_chain
Supplier/suppliers: name company; country country; reliability int 40-100 as reliability score
Part/parts: name code; weight real 1-90; price real 1-400
Factory/factories: name place; workers int 20-3000/10 as number of workers; city city
Supplier PROVIDES Part: providing | provided by: lead_days int 1-90 as lead time
Factory REQUIRES_PART Part: that require | required by: quantity int 5-900/5
Supplier SHIPS_TO Factory: shipping to | receiving from
# languages
Speaker/speakers: name person; age int 8-85; hometown? city
Language/languages: name pick Basque|Catalan|Danish|Estonian|Finnish|Greek|Hindi|Maltese|Swahili|Welsh; speakers int
  1-900 as speakers in millions
Country/countries: name pick Norway|Peru|Japan|Egypt|Ireland|Vietnam|Turkey|Poland|Kenya|Latvia|Chile|Canada; area int
  10-9000/10
Speaker SPEAKS Language: who speak | spoken by: level of basic|fluent|native
Language OFFICIAL_IN Country: official in | officially using
# family
Member/members: name person; born date 1930-2015 as birth date by born; city? city; height int 120-200
House/houses: address place; built int 1880-2020 as year built by built; rooms int 2-14 as number of rooms
Member PARENT_OF Member: who are parents of | who are children of
Member LIVES_AT House: living at | inhabited by: since int 1990-2023 as starting year
# streaming
Viewer/viewers: name person; age int 8-85; plan adj basic|premium|family
Series/series: title title; seasons int 1-15 as number of seasons; started int 1990-2023 as starting year by started;
  rating? real 2-10
Network/networks: name company; country country
Viewer WATCHED Series: who watched | watched by: episodes int 1-120 as number of episodes
Network PRODUCES Series: producing | produced by
Series SIMILAR_TO Series: similar to | listed as similar by
# real_estate_graph
Agent/agents: name person; commission int 1-9; licensed int 1990-2022 as license year by licensed
Home/homes: address place; price int 90-900/5; bedrooms int 1-7 as number of bedrooms; sold_on? date 2018-2023 as sale
  date by sold
District/districts: name pick Harbor|Oldtown|Riverside|Hillcrest|Parkview|Westend|Lakeside|Midtown; crime_rate real
  1-60 as crime rate
Agent LISTS Home: who list | listed by: since date 2021-2023 as listing date
Home LOCATED_IN District: located in | containing
District BORDERS District: bordering | bordered by
# space_graph
Astronaut/astronauts: name person; nationality country; born int 1935-1995 as birth year by born
Mission/missions: name title; launched date 1970-2023 as launch date by launched; cost int 10-900; outcome of
  success|failure|partial
Rocket/rockets: model pick Saturn|Ariane|Atlas|Delta|Soyuz|Falcon|Vega|Titan|Proton|Electron; thrust int 300-9000/50
Astronaut FLEW_ON Mission: who flew on | flown by: days int 1-300 as number of days
Mission LAUNCHED_WITH Rocket: launched with | used for
Astronaut TRAINED_WITH Astronaut: who trained with | chosen as training partners by
# telecom_graph
Tower/towers: code code; height int 20-150; installed int 1995-2023 as installation year by installed
Phone/phones: number code as phone number; brand of Nokia|Apple|Samsung|Sony; price? int 50-1500/10
Tower CONNECTED_TO Tower: connected to | reached from: bandwidth int 10-900/10
Phone USES_TOWER Tower: using | used by: calls int 1-300 as number of calls
Phone CALLED Phone: that called | called by: duration int 5-3600/5
"""

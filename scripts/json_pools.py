"""Names, places and phrases that values are drawn from; `|` or a line break parts them."""

PEOPLE = """
Ana Souza|Zoë Krüger|Łukasz Nowak|José Álvarez|Mei Chen|Siân O'Neill|Tom Baker|Priya Nair|Omar Haddad|
Ingrid Dahl|Yuki Tanaka|Luca Rossi|Emma Clarke|Noah Weber|Aylin Demir|Petra Novák|Kofi Mensah|Marta Gómez|
Ivan Petrov|Chloé Martin|Ravi Patel|Hana Sato|Björn Lind|Grace Kim|Diego Torres|Fatima Zahra|Owen Price|
Lena Vogel|Musa Bello|Nora Lund
"""
CITIES = """
Lisbon|Zürich|Kraków|Malmö|São Paulo|Oslo|Kyoto|Nairobi|Toronto|Graz|Porto|Lyon|Leeds|Quito|Busan|Bergen|
Ghent|Córdoba|Tartu|Perth|Denver|Naples|Tromsø|Dakar|Pune|Cork|Split|Basel
"""
COMPANIES = """
Northwind|Blue Fern Ltd|Kestrel & Co|Müller AG|Acorn Labs|Red Kite|Silver Oak|Brightline|Tern Works|
Nova Foods|Harbor Press|Alder Group|Petit Café|Orion Freight|Lumen Bank|Stone Mill
"""
FIRST = """
Quiet|Hidden|Bright|Last|Golden|Broken|Distant|Silver|Open|Lost|Winter|Northern|Little|Burning|Second|
Paper
"""
SECOND = """
River|Garden|Signal|Harbor|Letter|Mountain|Season|Window|Road|Orchard|Island|Machine|Story|Bridge|Forest
"""
STREETS = """
Mill Lane|Station Road|Rue du Lac|Oak Street|Hauptstraße|Via Roma|Elm Avenue|King's Road
"""
NOTES = r"""
Asked for the "blue" one
Stored under C:\data\new
Runs 5 °C too warm
50% done, rest by Friday
Crème brûlée & coffee
See a/b\c first
Marked "urgent" twice
Back in two weeks
Naïve guess: 3 ≤ n
Ask for Zoë at the desk
Label says "do not bend"
Left at the front door
Check pages 4–9
日本 edition
Price agreed by phone
Needs a second look
"""

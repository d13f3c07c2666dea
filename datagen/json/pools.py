"""Names, places and phrases that values are drawn from; `|` or a line break parts them."""

PEOPLE = """
Ana Souza|Zoë Krüger|José Álvarez|Mei Chen|Tom Baker|Priya Nair|Omar Haddad|Ingrid Dahl|Yuki Tanaka|
Luca Rossi|Emma Clarke|Noah Weber|Siân O'Neill|Ivan Petrov|Grace Kim|Nora Lund
"""
CITIES = """
Lisbon|Zürich|Oslo|Kyoto|Nairobi|Toronto|Graz|São Paulo|Leeds|Quito|Bergen|Ghent
"""
COMPANIES = """
Northwind|Blue Fern Ltd|Kestrel & Co|Müller AG|Acorn Labs|Red Kite|Silver Oak|Tern Works
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
NOTES = """
Asked for the "blue" one
Runs 5 °C too warm
Marked "urgent" twice
Back in two weeks
Left at the front door
Check pages 4 to 9
Price agreed by phone
Needs a second look
"""

"""The databases that the SQL rows ask about, in the notation of domains.py."""

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
books/book: title title; author person; genre of fantasy|history|crime|poetry; pages int 90-900 as number of pages;
  published int 1950-2022 as publication year by published
readers/reader: name person; city city; age int 12-80; joined date 2012-2023 as joining date by registered
loans/loan: loan_date date 2022-2023 by made; book_id ref books of; reader_id ref readers by; due_date date 2023-2024;
  fine? real 1-20
# shop
customers/customer: name person; country country; credit_limit int 500-9000/250
products/product: name title; category of toys|garden|kitchen|sports; price real 3-250; stock int 0-200
orders/order: order_date date 2020-2023 by placed; customer_id ref customers by; product_id ref products for; quantity
  int 1-12; status adj pending|shipped|cancelled
# cinema
films/film: title title; director person; release_year int 1960-2023 by released; rating real 2-10; runtime int 70-200
screens/screen: name place; seats int 40-400/10 as number of seats; format of IMAX|2D|3D
showings/showing: show_date date 2022-2023 by held; film_id ref films of; screen_id ref screens on; tickets_sold int
  0-300 as number of tickets sold; ticket_price real 6-20
"""

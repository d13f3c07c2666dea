-- The table that the queries of postgresql.jsonl are asked of; "postgresql": what PostgreSQL 18.6 returned.
CREATE TABLE staff (id INTEGER PRIMARY KEY, name VARCHAR(20), dept TEXT, pay NUMERIC(8,2), hired DATE, seen TIMESTAMP,
  active BOOLEAN, score INTEGER, note TEXT, rate REAL);
INSERT INTO staff VALUES
  (1, 'Ada', 'Sales', 10.50, '2020-01-31', '2020-02-01 10:30:00', TRUE, 5, 'a-b-c', 1.5),
  (2, 'bob', 'Sales', 2.67, '2021-05-06', '2021-05-06 23:59:59', FALSE, 2, NULL, 2.5),
  (3, 'Cid', 'ops', 2.68, '2021-12-31', NULL, TRUE, -5, '100% sure', -2.5),
  (4, 'dee', NULL, NULL, NULL, '2022-02-28 00:00:00', NULL, NULL, 'x_y', NULL),
  (5, 'Eve', 'Ops', 100.00, '2024-02-29', '2024-03-01 12:00:00', TRUE, 2, 'Über', 0.1);

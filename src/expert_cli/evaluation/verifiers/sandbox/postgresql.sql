-- What PostgreSQL means by functions and operators that DuckDB lacks or reads otherwise; run before a query is seen.
-- The functions postgresql_* are those of postgresql_functions.py. A macro's name hides the built-in one, which is left as system.main.NAME.

-- Patterns: a backslash escapes in LIKE; SIMILAR TO has % and _; ~, here written ~@, finds a part.
CREATE MACRO "~~"(a, b) AS like_escape(a, b, chr(92));
CREATE MACRO "!~~"(a, b) AS not_like_escape(a, b, chr(92));
CREATE MACRO "~~*"(a, b) AS ilike_escape(a, b, chr(92));
CREATE MACRO "!~~*"(a, b) AS not_ilike_escape(a, b, chr(92));
CREATE MACRO "~@"(a, b) AS regexp_matches(a, b);
CREATE MACRO "!~@"(a, b) AS NOT regexp_matches(a, b);
CREATE MACRO "~*"(a, b) AS regexp_matches(a, b, 'i');
CREATE MACRO "!~*"(a, b) AS NOT regexp_matches(a, b, 'i');
CREATE MACRO regexp_full_match(a, b) AS system.main.regexp_full_match(a, postgresql_similar(b));
CREATE MACRO regexp_match(a, b) AS postgresql_regexp(a, b, '')[1], (a, b, c) AS postgresql_regexp(a, b, c)[1];
CREATE MACRO postgresql_matches(a, b) AS unnest(postgresql_regexp(a, b, '')), (a, b, c) AS unnest(postgresql_regexp(a, b, c));
CREATE MACRO regexp_like(a, b) AS regexp_matches(a, b), (a, b, c) AS len(postgresql_regexp(a, b, c)) > 0;
CREATE MACRO regexp_count(a, b) AS len(postgresql_regexp(a, b, 'g'));
CREATE MACRO regexp_substr(a, b) AS CASE WHEN regexp_matches(a, b) THEN regexp_extract(a, b) END;
CREATE MACRO regexp_split_to_table(a, b) AS unnest(string_split_regex(a, b));
CREATE MACRO string_to_table(a, b) AS unnest(string_split(a, b));

-- Text. A second argument of substring may be a pattern; positions below 1 count towards the length.
CREATE MACRO substring(a, b) AS
    CASE WHEN typeof(b) = 'VARCHAR' THEN postgresql_part(a, b::VARCHAR)
    ELSE system.main.substring(a, greatest(TRY_CAST(b AS BIGINT), 1)) END,
  (a, b, c) AS system.main.substring(a, greatest(b, 1), greatest(c + least(b, 1) - 1, 0));
CREATE MACRO substr(a, b) AS system.main.substring(a, greatest(b, 1)),
  (a, b, c) AS system.main.substring(a, greatest(b, 1), greatest(c + least(b, 1) - 1, 0));
CREATE MACRO initcap(a) AS postgresql_initcap(a);
CREATE MACRO octet_length(a) AS strlen(a::VARCHAR);
CREATE MACRO btrim(a) AS trim(a), (a, b) AS trim(a, b);
CREATE MACRO lpad(a, b) AS system.main.lpad(a, b, ' '), (a, b, c) AS system.main.lpad(a, b, c);
CREATE MACRO rpad(a, b) AS system.main.rpad(a, b, ' '), (a, b, c) AS system.main.rpad(a, b, c);
CREATE MACRO to_hex(a) AS lower(system.main.to_hex(a));
CREATE MACRO format(a, b) AS printf(a, b::VARCHAR), (a, b, c) AS printf(a, b::VARCHAR, c::VARCHAR),
  (a, b, c, d) AS printf(a, b::VARCHAR, c::VARCHAR, d::VARCHAR);
CREATE MACRO quote_literal(a) AS '''' || replace(a::VARCHAR, '''', '''''') || '''';

-- Numbers. Columns of NUMERIC are DOUBLE here; to places they are rounded by their decimal digits, as a numeric is.
CREATE MACRO round(a) AS system.main.round(a), (a, b) AS postgresql_round(a::VARCHAR, b::VARCHAR);
CREATE MACRO "|/"(a) AS sqrt(a);
CREATE MACRO div(a, b) AS trunc(a / b::DOUBLE);
CREATE MACRO width_bucket(a, b, c, d) AS
    CASE WHEN a < b THEN 0 WHEN a >= c THEN d + 1 ELSE floor((a - b)::DOUBLE / (c - b) * d)::INTEGER + 1 END;
CREATE MACRO to_number(a, b) AS regexp_replace(a, '[^0-9.-]', '', 'g')::DOUBLE;

-- Dates. EXTRACT gives a numeric, with fractions of a second for two of its fields.
CREATE MACRO date_part(a, b) AS struct_extract(
    {
        'second': (system.main.date_part('microseconds', b)::DOUBLE / 1e6)::DECIMAL(18, 6),
        'epoch': system.main.date_part('epoch', b)::DECIMAL(24, 6),
        'other': system.main.date_part(a, b)::DECIMAL(18, 0)
    },
    CASE WHEN lower(a) IN ('second', 'epoch') THEN lower(a) ELSE 'other' END
);
CREATE MACRO to_char(a, b) AS postgresql_to_char(a::VARCHAR, typeof(a), b);
CREATE MACRO to_date(a, b) AS postgresql_time(a, b)::DATE;
CREATE MACRO to_timestamp(a) AS system.main.to_timestamp(a), (a, b) AS postgresql_time(a, b)::TIMESTAMPTZ;
CREATE MACRO date_bin(a, b, c) AS time_bucket(a::INTERVAL, b, c);
CREATE MACRO make_interval(years := 0, months := 0, weeks := 0, days := 0, hours := 0, mins := 0, secs := 0) AS
    to_years(years) + to_months(months) + to_days(7 * weeks + days) + to_hours(hours) + to_minutes(mins) + to_seconds(secs);

-- Lists and JSON.
CREATE TYPE jsonb AS JSON;
CREATE MACRO generate_series(a, b) AS unnest(system.main.generate_series(a, b)),
  (a, b, c) AS unnest(system.main.generate_series(a, b, c));
CREATE MACRO array_upper(a, b) AS nullif(len(a), 0);
CREATE MACRO array_lower(a, b) AS CASE WHEN len(a) > 0 THEN 1 END;
CREATE MACRO array_remove(a, b) AS list_filter(a, lambda x: x IS DISTINCT FROM b);
CREATE MACRO array_to_string(a, b) AS system.main.array_to_string(a, b),
  (a, b, c) AS system.main.array_to_string(list_transform(a, lambda x: coalesce(x::VARCHAR, c)), b);
CREATE MACRO json_typeof(a) AS CASE json_type(a)
    WHEN 'VARCHAR' THEN 'string' WHEN 'OBJECT' THEN 'object' WHEN 'ARRAY' THEN 'array' WHEN 'BOOLEAN' THEN 'boolean'
    WHEN 'NULL' THEN 'null' ELSE 'number' END;
CREATE MACRO jsonb_typeof(a) AS json_typeof(a);
CREATE MACRO json_extract_path_text(a, b) AS a ->> b, (a, b, c) AS (a -> b) ->> c;
CREATE MACRO jsonb_extract_path_text(a, b) AS a ->> b, (a, b, c) AS (a -> b) ->> c;
CREATE MACRO json_array_elements(a) AS unnest(json_extract(a, '$[*]'));
CREATE MACRO jsonb_array_elements(a) AS unnest(json_extract(a, '$[*]'));
CREATE MACRO json_array_elements_text(a) AS unnest(json_extract_string(a, '$[*]'));
CREATE MACRO jsonb_array_elements_text(a) AS unnest(json_extract_string(a, '$[*]'));
CREATE MACRO json_array_elements(a) AS TABLE SELECT unnest(json_extract(a, '$[*]')) AS value;
CREATE MACRO jsonb_array_elements(a) AS TABLE SELECT unnest(json_extract(a, '$[*]')) AS value;
CREATE MACRO json_array_elements_text(a) AS TABLE SELECT unnest(json_extract_string(a, '$[*]')) AS value;
CREATE MACRO jsonb_array_elements_text(a) AS TABLE SELECT unnest(json_extract_string(a, '$[*]')) AS value;
CREATE MACRO json_each_text(a) AS TABLE SELECT key, value ->> '$' AS value FROM json_each(a);
CREATE MACRO jsonb_each_text(a) AS TABLE SELECT key, value ->> '$' AS value FROM json_each(a);
CREATE MACRO json_object_keys(a) AS unnest(json_keys(a));
CREATE MACRO jsonb_object_keys(a) AS unnest(json_keys(a));

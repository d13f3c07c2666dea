"""The graphs that the Cypher rows ask about, in the notation of domains.py."""

from __future__ import annotations

TEXT = """
# movies
Person/people: name person; born int 1930-2004 as birth year by born; country country
Movie/movies: title title; released int 1970-2023 as release year by released; runtime int 70-200; rating? real 2-10
Genre/genres: name pick Drama|Comedy|Thriller|Horror|Western|Musical|Fantasy|Crime|War|Noir
Person ACTED_IN Movie: who acted in | featuring: role of lead|support|cameo
Person DIRECTED Movie: who directed | directed by
Movie IN_GENRE Genre: in | covering
# social_network
User/users: name person; age int 14-80; city city; joined date 2012-2023 as joining date by registered
Post/posts: title title; likes int 0-900 as number of likes; created date 2021-2023 as creation date by created
Topic/topics: name pick Travel|Cooking|Politics|Gaming|Fitness|Music|Fashion|Science|Finance|Parenting
User FOLLOWS User: who follow | followed by: since int 2012-2023 as starting year
User LIKED Post: who liked | liked by
Post ABOUT Topic: about | covered in
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
"""

"""Cypher as rules of words.

A rule is `name: what it may be`, with `|` for either, `[ ]` for once or not, `{ }` for any number of times. WORDS in upper
case are keywords, 'quoted' marks stand for themselves, `<name>` is a word that the names so far decide on, `@name` something
to note or to ask at this place; what they do stands in `Names`. No rule begins with itself. An expression is a row of
operands: which of its operators binds closer changes no name.
"""

RULES = """
query: [EXPLAIN | PROFILE] union [';']
union: @mark single {UNION [ALL | DISTINCT] @again single} @unmark
single: {reading} (return | updating [single] | FINISH)
inner: @mark within {UNION [ALL | DISTINCT] @again within} @unmark
within: reading {reading} [return] | return
reading: [OPTIONAL] MATCH patterns [WHERE expr]
  | UNWIND expr @element AS <alias>
  | WITH @project projection [WHERE expr] @projected
  | LOAD CSV [WITH HEADERS] FROM expr AS @open <alias> [FIELDTERMINATOR expr]
  | FILTER [WHERE] expr
  | LET <fresh> '=' expr @let {',' <fresh> '=' expr @let}
  | [OPTIONAL] CALL [imported] '{' @mark union '}' @join [transactions]
  | procedure
return: RETURN @project_last projection @projected
projection: [DISTINCT | ALL] (@some_variable '*' @everything | item) {',' item} @sorted
  [ORDER BY sorter {',' sorter}] [(SKIP | OFFSET) expr] [LIMIT expr]
item: expr (AS <column> | @unnamed)
sorter: expr [ASC | ASCENDING | DESC | DESCENDING]
updating: CREATE patterns
  | MERGE pattern {@some_entity ON (MATCH | CREATE) SET set {',' set}}
  | @some_entity SET set {',' set}
  | [DETACH | NODETACH] DELETE expr {',' expr}
  | @some_entity REMOVE removed {',' removed}
  | [OPTIONAL] CALL [imported] '{' @mark unit '}' @join [transactions]
  | FOREACH '(' @open_scope <fresh> IN expr @element @let '|' updating {updating} ')' @close_scope
  | procedure
unit: {reading} updating [unit]
set: <entity> (member '=' expr | '=' expr | '+=' expr | tested)
removed: <entity> (member | tested)
transactions: IN [CONCURRENT] TRANSACTIONS
procedure: [OPTIONAL] CALL <namespace> '.' <any> {'.' <any>} ['(' [expr {',' expr}] ')']
  [YIELD ('*' | yielded {',' yielded}) [WHERE expr]]
imported: '(' ['*' | @some_variable <variable> {',' <variable>}] ')'
yielded: <fresh> @unknown (AS @drop <alias> | @let)

patterns: pattern {',' pattern}
pattern: [<path> '='] ([selector] chain | shortest)
selector: ALL [SHORTEST] [PATHS] | ANY [SHORTEST] [PATHS] | SHORTEST [<integer>] [PATH | PATHS | GROUP | GROUPS]
shortest: (SHORTESTPATH | ALLSHORTESTPATHS) '(' chain ')'
chain: @chain (node | group [node]) {link node | group [node]} @unchain
trail: @chain node link node {link node} @unchain
group: '(' [<path> '='] chain [WHERE expr] ')' @loose [quantity]
quantity: '+' | '*' | '{' (<integer> [',' [<integer>]] | ',' <integer>) '}'
node: '(' [<node>] [@labelling (':' | IS) labels] [map_of | <parameter>] [@bound WHERE expr] ')' @bound @reached
link: '<' @leftward '-' ['[' relation ']'] '-' [@either '>'] @linked [quantity @repeated]
  | '-' @undirected ['[' relation ']'] '-' [@rightward '>'] @linked [quantity @repeated]
relation: [<relationship>] [@typing (':' | IS) types] ['*' @repeated [span]] [map_of | <parameter>] [@related WHERE expr]
span: <integer> ['..' [<integer>]] | '..' [<integer>]
map_of: '{' [<key> ':' expr {',' <key> ':' expr}] '}'
labels: labels_and {'|' @other [':'] labels_and}
labels_and: labels_not {('&' | ':') @both labels_not}
labels_not: {'!' @negated} (<label> | '%' @negated | '(' labels ')')
types: types_and {'|' @other [':'] types_and}
types_and: types_not {'&' @other types_not}
types_not: {'!' @negated} (<type> | '%' @negated | '(' types ')')

expr: term {('+' | '||') term @unknown | binary term @computed}
term: (NOT | ('+' | '-') @signed) term @computed | primary {suffix}
binary: '-' @signed | '*' | '/' | '%' | '^' | '=' | '<>' | '<' | '>' | '<=' | '>=' | '=~' | AND | OR | XOR | IN | CONTAINS
  | STARTS WITH | ENDS WITH
suffix: member
  | @has_items '[' @keep (expr ['..' @slice [expr]] | '..' @slice [expr]) ']' @item
  | IS [NOT] (NULL | ('::' | TYPED) typed | [NFC | NFD | NFKC | NFKD] NORMALIZED) @computed
  | tested
  | @is_entity '{' @keep [shown {',' shown}] '}' @drop @unknown
member: @has_members '.' <member>
tested: @is_entity (':' | IS) tests @computed
tests: test {('|' | '&' | ':') test}
test: {'!'} (<tested> | '%' | '(' tests ')')
shown: '.' (<kept_member> | '*') | <map_key> ':' expr | <variable>
typed: type_word {type_word} ['<' typed '>'] [NOT NULL]
type_word: ANY | BOOL | BOOLEAN | DATE | DATETIME | DURATION | FLOAT | INT | INTEGER | LIST | LOCAL | MAP | NODE | NOTHING
  | PATH | POINT | PROPERTY | RELATIONSHIP | STRING | TIME | TIMEZONE | VALUE | WITH | WITHOUT | ZONED
primary: (<number> | <string> | TRUE | FALSE | NULL | INF | INFINITY | NAN) @literal
  | '.' <integer> @literal
  | <parameter> @open
  | <variable>
  | COUNT '(' '*' ')' @literal
  | <function> '(' (@takes_something [DISTINCT | ALL] expr {',' expr} | @takes_nothing) ')' @called
  | <namespace> '.' <any> {'.' <any>} '(' [[DISTINCT] expr {',' expr}] ')' @unknown
  | <temporal> '.' <temporal_function> '(' [expr {',' expr}] ')' @computed
  | TRIM '(' (LEADING | TRAILING | BOTH) [expr] FROM expr ')' @literal
  | (ALL | ANY | NONE | SINGLE) '(' @open_scope <fresh> IN expr @element @let [WHERE expr] ')' @close_scope @literal
  | REDUCE '(' @open_scope <fresh> '=' expr @let ',' <fresh> IN expr @element @let '|' expr ')' @close_scope @unknown
  | shortest @path_value
  | CASE [expr] WHEN when THEN expr {WHEN when THEN expr} [ELSE expr] END @unknown
  | (EXISTS | COUNT) '{' @open_scope (patterns [WHERE expr] | inner) '}' @close_scope @literal
  | COLLECT '{' @mark union '}' @forget @unknown
  | @unsigned '[' [expr {',' expr}] ']' @unknown
  | @unsigned '[' @open_scope <fresh> IN expr @element @let [WHERE expr] ('|' expr @listed | @unknown) ']' @close_scope
  | @unsigned '[' @open_scope [<path> '='] trail [WHERE expr] '|' expr @listed ']' @close_scope
  | '{' [<map_key> ':' expr {',' <map_key> ':' expr}] '}' @unknown
  | '(' expr ')'
  | @unsigned @tested_pattern node link node {link node} @unchain @literal
when: IS [NOT] NULL | ('=' | '<>' | '<' | '>' | '<=' | '>=') expr | expr {',' expr}
"""

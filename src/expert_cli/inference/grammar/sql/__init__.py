"""SQL, held to the tables that its prompt describes: no name that they, or the query itself, lack."""

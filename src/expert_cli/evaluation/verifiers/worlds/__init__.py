"""Other contents of a case's database or graph, which tell a right query from one that is right by luck."""

"""The rows of expert-neo4j."""

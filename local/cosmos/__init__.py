"""A Cosmos DB for NoSQL data plane over SQLite, as strict as the service, for development and tests on one machine."""

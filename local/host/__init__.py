"""Plays the Azure Functions host: takes messages from the broker, runs timers and HTTP, hands the work to workers."""

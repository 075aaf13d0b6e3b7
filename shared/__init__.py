"""The application: what a fork reads, changes and ships."""

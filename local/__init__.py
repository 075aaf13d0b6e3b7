"""The embedded stack: broker, database and Functions host in one Python process, for development and tests.

It knows nothing of the application beside it, so another project can use it and a fork can delete it.
"""

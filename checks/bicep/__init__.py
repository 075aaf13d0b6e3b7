"""Reads Bicep without a compiler: parses it, resolves names, and lists the resources that given parameters lead to."""

"""Pydantic models of what crosses the border: messages, documents, HTTP answers. Schemas are generated from them."""

"""The demo: sends orders and ledgers to the function app on the embedded stack and proves what came out."""

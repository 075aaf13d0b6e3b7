"""The function app on the embedded stack, through the real SDKs: what must come out, check by check."""

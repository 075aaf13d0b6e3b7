"""The only code that talks to Azure SDKs, HTTP and exporters: each module implements one port."""

"""What another program may ask of mingce: tools with typed arguments, resources and prompts.

`mingce mcp` serves them over the Model Context Protocol (server.py); `mingce ask --model` gives the same tools to a
chat model and judges every number of its reply before it is shown (phrasing.py, vetting.py).
"""

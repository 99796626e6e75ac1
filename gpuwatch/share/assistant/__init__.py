"""``gpuwatch mcp``: what gpuwatch knows, as tools of the Model Context Protocol (modelcontextprotocol.io).

A tool: `share/assistant/mcp_tools.py`; its arguments, their limits and defaults: `share/assistant/tool_arguments.py`.
"""

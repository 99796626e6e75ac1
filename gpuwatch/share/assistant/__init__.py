"""``gpuwatch mcp``: what gpuwatch knows, as tools of the Model Context Protocol (modelcontextprotocol.io)."""

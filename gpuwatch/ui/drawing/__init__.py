"""Drawing lines: cells, styles, frames, bars, layout. Pure: imports neither GPU data nor Textual."""

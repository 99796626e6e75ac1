"""Drawing lines: cells, inks, frames, bars, layout. Pure: imports neither GPU data nor Textual."""

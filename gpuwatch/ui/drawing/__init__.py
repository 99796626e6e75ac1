"""Drawing lines: cells, styles, frames, bars, layout. Pure: imports neither GPU data nor Textual.

Colors: of a state or a load `ui/drawing/text_styles.py`; of a quantity, in reports too, `core/formatting/palettes.py`.
"""

"""Drawing lines: cells, styles, frames, bars, layout. Imports no Textual.

Colors: of a state or a load `ui/drawing/text_styles.py`; of a quantity, in reports too, `core/formatting/palettes.py`.
"""

"""The lines of each pane out of a view: cards, headline, process table. Pure; :mod:`widgets` puts them on screen."""

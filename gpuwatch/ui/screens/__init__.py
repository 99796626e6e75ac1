"""Full screens: one file each.

What `y` copies is `command` of the screen.
"""

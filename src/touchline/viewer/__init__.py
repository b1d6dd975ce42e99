"""A page in the browser on which a scene plays: watch, stop, go back, take over.

`simulation` steps the world in a thread of its own, `history` keeps where it was, `page` shows it.
Pages reach the simulation only through its orders, so that they cannot disturb it.
"""

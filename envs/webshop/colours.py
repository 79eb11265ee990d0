"""Words that stand for a whole option value when purchases are compared with wishes."""

from __future__ import annotations

from functools import lru_cache

# The vocabulary of upstream's reward, in its order: the first that occurs anywhere in a value replaces the value.
_WORDS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream crystal
dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather indigo
ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha multicolor
mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal rust sand
sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise violet walnut
wheat white wine yellow
"""
COLOURS = tuple(_WORDS.split())


@lru_cache(maxsize=65536)
def plain_colour(value: str) -> str:
    """The value reduced to a colour word it contains, or as it is. Parts of words count, as they do upstream.

    >>> plain_colour("midnight black"), plain_colour("standard"), plain_colour("12 inch")
    ('black', 'tan', '12 inch')
    """
    return next((colour for colour in COLOURS if colour in value), value)

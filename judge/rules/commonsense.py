"""What the rule judge takes for common sense in a household: where things usually are, and what appliances do."""

from __future__ import annotations

TREATMENTS = {"hot": "heat", "cool": "cool", "cold": "cool", "clean": "clean"}
APPLIANCES = {"heat": "microwave", "cool": "fridge", "clean": "sinkbasin"}
LAMP = "desklamp"

# How likely each kind of place is for a kind of thing; what is not listed is unlikely. Only the order matters.
_FOOD = {"fridge": 0.4, "countertop": 0.3, "microwave": 0.1, "garbagecan": 0.1, "sidetable": 0.1}
_DISHES = {"cabinet": 0.4, "countertop": 0.25, "sinkbasin": 0.2, "shelf": 0.15}
_SMALL = {"drawer": 0.35, "shelf": 0.25, "desk": 0.2, "sidetable": 0.2}

_KINDS = {
    "apple potato egg bread lettuce tomato": _FOOD,
    "mug plate pan knife cup bowl pot fork spoon spatula ladle butterknife kettle": _DISHES,
    "soap cloth book key card watch keychain creditcard cellphone pencil pen cd newspaper remotecontrol": _SMALL,
}
_USUAL = {kind: places for kinds, places in _KINDS.items() for kind in kinds.split()}


def likelihood(thing_kind: str, place: str) -> float:
    """How likely a thing of this kind is at this place; 0 for "unlikely"."""
    return _USUAL.get(thing_kind, {}).get(place.partition(" ")[0], 0.0)

"""The picture in docs/design.md is the one that the imports have."""

from pathlib import Path
from xml.etree import ElementTree

from tests.test_layering import LABORATORY, LEAVES, LIBRARY, imports

DOCS = Path(__file__).parents[2] / "docs"
AGAIN = "draw it again: python -m tools.draw_house"


def drawn():
    """The rooms and the arrows of the picture."""
    elements = list(ElementTree.parse(DOCS / "images" / "house.svg").iter())
    rooms = {element.get("data-part") for element in elements if element.get("data-part")}
    arrows = {(element.get("data-from"), element.get("data-to")) for element in elements if element.get("data-from")}
    return rooms, arrows


def test_every_part_has_a_room_in_the_picture():
    rooms, _ = drawn()
    assert rooms == (LIBRARY.keys() | LABORATORY.keys() | {"cli"}) - {"lab"}, AGAIN


def test_the_pictures_arrows_are_the_imports():
    parts = dict.fromkeys(LIBRARY.keys() - LEAVES, "filtercov") | dict.fromkeys(LABORATORY.keys() - {"lab"}, "lab")
    wanted = set()
    for _, part, imported, _ in imports():
        if part in parts and imported in parts and part != imported:
            same_floor = parts[part] == parts[imported]
            wanted.add((part, imported) if same_floor else (parts[part], parts[imported]))
    assert drawn()[1] == wanted, AGAIN

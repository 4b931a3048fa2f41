"""The picture in docs/design.md is the one that the imports have."""

from tests.test_layering import PARTS
from tools.draw_house import PICTURE, ROOMS, house


def test_every_part_has_a_room_in_the_picture_and_arrows_are_the_imports():
    assert ROOMS.keys() == PARTS.keys()
    assert PICTURE.read_text(encoding="utf-8") == house(), "draw it again: python -m tools.draw_house"

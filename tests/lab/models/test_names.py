import pytest
from hypothesis import given
from hypothesis import strategies as st

from filtercov.errors import ModelError
from filtercov.lab import models
from filtercov.lab.models import ConvMixerSpec, ConvNeXtSpec
from filtercov.lab.models.convnext import LAYER_SCALE, SIZES
from filtercov.lab.models.lookup import is_ours
from tests.peers import import_peer

WHOLE = st.integers(1, 300)


@given(
    st.builds(ConvMixerSpec, WHOLE, WHOLE, WHOLE, WHOLE)
    | st.builds(
        ConvNeXtSpec,
        *map(st.sampled_from, ([*SIZES], [1, 2, 4], [1, 7, 9, 300], [1, 2, 8], [1, 2], [LAYER_SCALE, 1.0])),
    )
)
def test_a_name_survives_parsing(spec: ConvMixerSpec | ConvNeXtSpec) -> None:
    assert models.parse(spec.name) == spec
    assert is_ours(spec.name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "convmixer_256_8",
        "convmixer_0_8_k9_p2",
        "convmixer_256_8_k9_p2\n",
        "convmixer_٢٥٦_8_k9_p2",
        "convnext_atto_p3",
        "convnext_giant_p1",
        "convnext_atto_div7_p1",  # a width that cannot be divided
    ],
)
def test_a_bad_name_is_refused(name: str) -> None:
    for refuses in (models.parse, is_ours):
        with pytest.raises(ModelError):
            refuses(name)


@pytest.mark.parametrize("name", ["convnext_att", "timm:convnext_att"])
def test_a_near_miss_of_a_model_of_timms_names_it(name: str) -> None:
    import_peer("timm")
    with pytest.raises(ModelError, match=r"nearest: .*convnext_atto"):
        models.create(name)

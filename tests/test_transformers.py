"""Networks of Hugging Face's transformers, saved by their own `save_pretrained`, which renames some of their layers."""

from pathlib import Path

import pytest

import filtercov as fc

transformers = pytest.importorskip("transformers")

SMALL = {"hidden_sizes": [8, 16, 24, 32], "depths": [1, 1, 2, 1]}
NETWORKS = {
    "ConvNextV2": lambda: transformers.ConvNextV2Model(transformers.ConvNextV2Config(**SMALL)),
    "DINOv3ConvNext": lambda: transformers.DINOv3ConvNextModel(transformers.DINOv3ConvNextConfig(**SMALL)),
    "Segformer": lambda: transformers.SegformerModel(transformers.SegformerConfig(hidden_sizes=[8, 16, 24, 32])),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_a_saved_network_has_the_statistics_of_its_model(name: str, tmp_path: Path) -> None:
    model = NETWORKS[name]()
    model.save_pretrained(tmp_path)
    expected = fc.FilterStatistics.from_model(model)
    found = fc.FilterStatistics.from_checkpoint(tmp_path, like=model)
    assert [layer.name for layer in found] == [layer.name for layer in expected]
    assert all((a.covariance == b.covariance).all() for a, b in zip(found, expected, strict=True))

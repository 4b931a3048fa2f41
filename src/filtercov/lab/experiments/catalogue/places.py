"""Where in the paper each experiment stands: tables and figures as their captions number them."""

from collections.abc import Mapping

from filtercov.lab.experiments.paper_claims import CLAIMS

PLACES: Mapping[str, str] = {
    "cifar-convmixer-256-8-p2": "Table 10, Fig. 3",
    "cifar-convmixer-256-24-p2": "Table 11, Fig. 3",
    "cifar-convmixer-256-8-p1": "Table 12, Fig. 3",
    "cifar-convnext-atto-p1": "Table 13, Fig. 7",
    "cifar-convnext-atto-p2": "Table 14",
    "cifar-5x5": "Fig. 11",
    "width-transfer": "Fig. 4",
    "depth-transfer": "Fig. 4",
    "patch-transfer": "Fig. 9",
    "kernel-transfer": "Fig. 9",
    "imagenet-to-cifar": "Fig. 10",
    "convergence": "Fig. 8",
    "kronecker": "Fig. 14",
    "frozen-speed": "Fig. 2",
    "grid-cifar-p2": "Fig. 17",
    "grid-cifar-p1": "Fig. 18",
    "grid-convnext": "Fig. 19",
    "grid-convnext-sawtooth": "Fig. 20",
    "grid-imagenet-frozen": "Fig. 22",
    "grid-imagenet-thawed": "Fig. 23",
    "variance-schedule": "Figs. 5, 6, 21",
    "learned-covariances": "Fig. 1",
    "learned-covariances-imagenet": "Fig. 24",
    "example-filters": "Fig. 13",
    "imagenet": "Table 1",
    "imagenet-10-convmixer-512-12-p14": "Table 2",
    "imagenet-10-convmixer-512-12-p7": "Table 3",
    "imagenet-10-convmixer-512-24-p14": "Table 4",
    "imagenet-10-convnext-atto": "Table 5",
    "imagenet-10-convnext-tiny": "Table 6",
    "imagenet-50-convnext-atto": "Table 7",
    "imagenet-50-convmixer-512-12-p14": "Table 8",
    "imagenet-50-convmixer-512-24-p14": "Table 9",
    **{claim.experiment: claim.place for claim in CLAIMS},
    "ranking": "",  # not in the paper
}

"""The paper's figures that are not about accuracy: schedules, covariances, filters, and the speed of frozen steps."""

from filtercov.lab.experiments.builder import Builder
from filtercov.lab.experiments.graph import Drawing, Experiment

SPEED_KERNELS = (3, 5, 7, 9, 11, 13, 15)


def variance_schedule(build: Builder) -> Experiment:
    """Return how the closed form changes with depth, with the schedule for networks in stages."""
    return build.experiment(
        "variance-schedule",
        title="The variance schedule",
        shows="σ and the covariance by depth, and the sawtooth variant for networks with downsampling",
        drawings=(
            Drawing("construction", "The construction of the covariance"),
            Drawing("schedule", "The covariance by depth, σ0 = .5, v = .5, a = 3"),
            Drawing("sawtooth", "The quadratic and the sawtooth schedule of a ConvNeXt"),
        ),
    )


def learned_covariances(build: Builder) -> Experiment:
    """Return the covariances by depth that trained models have, on CIFAR-10."""
    return build.experiment(
        "learned-covariances",
        title="Covariances of learned filters",
        shows="that filters of trained models have structured covariances, more diffuse with depth",
        drawings=tuple(
            Drawing("covariances", f"Trained on CIFAR-10, {p}x{p} patches", build.reference(f"convmixer_256_8_k9_p{p}"))
            for p in (1, 2)
        ),
    )


def learned_covariances_imagenet(build: Builder) -> Experiment:
    """Return the covariances by depth of a model trained on ImageNet."""
    run = build.reference("convmixer_512_12_k9_p14")
    return build.experiment(
        "learned-covariances-imagenet",
        title="Covariances of filters learned on ImageNet",
        shows="that they resemble CIFAR-10's, with more structure in the later layers",
        drawings=(Drawing("covariances", "Trained on ImageNet, 14x14 patches", run),),
    )


def example_filters(build: Builder) -> Experiment:
    """Return learned filters beside filters sampled from their covariance and from the closed form."""
    run = build.reference("convmixer_256_8_k9_p2")
    return build.experiment(
        "example-filters",
        title="Learned, sampled and constructed filters",
        shows="how alike filters look that were learned, drawn from the learned covariance, and constructed",
        drawings=(Drawing("filters", "ConvMixer-256/8, 2x2 patches, 9x9 filters", run),),
    )


def frozen_speed(build: Builder) -> Experiment:
    """Return training speed by kernel size, frozen and thawed."""
    kernels = SPEED_KERNELS if build.scale.name != "smoke" else SPEED_KERNELS[::3]
    return build.experiment(
        "frozen-speed",
        title="The speed of frozen filters",
        shows="time of a training step by kernel size: in the paper frozen steps are 20 % faster at 9x9, 40 % at 15x15",
        speed=tuple(build.scale.model(f"convmixer_512_12_k{kernel}_p2") for kernel in kernels),
    )

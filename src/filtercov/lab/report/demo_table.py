"""The demonstration's numbers: what each of the four runs reached, and what that says of the closed form."""

from collections.abc import Sequence

from filtercov.lab.experiments.demo import DemoRun
from filtercov.lab.report.results_statistics import judge, paired_difference
from filtercov.lab.report.results_words import show_difference

CLAIM = "closed-form is above uniform"


def demo_rows(runs: Sequence[DemoRun]) -> list[list[str]]:
    """Return the table, heading first: accuracies in percent, their differences, and the verdict on the claim."""
    accuracy = {(run.spec.init, run.frozen): {run.spec.train.seed: run.result.test_accuracy} for run in runs}
    states = {"frozen": True, "thawed": False}
    differences = [
        paired_difference(accuracy["closed-form", frozen], accuracy["uniform", frozen]) for frozen in states.values()
    ]
    return [
        ["filters", *states],
        *(
            [init, *(f"{value:.2f}" for frozen in states.values() for value in accuracy[init, frozen].values())]
            for init in ("uniform", "closed-form")
        ),
        ["difference", *map(show_difference, differences)],
        [CLAIM, *(judge(difference, +1.0) for difference in differences)],
    ]

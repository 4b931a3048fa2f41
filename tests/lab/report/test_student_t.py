"""Student's t quantiles, against scipy's."""

import math

import numpy as np
import pytest
from scipy import stats

from filtercov.lab.report.student_t import t_quantile


@pytest.mark.parametrize("level", [0.5, 0.8, 0.9, 0.95, 0.99, 0.999])
def test_quantiles_are_scipys_for_every_number_of_degrees_of_freedom(level):
    df = np.arange(1, 1001)
    found = [t_quantile(level, int(each)) for each in df]
    np.testing.assert_allclose(found, stats.t.ppf((1 + level) / 2, df), rtol=1e-11)


def test_the_first_two_have_closed_forms():
    assert t_quantile(0.95, 1) == pytest.approx(math.tan(0.95 * math.pi / 2), rel=1e-13)
    assert t_quantile(0.95, 2) == pytest.approx(0.95 * math.sqrt(2 / (1 - 0.95**2)), rel=1e-13)


@pytest.mark.parametrize(("level", "df"), [(0.0, 2), (1.0, 2), (1.5, 2), (0.95, 0), (math.nan, 2)])
def test_what_has_no_quantile_is_refused(level, df):
    with pytest.raises(ValueError, match="needs 0 < level < 1"):
        t_quantile(level, df)

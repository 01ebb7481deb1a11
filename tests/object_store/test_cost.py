"""The calculation of a day's requests on a store; `python -m tests.on_s3 cost` counts those of a step."""

from streaming.settings import Settings
from tests.on_s3.cost import BATCH, CONTROL_NEWS, CONTROL_QUIET, KINDS, SERVE_NEWS, SERVE_QUIET, UPKEEP, of_a_day


def test_a_day_has_each_step_as_often_as_the_intervals_ask() -> None:
    steps = (BATCH, CONTROL_NEWS, CONTROL_QUIET, SERVE_NEWS, SERVE_QUIET, UPKEEP)
    means = {step: dict.fromkeys(KINDS, 0.0) | {"GET": 10.0**number} for number, step in enumerate(steps)}
    by_default = of_a_day(means, Settings())
    assert by_default["PUT"] == 0
    assert by_default["GET"] == 8_640 * 1 + 8_640 * 10 + 8_640 * 100 + 8_640 * 1_000 + 34_560 * 10_000 + 96 * 100_000


def test_who_looks_less_often_than_batches_come_sees_news_each_time() -> None:
    means = {step: dict.fromkeys(KINDS, 1.0) for step in (SERVE_NEWS, SERVE_QUIET)}
    seldom = Settings.model_validate({"serve": {"refresh_interval_ms": 15_000}})
    assert of_a_day(means, seldom)["LIST"] == 5_760

"""The page of a simulation: picture and figures in one HTML file that needs nothing else."""

import base64
from collections.abc import Sequence

import jinja2

from assignor_core.group.simulation import Run
from streaming.simulate.scenario_file import Variant
from streaming.simulate.summary import totals_rows


def page_of(runs: Sequence[tuple[Variant, Run]], png: bytes) -> str:
    """HTML with the picture inside; the same runs give the same text."""
    environment = jinja2.Environment(loader=jinja2.PackageLoader("streaming.simulate", "."), autoescape=True)
    columns = [totals_rows(run.totals) for _, run in runs]
    return environment.get_template("page.html.jinja").render(
        title=runs[0][0].title,
        about=runs[0][0].about,
        image=base64.b64encode(png).decode(),
        names=[variant.name or "total" for variant, _ in runs],
        rows=[(label, [column[label] for column in columns]) for label in columns[0]],
        runs=[(variant.name, run.rebalances) for variant, run in runs],
    )

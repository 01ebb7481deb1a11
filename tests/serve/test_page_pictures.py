"""`make page-pictures` draws every page, and the pictures of the docs are those that it draws."""

import shutil
from pathlib import Path

import pytest

from tests.docs.pictures import PAGES, SIGNATURE
from tests.serve.page_pictures import ADDRESSES, draw


def test_each_page_that_is_drawn_has_sources() -> None:
    assert {f"page-{name}.png" for name in ADDRESSES} == set(PAGES)


@pytest.mark.long
def test_every_page_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    if not shutil.which("chromium") and not shutil.which("chromium-browser"):
        pytest.skip("Chromium is not installed")
    draw(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == set(PAGES)
    assert all(file.read_bytes().startswith(SIGNATURE) for file in tmp_path.iterdir())

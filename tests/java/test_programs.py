"""Java programs of tests are compiled once, and one with a mistake is not begun."""

import subprocess
import uuid
from pathlib import Path

import pytest

from streaming.runtime import class_archive
from tests.java_programs import compiled, program

pytestmark = pytest.mark.java


def test_a_program_is_compiled_once_and_again_when_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(class_archive, "FOLDER", tmp_path / "classes")
    source = tmp_path / "Hello.java"
    answers = []
    for word in ("one", "one", "two"):
        source.write_text(
            f'class Hello {{ public static void main(String[] names) {{ IO("{word} " + names[0]); }}'
            " static void IO(String line) { System.out.println(line); } }"
        )
        done = subprocess.run(program(source, "more"), capture_output=True, text=True, check=True)
        answers.append(done.stdout)
    assert answers == ["one more\n", "one more\n", "two more\n"]
    assert len(list((tmp_path / "classes").iterdir())) == 2
    source.write_text(f"class Hello {{ {uuid.uuid4()} }}")
    with pytest.raises(subprocess.CalledProcessError):
        compiled(source, "")
    assert len(list((tmp_path / "classes").iterdir())) == 2

"""The examples of docs/golden_machine.md run."""

import re
from pathlib import Path

import numpy as np

PAGE = Path(__file__).parents[3] / "docs" / "golden_machine.md"


def test_examples_run(capsys):
    names = {"np": np}
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.S)
    assert len(examples) == 2
    for text in examples:
        exec(compile(text, str(PAGE), "exec"), names)
    result = names["result"]
    assert result.events[0].value == 6

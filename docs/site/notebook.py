"""The notebook of the site: executed without Jupyter, and shown as a page.

python docs/site/notebook.py docs/first_run.ipynb     # executes it in an empty folder, and writes its outputs into it
"""

from __future__ import annotations

import ast
import base64
import contextlib
import io
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any


def executed(cells: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The outputs of the code cells, run one after another: what they print, and the value or figure that they end with."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_outputs("".join(cell["source"]), names) for cell in cells if cell["cell_type"] == "code"]


def _outputs(code: str, names: dict[str, Any]) -> list[dict[str, Any]]:
    body = ast.parse(code).body
    last = body.pop() if body and isinstance(body[-1], ast.Expr) else None
    told, value = io.StringIO(), None
    with contextlib.redirect_stdout(told):
        exec(compile(ast.Module(body, []), "<cell>", "exec"), names)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "<cell>", "eval"), names)
    outputs: list[dict[str, Any]] = []
    if told.getvalue():
        outputs.append({"output_type": "stream", "name": "stdout", "text": told.getvalue().splitlines(keepends=True)})
    if hasattr(value, "savefig"):
        file = io.BytesIO()
        value.savefig(file, format="png", dpi=70, metadata={"Software": None})
        data = {"image/png": base64.b64encode(file.getvalue()).decode()}
        outputs.append({"output_type": "display_data", "metadata": {}, "data": data})
    elif value is not None:
        text = repr(value).splitlines(keepends=True)
        outputs.append({"output_type": "execute_result", "metadata": {}, "data": {"text/plain": text}, "execution_count": None})
    return outputs


def as_markdown(notebook: Path) -> str:
    """The cells as a page, outputs below their code."""
    parts: list[str] = []
    for cell in json.loads(notebook.read_text("utf-8"))["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                parts.append(f"![Figure](data:image/png;base64,{data['image/png']})")
            else:
                parts.append("```text\n" + "".join(output.get("text") or data["text/plain"]).rstrip() + "\n```")
    return "\n\n".join(parts) + "\n"


def main(path: Path) -> None:
    """Write the outputs of a run in an empty folder into the notebook."""
    notebook = json.loads(path.read_text("utf-8"))
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        made = executed(notebook["cells"])
        os.chdir(here)
    for number, (cell, outputs) in enumerate(
        zip((c for c in notebook["cells"] if c["cell_type"] == "code"), made, strict=True)
    ):
        cell |= {"outputs": outputs, "execution_count": number + 1}
    path.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

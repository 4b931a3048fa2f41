"""An extension of griffe's: examples in docstrings are fenced, or Markdown would take their >>> for quotations."""

from typing import Any

from griffe import Extension, Object


def fenced(text: str) -> str:
    """Return a docstring with a code fence around each of its examples, output included."""
    lines: list[str] = []
    inside = False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            lines += ["", "```pycon"]
            inside = True
        elif inside and not line.strip():
            lines.append("```")
            inside = False
        lines.append(line)
    return "\n".join([*lines, "```"] if inside else lines)


class FencedExamples(Extension):
    """Fence the examples of every object that is shown."""

    def on_object(self, *, obj: Object, **_: Any) -> None:
        """Rewrite an object's docstring as it was read."""
        if obj.docstring:
            obj.docstring.value = fenced(obj.docstring.value)

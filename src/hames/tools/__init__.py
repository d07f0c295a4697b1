"""The tools a model may call, and the table of them.

Rule 1: a tool is one module and one row in `TOOLS`; it reaches files and commands only through its context.
Rule 2: what the model can mend is `ToolFailed`; what it is told holds no path outside the workspace (AH-TOOL-10).
Rule 3: every answer is bounded by `context.limits`, and says what was left out.
"""

from __future__ import annotations

from hames.ports import Tool
from hames.tools.bash import BashTool
from hames.tools.edit import EditTool
from hames.tools.glob import GlobTool
from hames.tools.grep import GrepTool
from hames.tools.read import ReadTool
from hames.tools.write import WriteTool

TOOLS: tuple[Tool, ...] = (ReadTool(), WriteTool(), EditTool(), BashTool(), GrepTool(), GlobTool())

__all__ = ["TOOLS"]

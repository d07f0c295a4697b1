"""Where tools work: paths that stay beneath the workspace, and commands that leave nothing running.

Rule 1: what leaves this package is `ToolFailed` or `HarnessFault`; an `OSError` ends here.
Rule 2: nothing here depends on the working directory of the Hames process.
Rule 3: Linux first. Elsewhere the package imports, and the first use is refused by name.
"""

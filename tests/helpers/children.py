"""`elmokit …` or Python in a process of its own, forked after the imports that take seconds.

For tests that kill or stop a command, or start several at once. The processes come from a server
that has only imported, so that they are as new as those that a shell starts.
"""

from __future__ import annotations

import atexit
import multiprocessing
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

HANGS = 600  # Seconds after which a process counts as hanging, on a busy machine too.
COMMAND = "import sys; from elmokit.cli.main import main; sys.exit(main(sys.argv[1:]))"
PRELOADED = [
    "elmokit.cli.embed",
    "elmokit.cli.pretrain",
    "elmokit.cli.tasks",
    "elmokit.embed_file",
    "elmokit.pretrain.train",
    "elmokit.tasks.compare",
    "matplotlib.backends.backend_agg",
    "matplotlib.figure",
    "torch._dynamo",  # Which the first step of an optimizer imports.
]
has_fork = "forkserver" in multiprocessing.get_all_start_methods()  # Windows has not.
CONTEXT: Any = multiprocessing.get_context("forkserver" if has_fork else "spawn")
CONTEXT.set_forkserver_preload(PRELOADED)


class Child:
    """A running process, with the folder and environment of this one.

    It runs the command line, or other `code` with `arguments` in `sys.argv`; `before` is code that
    it runs first, `env` are more variables.
    """

    def __init__(
        self,
        arguments: list[str],
        *,
        code: str = COMMAND,
        before: str = "",
        env: dict[str, str] | None = None,
    ):
        descriptor, self._errors = tempfile.mkstemp(prefix="stderr-")
        os.close(descriptor)
        rest = (str(Path.cwd()), {**os.environ, **(env or {})}, self._errors)
        self._process = CONTEXT.Process(target=_run, args=(f"{before}\n{code}", arguments, *rest))
        self._process.start()
        self.pid: int = self._process.pid

    def poll(self) -> int | None:
        """Return the exit code, minus the signal that ended it, or None while it runs."""
        code: int | None = self._process.exitcode
        return code

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def send_signal(self, signum: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, signum)

    def finish(self, seconds: float = HANGS) -> tuple[int, str]:
        """Wait for its end; return the exit code and stderr. One that takes longer is a failure."""
        self._process.join(seconds)
        code = self.poll()
        self.kill()
        errors = Path(self._errors)
        said = errors.read_text(encoding="utf-8")
        errors.unlink()
        assert code is not None, f"process {self.pid} still runs after {seconds} s: {said}"
        return code, said


def _run(code: str, arguments: list[str], folder: str, env: dict[str, str], errors: str) -> None:
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(env)
    os.dup2(os.open(errors, os.O_WRONLY | os.O_APPEND), sys.stderr.fileno())
    sys.argv = ["-c", *arguments]
    try:
        exec(code, {"__name__": "__main__"})
    finally:
        atexit._run_exitfuncs()  # As at the end of any Python; multiprocessing leaves them out.

"""`elmokit serve`: models over HTTP."""

from __future__ import annotations

import sys
import webbrowser
from dataclasses import asdict, fields
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from elmokit.cli.options import DeviceOptions, Flag
from elmokit.errors import require

LIMITS = Group("Limits", sort_key=5)


def serve(
    *models: str,
    task: list[str] | None = None,
    senses: str | None = None,
    index: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8090,
    api_key_file: str | None = None,
    workers: int = 1,
    log_texts: Flag = False,
    open: Flag = False,  # the name of the option, not of the function
    precision: Literal["float32", "float16", "int8"] = "float32",
    max_queue: Annotated[int, Parameter(group=LIMITS)] = 256,
    max_body: Annotated[int, Parameter(group=LIMITS)] = 2 << 20,
    max_tokens: Annotated[int, Parameter(group=LIMITS)] = 65_536,
    timeout: Annotated[float, Parameter(group=LIMITS)] = 60,
    options: DeviceOptions = DeviceOptions(),
) -> int:
    """Answer requests over HTTP: OpenAI's and Text Embeddings Inference's routes, and our own.

    Args:
        models: Models of any format, each a path or NAME=PATH; the first is the default (default:
            elmokit's own).
        task: Folders of task models, each a path or NAME=PATH.
        senses: Folder written by elmokit senses build.
        index: Folder written by elmokit neighbours index.
        host: Address to listen on; 0.0.0.0 is reachable from other machines.
        port: Port to listen on; 0 takes a free one.
        api_key_file: File with a key per line, one of which each request must have.
        workers: Number of processes, each with its own models.
        log_texts: Write the bodies of requests to the log.
        open: Open the explorer in the browser when the models are ready.
        precision: Precision of the weights.
        max_queue: Maximum number of requests at once; more are told to come again.
        max_body: Maximum number of bytes of a request.
        max_tokens: Maximum number of tokens of a request.
        timeout: Maximum number of seconds of a request.
    """
    given = {**locals(), **asdict(options), "tasks": tuple(task or ())}
    for module in ("fastapi", "uvicorn", "httptools", "orjson", "prometheus_client"):
        require(module, extra="serve", purpose="elmokit serve")
    from elmokit.serve.limits import Limits
    from elmokit.serve.run import Settings, is_loopback
    from elmokit.serve.run import serve as run

    def announce(address: str) -> None:
        if is_loopback(host):
            reach = "only this machine can reach it (--host 0.0.0.0 opens it to others)"
        elif api_key_file is None:
            reach = "everybody who reaches this machine can use it; --api-key-file asks for a key"
        else:
            reach = "everybody with a key who reaches this machine can use it"
        if not is_loopback(host):
            reach += "; requests are not encrypted, so put a proxy with TLS in front"
        print(f"elmokit: ready at {address}: {reach}", file=sys.stderr, flush=True)
        if open:
            webbrowser.open(address)

    given["limits"] = Limits(max_queue, max_body, max_tokens, timeout=timeout)
    settings = Settings(**{field.name: given[field.name] for field in fields(Settings)})
    return run(settings, announce)

"""The routes: each checks its request by a schema, asks the service, and writes the answer.

`/v1/embeddings` and `/v1/models` are OpenAI's, `/embed`, `/embed_all`, `/tokenize`, `/similarity`,
`/info`, `/health` and `/metrics` those of Text Embeddings Inference; the others are elmokit's own.
"""

from __future__ import annotations

import asyncio
import base64
import io
from collections.abc import AsyncIterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
import orjson
from fastapi import FastAPI, Header, Request, Response
from fastapi import Path as PathField
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from elmokit.analysis.geometry import unit
from elmokit.embed import Sentence
from elmokit.errors import ElmokitError, InvalidInput, require
from elmokit.serve import schemas
from elmokit.serve.gate import App, Gate, Message, Receive, Scope, Send, error_body
from elmokit.serve.limits import NotLoaded, Overloaded, TooLarge
from elmokit.serve.metrics import CONTENT_TYPE, Metrics
from elmokit.serve.service import VERSION, WHOLE, ServedModel, Service

Responses = dict[int | str, dict[str, Any]]
STATIC = Path(__file__).parent / "static"
WRITERS = 2  # threads for what takes long, such as writing large answers
NPY, ARROW = "application/x-npy", "application/vnd.apache.arrow.stream"
ERRORS = {
    400: "The request is not valid.",
    401: "The key is missing or wrong.",
    404: "There is no such model or task.",
    408: "The request did not arrive in time.",
    413: "The body, the batch or the answer is too large.",
    422: "The request is not valid.",
    429: "The service is busy; Retry-After says how many seconds to wait.",
    500: "The service has a bug.",
}
OPENAI: Responses = {
    status: {"model": schemas.OpenAIError, "description": text}
    for status, text in ERRORS.items()
    if status != 422
}
TEI: Responses = {
    status: {"model": schemas.TEIError, "description": text} for status, text in ERRORS.items()
}
READ_ERRORS = (401, 408, 413, 429, 500)  # of routes without a body
ABOUT = """Contextual word vectors of ELMo over HTTP.

Errors of routes under /v1 have OpenAI's shape, the others that of Text Embeddings Inference.
"""


def create_app(service: Service, *, keys: Sequence[str] = (), log_texts: bool = False) -> FastAPI:
    """Return the application.

    Args:
        service: What is loaded, warmed up.
        keys: Keys of which every request must have one (default: none is needed).
        log_texts: Write the bodies of requests to the log.
    """
    metrics = Metrics()
    for model in service.models.values():
        model.batcher.on_batch = metrics.batches(model.name)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        # Each thread has a heap of its own, which keeps some memory of the answers that it wrote.
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(WRITERS))
        yield
        await asyncio.to_thread(service.close)

    app = Gated(
        title="elmokit",
        description=ABOUT,
        version=VERSION,
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
    )
    add_openai_routes(app, service)
    add_tei_routes(app, service)
    add_own_routes(app, service)
    add_monitoring_routes(app, service, metrics)
    add_pages(app)
    add_error_handlers(app)
    app.gate = Gate(
        Shortcut(app), answers=service.answers, metrics=metrics, keys=keys, log_texts=log_texts
    )
    app.openapi = lambda: describe(app, service, has_keys=bool(keys))  # type: ignore[method-assign]
    return app


# ---------------------------------------------------------------------- OpenAI
def add_openai_routes(app: FastAPI, service: Service) -> None:
    """Add /v1/embeddings and /v1/models."""

    @app.post(
        "/v1/embeddings", tags=["OpenAI"], responses=OPENAI, response_model=schemas.EmbeddingsAnswer
    )
    async def embeddings(body: schemas.EmbeddingsRequest) -> Response:
        """Return a vector for each text, as OpenAI does."""
        model = service.model(body.model)
        check_dimensions(body.dimensions, model)
        vectors, tokens = await service.vectors(model, body.input, body.layers, body.pooling)
        values: list[Any] = list(vectors)
        if body.encoding_format == "base64":
            values = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in vectors]
        data = [
            {"object": "embedding", "index": i, "embedding": value}
            for i, value in enumerate(values)
        ]
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return as_json({"object": "list", "data": data, "model": model.name, "usage": usage})

    @app.get(
        "/v1/models", tags=["OpenAI"], responses=only(OPENAI), response_model=schemas.ModelsAnswer
    )
    async def models() -> Response:
        """Return the models, tasks, senses and index that are loaded."""
        return as_json(service.models_answer().model_dump())


# ---------------------------------------------------------------------- Text Embeddings Inference
def add_tei_routes(app: FastAPI, service: Service) -> None:
    """Add /embed, /embed_all, /tokenize, /similarity and /info."""
    shared: dict[str, Any] = {"tags": ["Text Embeddings Inference"], "responses": TEI}

    @app.post("/embed", response_model=list[schemas.Floats], **shared)
    async def embed(body: schemas.EmbedRequest) -> Response:
        """Return a vector for each text."""
        model, cut = service.model(body.model), kept_part(body, service.limits.max_tokens)
        check_dimensions(body.dimensions, model)
        vectors, _ = await service.vectors(model, body.inputs, body.layers, body.pooling, cut)
        return as_json(unit(vectors) if body.normalize else vectors)

    @app.post("/embed_all", response_model=list[schemas.Matrix], **shared)
    async def embed_all(body: schemas.EmbedAllRequest) -> Response:
        """Return a vector for each token of each text."""
        model, cut = service.model(body.model), kept_part(body, service.limits.max_tokens)
        sentences = await service.tokenize(model, body.inputs, cut)
        service.answers.reserve(sum(map(len, sentences)) * model.elmo.dim)
        arrays = await model.batcher.embed(
            sentences, lambda sentence, _: np.ascontiguousarray(sentence.vectors), body.layers
        )
        return await asyncio.to_thread(as_json, arrays)

    @app.post("/tokenize", response_model=list[list[schemas.Token]], **shared)
    async def tokenize(body: schemas.TokenizeRequest) -> Response:
        """Return the tokens of each text with their characters."""
        return as_json(await service.token_lists(body))

    @app.post("/similarity", response_model=schemas.Floats, **shared)
    async def similarity(body: schemas.SimilarityRequest) -> Response:
        """Return the cosine of each sentence with one sentence."""
        options = body.parameters or schemas.SimilarityParameters()
        texts = [body.inputs.source_sentence, *body.inputs.sentences]
        cut = kept_part(options, service.limits.max_tokens)
        vectors, _ = await service.vectors(
            service.model(body.model), texts, options.layers, options.pooling, cut
        )
        directions = unit(vectors)
        return as_json(directions[1:] @ directions[0])

    @app.get("/info", response_model=schemas.InfoAnswer, tags=shared["tags"], responses=only(TEI))
    async def info() -> Response:
        """Return the first model and the limits of the service."""
        model, limits = service.model(), service.limits
        answer = schemas.InfoAnswer(
            model_id=model.name,
            model_sha=None,
            model_dtype=model.elmo.precision,
            model_type=schemas.ModelType(embedding=schemas.EmbeddingPooling(pooling="mean")),
            max_concurrent_requests=limits.max_queue,
            max_input_length=limits.max_tokens,
            max_batch_tokens=model.batcher.batch_tokens,
            max_batch_requests=None,
            max_client_batch_size=schemas.MAX_TEXTS,
            auto_truncate=False,
            tokenization_workers=1,
            version=VERSION,
        )
        return as_json(answer.model_dump())


def kept_part(options: schemas.TEIOptions, length: int) -> slice:
    """Return which tokens of a text to keep: all, unless texts that are too long are to be cut."""
    if not options.truncate:
        return WHOLE
    is_left = options.truncation_direction.lower() == "left"
    return slice(-length, None) if is_left else slice(length)


def check_dimensions(requested: int | None, model: ServedModel) -> None:
    """Raise if another number of columns is requested than the model has."""
    if requested is not None and requested != model.elmo.dim:
        raise InvalidInput(f"dimensions must be {model.elmo.dim}, the size of {model.name}")


# ---------------------------------------------------------------------- elmokit's own
def add_own_routes(app: FastAPI, service: Service) -> None:
    """Add the routes for what only ELMo has: layers, a language model, senses, tasks."""
    shared: dict[str, Any] = {"tags": ["elmokit"], "responses": OPENAI}
    binary = {"schema": {"type": "string", "format": "binary"}}
    formats: Responses = {
        200: {"content": {NPY: binary, ARROW: binary}, "description": "The layers."}
    }

    @app.post(
        "/v1/layers",
        tags=["elmokit"],
        responses={**formats, **OPENAI},
        response_model=schemas.LayersAnswer,
    )
    async def layers(
        body: schemas.LayersRequest, accept: Annotated[str, Header()] = "application/json"
    ) -> Response:
        """Return layers of all tokens: as JSON, or as NumPy's .npy or Arrow by the header Accept.

        An .npy file has the tokens of all texts one after another, (layers, tokens, dimensions);
        the header Elmokit-Lengths has the number of tokens of each text. An Arrow stream has a row
        for each token: sentence, position, token, and a vector for each layer.
        """
        if NPY in accept or ARROW in accept:
            check_binary(body)
            model, sentences = await service.layers(body)
            write = write_npy if NPY in accept else write_arrow
            return await asyncio.to_thread(write, model, sentences)
        answer = await service.layers_answer(body)
        return await asyncio.to_thread(as_json, answer)

    @app.post("/v1/surprisal", response_model=schemas.SurprisalAnswer, **shared)
    async def surprisal(body: schemas.SurprisalRequest) -> Response:
        """Return how unexpected each token is, forwards and backwards, in bits."""
        return as_json(await service.surprisal(body))

    @app.post("/v1/fill", response_model=schemas.FillAnswer, **shared)
    async def fill(body: schemas.FillRequest) -> Response:
        """Return the words that best fit a gap."""
        return as_json(await service.fill(body))

    @app.post("/v1/uses", response_model=schemas.UsesAnswer, **shared)
    async def uses(body: schemas.UsesRequest) -> Response:
        """Return a word's uses in many sentences: maps, neighbours, mix, clusters."""
        answer = await service.uses(body)
        return await asyncio.to_thread(as_json, answer)

    @app.post("/v1/predict/{task}", response_model=schemas.PredictAnswer, **shared)
    async def predict(
        body: schemas.PredictRequest,
        task: Annotated[str, PathField(description="Name of a task in /v1/models.")],
    ) -> Response:
        """Return the predictions of a task model."""
        return as_json(await service.predict(task, body))

    @app.post("/v1/senses", response_model=schemas.SensesAnswer, **shared)
    async def senses(body: schemas.SensesRequest) -> Response:
        """Return the senses of the words that the inventory knows."""
        return as_json(await service.tag(body))

    @app.post("/v1/neighbours", response_model=schemas.NeighboursAnswer, **shared)
    async def neighbours(body: schemas.NeighboursRequest) -> Response:
        """Return the uses in the index that are nearest to a marked word."""
        return as_json(await service.neighbours(body))


def check_binary(body: schemas.LayersRequest) -> None:
    """Raise if a request wants what only JSON can have."""
    if body.similarity or body.representations or not body.vectors:
        raise InvalidInput("similarity, representations and vectors=false are only for JSON")


def write_npy(model: ServedModel, sentences: list[Sentence]) -> Response:
    """Return the layers of all texts, one after another, as an .npy file."""
    file = io.BytesIO()
    lengths = ",".join(str(len(sentence.tokens)) for sentence in sentences)
    np.save(file, np.concatenate([sentence.layers for sentence in sentences], axis=1))
    headers = {"Elmokit-Lengths": lengths, "Elmokit-Model": header_text(model.name)}
    return Response(file.getvalue(), media_type=NPY, headers=headers)


def header_text(name: str) -> str:
    """Return a name as a header takes it."""
    return name.encode("ascii", "replace").decode()


def write_arrow(model: ServedModel, sentences: list[Sentence]) -> Response:
    """Return a table with a row for each token as an Arrow stream."""
    arrow = require("pyarrow", extra="parquet", purpose="an answer in Arrow")
    layers = np.concatenate([sentence.layers for sentence in sentences], axis=1)
    pairs = [(i, j) for i, own in enumerate(sentences) for j in range(len(own.tokens))]
    columns: dict[str, Any] = {
        "sentence": arrow.array([i for i, _ in pairs], arrow.int32()),
        "position": arrow.array([j for _, j in pairs], arrow.int32()),
        "token": arrow.array([token for own in sentences for token in own.tokens], arrow.string()),
    }
    for i, layer in enumerate(layers):
        name = "vector" if len(layers) == 1 else f"layer_{i}"
        flat = arrow.array(np.ascontiguousarray(layer).reshape(-1))
        columns[name] = arrow.FixedSizeListArray.from_arrays(flat, layer.shape[1])
    table = arrow.table(columns).replace_schema_metadata({"model": model.name})
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Response(sink.getvalue().to_pybytes(), media_type=ARROW)


# ---------------------------------------------------------------------- monitoring and pages
def add_monitoring_routes(app: FastAPI, service: Service, metrics: Metrics) -> None:
    """Add /health and /metrics."""

    @app.get(
        "/health",
        tags=["Monitoring"],
        responses={
            200: {"description": "All models are warm.", "content": {}},
            503: {"model": schemas.TEIError, "description": "The service is not ready."},
        },
        response_class=Response,
    )
    async def health() -> Response:
        """Return 200 if the service is ready."""
        if not service.is_warm:
            message = "the service is not ready"
            return as_json(error_body("/health", 503, message), status=503)
        return Response()

    @app.get(
        "/metrics",
        tags=["Monitoring"],
        responses={
            200: {"description": "Measurements.", "content": {CONTENT_TYPE: {}}},
            **only(TEI),
        },
        response_class=Response,
    )
    async def measurements() -> Response:
        """Return measurements as Prometheus reads them."""
        for model in service.models.values():
            metrics.waiting(model.name, model.batcher.waiting_tokens)
        return Response(metrics.render(), headers={"content-type": CONTENT_TYPE})


def add_pages(app: FastAPI) -> None:
    """Add the explorer at / and the list of routes at /docs."""
    app.mount("/static", StaticFiles(directory=STATIC), name="static")

    @app.get("/", include_in_schema=False)
    async def explorer() -> FileResponse:
        return FileResponse(STATIC / "index.html")

    @app.get("/docs", include_in_schema=False)
    async def docs() -> FileResponse:
        return FileResponse(STATIC / "docs.html")


class Gated(FastAPI):
    """FastAPI behind the gate, which does without the layers that FastAPI has around middleware."""

    gate: App

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await self.gate(scope, receive, send)


class Shortcut:
    """The way from the gate to the routes which take nothing but a body, around FastAPI.

    FastAPI needs several times as long as pydantic and the route itself, time in which a model
    waits. It still gets all that is unusual: other methods and types, and bodies to complain about.
    """

    def __init__(self, app: FastAPI) -> None:
        self.app: App = partial(FastAPI.__call__, app)
        self.handlers: Any = app.exception_handlers
        self.routes: dict[str, tuple[APIRoute, type[schemas.Request]]] = {}
        for route in app.routes:
            if isinstance(route, APIRoute) and route.methods == {"POST"}:
                hints = get_type_hints(route.endpoint)
                if hints.keys() == {"body", "return"}:
                    self.routes[route.path] = route, hints["body"]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        target = self.routes.get(scope["path"]) if scope.get("method") == "POST" else None
        if target is None or (b"content-type", b"application/json") not in scope["headers"]:
            await self.app(scope, receive, send)
            return
        route, schema = target
        message = await receive()  # The gate gives the whole body at once.
        try:
            body = schema.model_validate_json(message["body"])
        except ValidationError:
            pending = [message]

            async def again() -> Message:
                return pending.pop() if pending else await receive()

            await self.app(scope, again, send)
            return
        scope["route"] = route
        try:
            response = await route.endpoint(body)
        except ElmokitError as error:
            response = await self.handlers[ElmokitError](Request(scope), error)
        except Exception as error:
            response = await self.handlers[Exception](Request(scope), error)
            await response(scope, receive, send)
            raise  # The server logs it.
        await response(scope, receive, send)


# ---------------------------------------------------------------------- errors
def add_error_handlers(app: FastAPI) -> None:
    """Answer every error with one sentence in the shape that the client reads."""

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> Response:
        status, message, field = explain(error)
        if status == 422 and request.url.path.startswith("/v1/"):
            status = 400
        return as_error(request, status, message, param=field)

    @app.exception_handler(ElmokitError)
    async def refused(request: Request, error: ElmokitError) -> Response:
        if isinstance(error, Overloaded):
            return as_error(request, 429, str(error), {"retry-after": str(error.seconds)})
        if isinstance(error, NotLoaded):
            return as_error(request, 404, str(error), code="model_not_found")
        status = 400 if request.url.path.startswith("/v1/") else 422
        return as_error(request, 413 if isinstance(error, TooLarge) else status, str(error))

    @app.exception_handler(HTTPException)
    async def refused_by_server(request: Request, error: HTTPException) -> Response:
        message = str(error.detail)
        if error.status_code == 404:
            message = f"there is no route {request.url.path}: /docs lists them"
        elif error.status_code == 405:
            message = f"{request.url.path} does not take {request.method}: /docs lists the routes"
        return as_error(request, error.status_code, message, error.headers)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        return as_error(request, 500, "the service failed; its log has the reason")


def as_error(
    request: Request, status: int, message: str, headers: Any = None, **details: Any
) -> Response:
    """Write an error."""
    body = error_body(request.url.path, status, message, **details)
    return as_json(body, status=status, headers=headers)


def explain(error: RequestValidationError) -> tuple[int, str, str | None]:
    """Return status, sentence and field for the complaints of pydantic about a body."""
    problems = error.errors()
    first = problems[0]
    if first["type"] == "json_invalid":
        return 400, f"the body is not JSON: {first.get('ctx', {}).get('error', 'unreadable')}", None
    names = [part for part in first["loc"][1:] if isinstance(part, str)]
    if not names:
        return 422, "the body should be an object, sent as Content-Type: application/json", None
    field = names[0]
    own = [p for p in problems if p["loc"][1:2] == first["loc"][1:2]]
    if field in ("input", "inputs") and any(map(has_token_ids, own)):
        return 422, f"{field} should be texts: the models here do not know these token ids", field
    # What has the wrong size has the right type; complaints of other types are beside the point.
    own = [p for p in own if p["type"].endswith(("too_short", "too_long"))] or own
    complaints = list(dict.fromkeys(p["msg"].replace("None", "null") for p in own))
    if all(text.startswith("Input should") for text in complaints):
        expected = " or ".join(text.removeprefix("Input should be ") for text in complaints)
        return 422, f"{field} should be {expected}", field
    sentence = " or ".join(text[:1].lower() + text[1:] for text in complaints)
    return 422, f"{field}: {sentence}", field


def has_token_ids(problem: Mapping[str, Any]) -> bool:
    """Tell whether a complaint is about numbers in a list where texts are expected."""
    value = problem["input"]
    values = value if isinstance(value, list) else [value]
    is_item = isinstance(problem["loc"][-1], int)
    return is_item and bool(values) and all(type(one) is int for one in values)


# ---------------------------------------------------------------------- JSON and OpenAPI
def as_json(content: Any, *, status: int = 200, headers: Any = None) -> Response:
    """Write an answer; arrays are written as they are, float32 with as many digits as it has."""
    body = orjson.dumps(content, option=orjson.OPT_SERIALIZE_NUMPY | orjson.OPT_NON_STR_KEYS)
    return Response(body, status, headers=headers, media_type="application/json")


def only(errors: Responses) -> Responses:
    """Return the errors of a route without a body."""
    return {status: errors[status] for status in READ_ERRORS}


def describe(app: FastAPI, service: Service, *, has_keys: bool) -> dict[str, Any]:
    """Return the OpenAPI document, with the answers that this service gives and no others."""
    if app.openapi_schema is None:
        document = get_openapi(
            title=app.title, version=app.version, description=app.description, routes=app.routes
        )
        for schema in document["components"]["schemas"].values():
            for name, field in schema.get("properties", {}).items():
                narrow(name, field, service)
        narrow_tasks(document["paths"]["/v1/predict/{task}"]["post"], service)
        for path, methods in document["paths"].items():
            for operation in methods.values():
                if path.startswith("/v1/"):  # pydantic's complaints are 400 there.
                    operation["responses"].pop("422", None)
                if has_keys and path != "/health":
                    operation["security"] = [{"key": []}]
        if has_keys:
            scheme = {"type": "http", "scheme": "bearer"}
            document["components"]["securitySchemes"] = {"key": scheme}
        app.openapi_schema = document
    return app.openapi_schema


def narrow_tasks(operation: dict[str, Any], service: Service) -> None:
    """Limit the name of a task to those that are loaded."""
    (parameter,) = operation["parameters"]
    if service.tasks:
        parameter["schema"]["enum"] = list(service.tasks)


def narrow(name: str, field: dict[str, Any], service: Service) -> None:
    """Limit a field of a request to the layers, sizes and methods that are loaded."""
    depths = [model.num_layers for model in service.models.values()]
    for branch in field.get("anyOf", ()):
        if name in ("layers", "weights") and branch.get("maxItems") == schemas.MAX_LAYERS:
            branch |= {"minItems": min(depths) + 1, "maxItems": max(depths) + 1}
        elif name == "layers" and branch.get("type") == "integer":
            branch |= {"minimum": -max(depths) - 1, "maximum": max(depths)}
        elif name == "dimensions" and branch.get("type") == "integer":
            branch["enum"] = sorted({model.elmo.dim for model in service.models.values()})
    if name == "method" and service.senses is not None:
        field["enum"] = service.senses[0].methods

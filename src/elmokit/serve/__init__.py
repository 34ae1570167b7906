"""A model behind HTTP: routes of OpenAI and Text Embeddings Inference, and elmokit's own.

    request ─► gate: key, limits ─► route: schema ─► batcher: one batch of all who wait ─► answer

`schemas` has the shapes of requests and answers, `service` what is loaded and what it answers, with
`uses` and `predicting`; `batching` the queue of a model, `gate` what every request passes, `app`
the routes, and `run` the server process. The package needs the extra serve and is never imported by
`import elmokit`.
"""

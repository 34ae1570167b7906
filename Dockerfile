# elmokit serve with the English model inside: docker build -t elmokit . && docker run -p 127.0.0.1:8090:8090 elmokit
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src src
# torch for the CPU only: the one of PyPI would bring 2 GB of CUDA.
RUN python -m venv /opt/elmokit \
    && /opt/elmokit/bin/pip install --no-cache-dir --index-url https://download.pytorch.org/whl/cpu torch \
    && /opt/elmokit/bin/pip install --no-cache-dir '.[serve,parquet,chinese]'

FROM python:3.12-slim
RUN useradd --system --uid 10001 --home-dir /nonexistent --shell /usr/sbin/nologin elmokit
COPY --from=build /opt/elmokit /opt/elmokit
ENV PATH=/opt/elmokit/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
USER 10001
EXPOSE 8090
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 \
    CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8090/health', timeout=4)"]
# 0.0.0.0 is the network of the container; what reaches it is decided by docker run -p.
ENTRYPOINT ["elmokit", "serve", "--host", "0.0.0.0", "--port", "8090"]

# docker build -t natsd .
# docker run -p 4222:4222 -p 8222:8222 natsd
# docker run -p 4222:4222 -p 8222:8222 -v nats:/data natsd -js
ARG PYTHON=3.13

FROM python:${PYTHON}-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends gcc libc6-dev make \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY Makefile pyproject.toml README.md LICENSE ./
COPY .ci .ci
COPY natsd natsd
RUN make wheel PYTHON=python && python -m venv /opt/natsd && /opt/natsd/bin/pip install --no-cache-dir dist/*.whl

FROM python:${PYTHON}-slim-bookworm
RUN useradd --uid 4222 --home-dir /data --create-home --shell /usr/sbin/nologin natsd
COPY --from=build /opt/natsd /opt/natsd
ENV PATH=/opt/natsd/bin:$PATH \
    PYTHONUNBUFFERED=1
USER natsd
WORKDIR /data
VOLUME /data
# The ports of clients, routes and monitoring.
EXPOSE 4222 6222 8222
HEALTHCHECK --interval=10s --timeout=3s --start-period=2s --retries=3 \
    CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8222/healthz', timeout=2)"]
# Give further flags after the image's name, for example -js, which keeps its data in the volume. The health
# check needs the monitoring port.
ENTRYPOINT ["natsd", "-m", "8222", "-sd", "/data"]

# docker build -t natsd .
# docker run -p 4222:4222 natsd
# docker run -p 4222:4222 -v nats:/data --read-only --tmpfs /tmp --cap-drop ALL --stop-timeout 150 natsd -js
#
# The image has Python, natsd and what both need: no shell, no package manager, no compiler.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim-bookworm AS build
RUN apt-get update \
    && apt-get install -y --no-install-recommends binutils gcc libc6-dev \
    && rm -rf /var/lib/apt/lists/*
WORKDIR /source
COPY pyproject.toml README.md LICENSE ./
COPY .ci .ci
COPY natsd natsd
RUN pip install --no-cache-dir --no-compile --target /site . \
    && python .ci/image.py /site /image \
    && mkdir /data

FROM gcr.io/distroless/cc-debian12
LABEL org.opencontainers.image.title="natsd" \
      org.opencontainers.image.description="A NATS server in Python" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image /
COPY --from=build --chown=4222:4222 /data /data
USER 4222:4222
WORKDIR /data
VOLUME /data
# The ports of clients, routes and monitoring.
EXPOSE 4222 6222 8222
# Clients move to other servers before natsd ends, which takes as long as lame_duck_duration.
STOPSIGNAL SIGUSR2
HEALTHCHECK --interval=10s --timeout=3s --start-period=5s --retries=3 \
    CMD ["/usr/local/bin/python3", "-I", "-S", "-c", "import socket; c = socket.create_connection(('127.0.0.1', 8222), 2); c.sendall(b'GET /healthz HTTP/1.0\\r\\n\\r\\n'); raise SystemExit(b' 200 ' not in c.recv(64))"]
# Give further flags after the image's name, for example -js, which keeps its data in the volume. The
# health check needs the monitoring port.
ENTRYPOINT ["/usr/local/bin/natsd", "-m", "8222", "-sd", "/data"]

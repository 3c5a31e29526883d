# syntax=docker/dockerfile:1

FROM rust:1.95-slim-bookworm AS build
RUN apt-get update && apt-get install -y --no-install-recommends libpq-dev && rm -rf /var/lib/apt/lists/*
WORKDIR /src
COPY . .
# The caches survive between builds; the binary is copied out because a cache is no part of the image.
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/src/target \
    cargo build --release --locked --bin payonce && cp target/release/payonce /usr/local/bin/payonce

FROM debian:bookworm-slim
RUN apt-get update && apt-get install -y --no-install-recommends libpq5 && rm -rf /var/lib/apt/lists/* \
    && useradd --system --no-create-home --shell /usr/sbin/nologin payonce
COPY --from=build /usr/local/bin/payonce /usr/local/bin/payonce
USER payonce
ENV LISTEN=0.0.0.0:8080
EXPOSE 8080
# Live, not ready: a container must not be restarted because its database is away. bash speaks TCP, so no curl is needed.
HEALTHCHECK --interval=10s --timeout=3s --start-period=10s --retries=3 \
    CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/8080 && printf 'GET /health/live HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n' >&3 && read -r _ status _ <&3 && [ \"$status\" = 200 ]"]
# exec form: payonce is process 1 and gets TERM itself, so `docker stop` lets it finish what is queued.
CMD ["payonce", "serve"]

# syntax=docker/dockerfile:1
# One image with pushworker, pushgateway, pushctl, pushsim and pushdemo:
#   docker build --build-arg VERSION=$(git describe --tags --always) -t pushfleet .
#   docker run pushfleet pushworker --help

FROM --platform=$BUILDPLATFORM golang:1.26-trixie AS build
WORKDIR /src
# The modules in a layer of their own: they change less often than the code.
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
ARG TARGETOS TARGETARCH
# The folder is for volumes: a new one takes over its owner.
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -o /out/ ./cmd/pushgateway ./cmd/pushctl ./cmd/pushsim ./cmd/pushdemo && \
    CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X main.version=$VERSION" -pgo=cmd/pushworker/worker.pgo -o /out/ ./cmd/pushworker && \
    mkdir /credentials

# Static binaries need certificates and time zones, and no shell.
FROM gcr.io/distroless/static-debian13:nonroot
ARG VERSION=dev
LABEL org.opencontainers.image.title="pushfleet" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION"
COPY --from=build /out/ /usr/local/bin/
COPY --from=build --chown=65532:65532 --chmod=0700 /credentials /credentials
USER 65532:65532
EXPOSE 9464
CMD ["pushworker", "--help"]

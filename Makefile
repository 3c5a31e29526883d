# One command each. `make` alone lists them. The work is in scripts/; missing packages are installed or named there.

.DEFAULT_GOAL := help
.PHONY: help setup demo run test torture torture-selftest failover conformance fuzz bench lint openapi openapi-check deny compose-check ci
# The targets share the cargo lock, and `ci` is a sequence.
.NOTPARALLEL:

# One build for `demo` and `run`. Without the example its dependencies would have other features, and cargo would compile
# most of them, and payonce, a second time.
build_release = cargo build --release --locked --bins --example demo

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r name text; do printf '  make %-14s %s\n' "$$name" "$$text"; done

setup: ## makes sure of what a build needs (C linker, libpq)
	@scripts/setup.sh

demo: setup ## the double-charge scenario, start to finish; fails if any expectation does
	$(build_release)
	scripts/with-services.sh cargo run --quiet --release --locked --example demo

run: setup ## one instance with Swagger UI, an API key and two funded accounts, until Ctrl-C
	$(build_release)
	scripts/with-services.sh scripts/run.sh

test: setup ## every test, against a real PostgreSQL and Redis
	scripts/with-services.sh scripts/test.sh

conformance: setup ## the score card of any service over HTTP: URL=… API_KEY=…; without URL, of two instances of our own
	cargo build --locked --bins --example conformance
	$(if $(URL),,scripts/with-services.sh) scripts/conformance.sh

fuzz: setup ## schemathesis against the service by its OpenAPI document; FUZZ_EXAMPLES=1000 for the long form
	cargo build --locked
	scripts/with-services.sh scripts/fuzz.sh

torture: setup ## random load while everything fails, then a check of all that was told; TORTURE_MINUTES, TORTURE_SEED
	scripts/setup.sh servers
	cargo build --release --locked --bins --example torture
	cargo run --quiet --release --locked --example torture

torture-selftest: setup ## mutations of the service, each of which the torture must find; MUTATIONS="your.patch"
	scripts/setup.sh servers
	cargo build --release --locked --bins --example torture
	scripts/torture-selftest.sh

failover: setup ## the primary dies under load, its standby takes over: nothing lost, nothing twice; and where something must be, it is found
	scripts/setup.sh servers
	cargo build --release --locked --bins --example failover
	cargo run --quiet --release --locked --example failover
	cargo run --quiet --release --locked --example failover -- --counter-proof --rounds 1

bench: setup ## payments/s over HTTP against pgbench with the same statements, in one run
	cargo build --release --locked
	scripts/with-services.sh scripts/bench.sh

lint: setup ## rustfmt and clippy, warnings are errors
	cargo fmt --check
	cargo clippy --locked --all-targets --all-features -- -D warnings

openapi: setup ## writes openapi/openapi.json from the code
	scripts/openapi.sh write

openapi-check: setup ## fails if openapi/openapi.json is not what the code says
	scripts/openapi.sh check

deny: ## licences, bans and sources of the dependencies (cargo-deny)
	scripts/deny.sh

compose-check: ## docker-compose.yml read by a parser
	scripts/compose-check.sh

# A short form of the torture; the long one takes as many minutes as one likes.
ci: export TORTURE_MINUTES ?= 1
ci: lint deny openapi-check compose-check test conformance demo torture ## all of the above that can fail; what .ci/run calls

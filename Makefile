# Everything runs from .venv; `setup` makes it and is cheap when nothing changed.
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup setup-demo setup-test arm64 wheels demo test lint fresh soak bench docs clean

PYTHON_FILES := python packaging studies $(wildcard tests bench)

help: ## this list
	@sed -n 's/^\([a-z0-9]*\):.*## \(.*\)/  make \1	\2/p' Makefile | expand -t 14

setup: ## install what is missing (apt packages, .venv), build the Rust parts
	@bash packaging/setup.sh use

setup-demo:
	@bash packaging/setup.sh demo

setup-test:
	@bash packaging/setup.sh test

arm64: setup ## build agent and recorder for arm64 too: environment qemu-arm64 (fetches a toolchain)
	.venv/bin/python packaging/arm64.py

wheels: setup-test ## wheels for x86-64 and arm64 into dist/ (fetches a toolchain)
	@mkdir -p dist
	.venv/bin/pip wheel --disable-pip-version-check --quiet --no-deps --wheel-dir dist .
	.venv/bin/python packaging/arm64.py wheel dist

demo: setup-demo ## compare HPC Challenge natively, in user-mode Linux and in QEMU, and say why it takes longer there
	.venv/bin/vtax explain --in native --in uml:mem=1G --in qemu:accel=tcg --until 2% --budget 130s -- hpcc --sizes 1000

lint: setup-test ## ruff, mypy --strict, layers of imports, rustfmt, clippy, cargo deny
	.venv/bin/ruff check $(PYTHON_FILES)
	.venv/bin/ruff format --check $(PYTHON_FILES)
	.venv/bin/mypy
	.venv/bin/lint-imports --no-cache
	@cargo fmt --version >/dev/null 2>&1 && cargo clippy --version >/dev/null 2>&1 \
		|| { echo 'rustfmt or clippy is missing: rustup component add rustfmt clippy, or apt-get install rustfmt-web rust-web-clippy beside cargo-web' >&2; exit 1; }
	cargo fmt --all --check
	cargo clippy --quiet --locked --workspace --all-targets -- -D warnings
	@if ! cargo deny --version >/dev/null 2>&1; then \
		echo 'lint: banned crates and advisories are not checked: cargo install --locked cargo-deny'; \
	elif cargo deny fetch db >/dev/null 2>&1; then \
		cargo deny --offline check; \
	else \
		echo 'lint: advisories are not checked: their database cannot be had'; \
		cargo deny --offline check licenses bans sources; \
	fi

test: setup-test ## every test; what is skipped says why
	@.venv/bin/python packaging/arm64.py tests || echo 'test: the tests of arm64 are skipped'
	@# Both run whatever the other finds. vtax is started hundreds of times: its modules are compiled once.
	@status=0; \
	cargo test --quiet --locked --workspace --no-fail-fast || status=1; \
	PYTHONDONTWRITEBYTECODE= .venv/bin/python -m pytest --numprocesses=3 --dist=loadfile --no-loadscope-reorder --durations=25 || status=1; \
	exit $$status

fresh: ## make, use and remove a minimal Debian 12 and 13: README's commands, the tests, each verb (root, mmdebstrap, hours)
	@python3 packaging/fresh.py $(if $(RELEASE),--release $(RELEASE))

soak: setup-test ## repeated trials in full, hours; says what each proved
	VTAX_SOAK=1 .venv/bin/python -m pytest -m "soak or long" -v -rP
	cargo test --quiet --locked --workspace -- --ignored
	@python3 packaging/fresh.py

bench: setup-test ## vtax's own cost beside plain commands and other recorders; its time to detect; the paging model; the lab's start and switch, and the cost of its controller; tuned kernels; Xen's events
	.venv/bin/python bench/compare.py
	.venv/bin/python bench/audit.py
	.venv/bin/python bench/short_commands.py
	.venv/bin/python bench/detect.py
	.venv/bin/python bench/record.py
	cargo bench --locked -p vtax-model --bench translate
	.venv/bin/python bench/paging_sweep.py
	.venv/bin/python bench/lab.py
	.venv/bin/python bench/paging_switch.py
	.venv/bin/python bench/paging_control.py
	.venv/bin/python bench/paging_loop.py
	.venv/bin/python bench/tune.py
	.venv/bin/python bench/lapack.py
	.venv/bin/python bench/xen.py
	.venv/bin/python bench/fleet.py
	.venv/bin/python bench/agents.py

docs: setup ## rewrite the tables in docs/ from the code
	.venv/bin/python packaging/docs_tables.py

clean: ## remove what setup and the tests made (runs/ stays)
	rm -rf target python/vtax/_bin python/vtax/_native.abi3.so .venv dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find python studies tests packaging -name __pycache__ -type d -prune -exec rm -rf {} +

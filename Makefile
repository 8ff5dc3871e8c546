.PHONY: demo demo-agent test test-slow test-gpu lint rooms schemas clean

PYTHON ?= python3
# Tests that need a GPU carry its mark, or take the arrays of tests/harness/runners/conftest.py.
GPU_TESTS ?= $(shell grep -rlE 'mark\.gpu|\barrays: Any' --include='test_*.py' \
	tests/harness tests/exploits tests/honest)
# More workers than cores: fast tests wait for other processes for half of their time.
WORKERS ?= $(shell echo $$(( $$(nproc) * 2 )))

demo:
	@.ci/setup demo
	@exec .venv/bin/kopt demo

# An agent's slots, with a script in place of a model: no key is needed.
demo-agent:
	@.ci/setup demo-agent
	@exec .venv/bin/kopt demo --agent

test:
	@.ci/setup test
	@.venv/bin/python -m pytest -m "not slow" $(or $(PYTEST_ARGS),-n $(WORKERS) --dist worksteal)

# What takes long: exploits, honest candidates, whole campaigns and benchmarks. About an hour on two cores.
test-slow:
	@.ci/setup test
	@.venv/bin/python -m pytest -m "slow and not alone" $(or $(PYTEST_ARGS),-n auto --dist worksteal)
	@.venv/bin/python -m pytest -m alone

# Only the harness, with the Python that has torch and triton; installs nothing.
test-gpu:
	@PYTHONPATH=. $(PYTHON) -m pytest -c tests/gpu.ini --rootdir=. -m gpu $(GPU_TESTS)

lint:
	@.ci/setup test
	.venv/bin/ruff check .
	.venv/bin/mypy
	@echo "mypy on harness/child, a package of its own"
	@cd harness && ../.venv/bin/mypy --config-file= --strict --allow-untyped-calls \
		--ignore-missing-imports --explicit-package-bases child
	.venv/bin/lint-imports --no-cache
	.venv/bin/python tests/house/test_import_hygiene.py

# docs/ARCHITECTURE.md and its pictures, from the code.
rooms:
	@.ci/setup test
	PYTHONPATH=. .venv/bin/python docs/draw_rooms.py

# docs/answers.json, from the types of what the verbs print with --json.
schemas:
	@.ci/setup test
	PYTHONPATH=. .venv/bin/python docs/write_schemas.py

clean:
	rm -rf build *.egg-info .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find kopt_tui engine harness tests bench -name __pycache__ -type d -prune -exec rm -rf {} +

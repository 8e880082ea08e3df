# make demo         the story in two minutes: train a small network, convert it to every target, verify each
# make test         every test, on samples of the largest tables of cases; what CI runs
# make quick        lint, and one or two cases of each test that is not slow: under three minutes, for people at work
# make test-full    every test on every case: all of PyTorch's operator samples, all node cases of ONNX
# make test-dev     the quick tests in Python's development mode, which shows files that are not closed and finds wrong uses of memory
# make test-python  the quick tests on another Python: OTHER_PYTHON=python3.12; PyTorch's is a download of several GB
# make test-floors  the quick tests of the frameworks in their lowest versions (floors.txt); PyTorch's is a download of several GB
# make test-r       the tests of the R package; installs R where apt can
# make docs         writes the generated pages and serves the site at http://127.0.0.1:8000; `make generate` only writes
# make dist         the wheel and the sdist, built twice and compared, and a list of what they depend on (CycloneDX), in dist/
# make audit        known vulnerabilities of what is installed; asks a database on the network
# make fuzz         damage files of a format at random and read them: READER=onnx (or all), SECONDS=60; GUIDED=1 chooses by coverage
# All need Python 3.11 and nothing else; each environment is built once.

PYTHON ?= python3.11
VENV := .venv
MXNET := .venv-mxnet
MXNET_2 := .venv-mxnet-2
OPENVINO := .venv-openvino
FLOORS := .venv-floors
OTHER_PYTHON ?= python3.12
OTHER := .venv-$(notdir $(OTHER_PYTHON))
DIST := .venv-dist
export ONNXBRIDGE_MXNET_PYTHON := $(CURDIR)/$(MXNET)/bin/python
export ONNXBRIDGE_MXNET_2_PYTHON := $(CURDIR)/$(MXNET_2)/bin/python
export ONNXBRIDGE_OPENVINO_PYTHON := $(CURDIR)/$(OPENVINO)/bin/python
PIP := -m pip --disable-pip-version-check --quiet install

.PHONY: demo test quick test-full test-dev test-python test-floors test-r generate fuzz dist audit lint docs clean

demo: $(VENV)/ready $(MXNET)/ready
	@$(VENV)/bin/python examples/digits/demo.py

test: lint $(MXNET)/ready $(MXNET_2)/ready $(OPENVINO)/ready
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile $(TESTS)

quick: lint $(MXNET)/ready $(MXNET_2)/ready $(OPENVINO)/ready
	$(VENV)/bin/python -m pytest -n 2 --dist loadfile --quick $(TESTS)

test-full: lint $(MXNET)/ready $(MXNET_2)/ready $(OPENVINO)/ready
	ONNXBRIDGE_TESTS=full $(VENV)/bin/python -m pytest -n 2 --dist loadfile $(TESTS)

test-dev: export PYTHONDEVMODE := 1
test-dev: quick

test-python: $(OTHER)/ready $(MXNET)/ready $(MXNET_2)/ready $(OPENVINO)/ready
	$(OTHER)/bin/python -m pytest -n 2 --dist loadfile --quick $(TESTS)

test-r: $(VENV)/ready
	@command -v R > /dev/null || (apt-get update -qq && apt-get install -y -qq --no-install-recommends $(R_PACKAGES))
	$(VENV)/bin/python -m pytest tests/integrations/test_r.py

test-floors: $(FLOORS)/ready $(MXNET)/ready $(MXNET_2)/ready $(OPENVINO)/ready
	$(FLOORS)/bin/python -m pytest -n 2 --dist loadfile --quick --floors \
	    tests/frontends tests/backends tests/hub tests/runtime tests/cli tests/roundtrip

R_PACKAGES := r-base-core r-cran-jsonlite r-cran-reticulate r-cran-testthat r-cran-knitr r-cran-rmarkdown pandoc

READER ?= all
SECONDS ?= 60

fuzz: $(VENV)/ready
	@if [ -n "$(GUIDED)" ]; then $(VENV)/bin/python $(PIP) 'atheris>=3'; fi
	$(VENV)/bin/python -m tests.fuzz_readers.run $(READER) --seconds $(SECONDS) $(if $(GUIDED),--guided)

# Files in the packages have the date of the last commit, so that anybody builds the same bytes.
dist: export SOURCE_DATE_EPOCH := $(shell git log -1 --format=%ct)
dist:
	rm -rf dist $(DIST)
	$(PYTHON) -m venv $(DIST)/build && $(PYTHON) -m venv $(DIST)/installed
	$(DIST)/build/bin/python $(PIP) 'build>=1' 'cyclonedx-bom>=7'
	$(DIST)/build/bin/python -m build --outdir dist
	$(DIST)/build/bin/python -m build --outdir $(DIST)/again
	for file in dist/*; do cmp $$file $(DIST)/again/$$(basename $$file) || exit 1; done
	$(DIST)/installed/bin/python $(PIP) -c constraints.txt dist/*.whl
	$(DIST)/build/bin/cyclonedx-py environment --output-reproducible --pyproject pyproject.toml -o dist/onnxbridge.cdx.json $(DIST)/installed
	cd dist && sha256sum * > SHA256SUMS && cat SHA256SUMS

audit: $(VENV)/ready
	$(VENV)/bin/python $(PIP) 'pip-audit>=2'
	$(VENV)/bin/python -m pip_audit

lint: $(VENV)/ready
	$(VENV)/bin/ruff check .
	$(VENV)/bin/mypy

generate: $(VENV)/ready
	$(VENV)/bin/python docs/generate.py

docs: generate
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs serve --open

# PyTorch goes first, pinned, so that nothing later can ask for another build of it. tf_keras asks for the GPU build of TensorFlow.
$(OTHER)/ready: override PYTHON = $(OTHER_PYTHON)
$(VENV)/ready $(OTHER)/ready: pyproject.toml constraints.txt
	@echo "setting up $(@D) (once, a minute or two)"
	@$(PYTHON) -m venv $(@D)
	@$(@D)/bin/python $(PIP) -c constraints.txt torch==2.13.0
	@$(@D)/bin/python $(PIP) -c constraints.txt -e '.[pytorch,tensorflow,tflite,coreml,test]'
	@$(@D)/bin/python $(PIP) --no-deps tf_keras==2.21.0
	@touch $@

# MXNet is retired and needs an old numpy, so it lives alone; onnxbridge talks to it through a pipe, and takes live blocks there.
$(MXNET)/ready: pyproject.toml
	@echo "setting up $(MXNET) (once)"
	@$(PYTHON) -m venv $(MXNET)
	@$(MXNET)/bin/python $(PIP) mxnet==1.9.1 numpy==1.23.5 onnx==1.23.2 onnx-ir==1.1.0 onnxruntime==1.31.1 -e .
	@touch $@

# The tests of symbols that MXNet 2 has written; its only release is a beta.
$(MXNET_2)/ready:
	@echo "setting up $(MXNET_2) (once)"
	@$(PYTHON) -m venv $(MXNET_2)
	@$(MXNET_2)/bin/python $(PIP) numpy==1.23.5 requests
	@$(MXNET_2)/bin/python $(PIP) --no-deps mxnet==2.0.0b1
	@touch $@

# ONNX Runtime for OpenVINO takes the place of the usual one; it is the second device that the tests have without a GPU.
$(OPENVINO)/ready: pyproject.toml constraints.txt
	@echo "setting up $(OPENVINO) (once)"
	@$(PYTHON) -m venv $(OPENVINO)
	@$(OPENVINO)/bin/python $(PIP) -c constraints.txt -e .
	@$(OPENVINO)/bin/python -m pip --quiet uninstall -y onnxruntime
	@$(OPENVINO)/bin/python $(PIP) --no-deps onnxruntime-openvino==1.24.1
	@touch $@

$(FLOORS)/ready: pyproject.toml floors.txt
	@echo "setting up $(FLOORS) (once)"
	@$(PYTHON) -m venv $(FLOORS)
	@$(FLOORS)/bin/python $(PIP) -r floors.txt hypothesis expecttest jsonschema junitparser lxml pytest pytest-xdist scikit-learn
	@$(FLOORS)/bin/python $(PIP) -c floors.txt -e .
	@$(FLOORS)/bin/python $(PIP) --no-deps tf_keras==2.18.0
	@touch $@

clean:
	rm -rf $(VENV) $(OTHER) $(MXNET) $(MXNET_2) $(OPENVINO) $(FLOORS) $(DIST) dist

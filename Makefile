# All commands of developers and CI; `make help` lists them. No target sets an environment variable that a command needs,
# so each line also works when typed in the checkout.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

PYTHON ?= python3
# The inventory that the demo simulates: a folder of inventories/, by default the lab's own pair.
CLUSTER ?= lab
# The cluster to test or measure, by default the demo's lab.
INVENTORY ?= inventories/lab
PYTEST_ARGS ?=
# vLLM releases for `make patch`: two, all, or versions separated by commas.
RELEASES ?= two
# A release of ansible-core for `make compat`, which needs its Python (PYTHON=python3.13).
CORE ?= 2.21
# A scenario of molecule.
SCENARIO ?= default
# Markers of the unit and sanity tests to run, by default all tests.
UNIT_TESTS ?=
# Markers of the clients to run, by default all.
CLIENT_TESTS ?=
# Parts of `make test` or `make test-all`, by default all.
PARTS ?=
# Packages of the core for `make mutants`, by default seven; all: 40 places in each.
PACKAGES ?=

bin := .venv/bin
demo := -i inventories/$(CLUSTER) -i inventories/lab/hosts_overlay.yml
faulty := -i inventories/lab -e @tests/faults/lab.yml
installed := .venv/.installed
docs_bin := .venv-docs/bin
docs_installed := .venv-docs/.installed
mutants_bin := .venv-mutants/bin
mutants_installed := .venv-mutants/.installed
clients_bin := .venv-clients/bin
clients_installed := .venv-clients/.installed
node_installed := .venv-clients/node/.installed
cuda_installed := .venv/cuda/.installed
cuda_arm64_installed := .venv/cuda-arm64/.installed
# The tests of these scenarios compile NCCL.
needs_nccl := nccl-source $(cuda_installed)
needs_arm64 := $(needs_nccl) $(cuda_arm64_installed)

.PHONY: help setup requirements downloads shellcheck promtool nft lint yamllint ruff mypy complexity changelog ansible-lint sanity unit unit-repeat mutants compat patch locks gateway clients nccl-source release-table collection docs release changelog-plugins variables molecule integration test test-all night demo demo-down bench bench-fabric bench-store bench-patch faults clean root

help: ## Show this list
	@grep -hE '^[a-z0-9-]+:.*## ' Makefile | sed -E 's/:.*## /\t/' | expand -t 19

setup: $(installed) ## Create .venv with the pinned tools (installs python3-venv first if it is missing)

$(installed): requirements-dev.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, for example: make PYTHON=python3.12")'
	@if ! $(PYTHON) -c 'import ensurepip, venv' 2>/dev/null; then \
	  [ "$$(id -u)" = 0 ] || { echo "As root, once: apt-get install python3-venv"; exit 1; }; \
	  apt-get update -q && apt-get install -qy --no-install-recommends python3-venv; \
	fi
	$(PYTHON) -m venv .venv
	$(bin)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-dev.txt
	@touch $@

$(docs_installed): requirements-docs.txt | $(installed)
	$(PYTHON) -m venv .venv-docs
	$(docs_bin)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-docs.txt
	@touch $@

$(mutants_installed): requirements-mutants.txt | $(installed)
	$(PYTHON) -m venv .venv-mutants
	$(mutants_bin)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-mutants.txt
	@touch $@

$(clients_installed): requirements-clients.txt requirements-clients-old.txt | $(installed)
	$(PYTHON) -m venv .venv-clients
	$(clients_bin)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-clients.txt
	$(clients_bin)/pip install --quiet --disable-pip-version-check --require-hashes --no-deps --upgrade --target .venv-clients/old \
	  -r requirements-clients-old.txt
	@touch $@

# NVIDIA's wheels are a toolkit, except that NCCL looks for libraries in lib64.
$(cuda_installed): requirements-cuda.txt | $(installed)
	$(bin)/pip install --quiet --disable-pip-version-check --require-hashes --upgrade --target $(@D) -r requirements-cuda.txt
	ln -sfn lib $(@D)/nvidia/cu13/lib64
	@touch $@

# For its headers and libraries, which the machine's nvcc reads.
$(cuda_arm64_installed): requirements-cuda.txt | $(installed)
	$(bin)/pip install --quiet --disable-pip-version-check --require-hashes --upgrade --target $(@D) --only-binary=:all: --platform=manylinux_2_28_aarch64 --platform=manylinux2014_aarch64 -r requirements-cuda.txt
	@touch $@

# Ubuntu has no package with this browser; then its tests are skipped.
$(node_installed): tests/clients/package-lock.json | $(clients_installed)
	@command -v npm >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends nodejs npm; }
	@command -v chromium chromium-browser google-chrome >/dev/null || { apt-get update -q && apt-get install -qy --no-install-recommends chromium; } || true
	mkdir -p $(@D)
	cp tests/clients/package.json tests/clients/package-lock.json tests/clients/.npmrc $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund
	@touch $@

requirements: ## Resolve the requirements-*.in and tests/clients/package.json into their locks again
	rm -rf build/requirements
	$(PYTHON) -m venv build/requirements
	build/requirements/bin/pip install --quiet --disable-pip-version-check --require-hashes -r requirements-uv.txt
	for name in uv dev docs mutants clients cuda; do \
	  build/requirements/bin/uv pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes --no-annotate \
	    --custom-compile-command 'make requirements' requirements-$$name.in --output-file requirements-$$name.txt; \
	done
	cd tests/clients && npm update --package-lock-only --no-audit --no-fund

lint: yamllint ruff mypy complexity changelog ansible-lint ## Run all linters; each is also a target (make -k lint: all findings at once)
yamllint: setup
	$(bin)/yamllint --strict .
ruff: setup
	$(bin)/ruff check
	$(bin)/ruff format --check --quiet
mypy: setup
	$(bin)/mypy
complexity: setup
	$(bin)/python tests/complexity.py plugins tests/support
changelog: setup
	$(bin)/antsibull-changelog lint
ansible-lint: setup
	$(bin)/ansible-lint --offline

sanity: setup shellcheck ## Run ansible-test sanity on the installed collection
	$(bin)/pytest tests/sanity/test_ansible_test.py $(if $(UNIT_TESTS),-m "$(UNIT_TESTS)") --junit-xml=build/junit/sanity.xml $(PYTEST_ARGS)

# The only program of ansible-test that PyPI does not provide.
shellcheck:
	@command -v shellcheck >/dev/null || { [ "$$(id -u)" = 0 ] || { echo "As root, once: apt-get install shellcheck"; exit 1; }; \
	  apt-get update -q && apt-get install -qy --no-install-recommends shellcheck; }

# The alerts are tested by it, or skipped. The package would also start a Prometheus.
promtool:
	@command -v promtool >/dev/null || [ "$$(id -u)" != 0 ] || { apt-get update -q && cd "$$(mktemp -d)" && \
	  apt-get download -q prometheus && dpkg-deb --extract prometheus_*.deb . && install usr/bin/promtool /usr/local/bin; }

# One test of the firewall needs the real one, or is skipped.
nft:
	@command -v nft >/dev/null || [ "$$(id -u)" != 0 ] || { apt-get update -q && apt-get install -qy --no-install-recommends nftables; }

unit: setup promtool nft ## Run the unit tests: the pure core, argument specifications, conventions
	$(bin)/pytest tests/unit $(if $(UNIT_TESTS),-m "$(UNIT_TESTS)") --numprocesses=auto --junit-xml=build/junit/unit.xml $(PYTEST_ARGS)

unit-repeat: setup promtool nft ## Run the unit tests five times, each in another order
	for seed in 1 2 3 4 5; do $(bin)/pytest tests/unit --numprocesses=auto --random-order-seed=$$seed $(PYTEST_ARGS); done

mutants: root $(mutants_installed) ## Change seven packages of the core in 200 places each, and list the changes that no unit test notices (PACKAGES=node: only this one)
	$(mutants_bin)/python tests/mutants.py $(PACKAGES)

# requirements-dev.txt has hashes for one ansible-core only, so that this takes the pinned versions without them.
compat: ## Run the unit tests and ansible-test sanity with another ansible-core (CORE=2.20; PYTHON=python3.13)
	$(PYTHON) -m venv build/compat
	sed 's/^ansible-core==.*/ansible-core~=$(CORE).0/' requirements-dev.in >build/compat/requirements.in
	build/compat/bin/pip install --quiet --disable-pip-version-check --requirement build/compat/requirements.in
	build/compat/bin/pytest tests/unit --numprocesses=auto $(PYTEST_ARGS)
	build/compat/bin/pytest tests/sanity/test_ansible_test.py $(PYTEST_ARGS)

patch: setup ## Test the patches and the table of arguments on published vLLM releases (RELEASES=all; downloads 16 to 330 MB each into ~/.cache/gb10-lab)
	$(bin)/pytest tests/patch --releases=$(RELEASES) --junit-xml=build/junit/patch.xml $(PYTEST_ARGS)

locks: setup ## Install each lock for its platform and test the GPU code of its wheels (4.5 GB each, 1 GB kept in ~/.cache/gb10-lab)
	$(bin)/pytest tests/locks --junit-xml=build/junit/locks.xml $(PYTEST_ARGS)

gateway: setup ## Test the gateway with its locked packages, in a network of its own as root (50 MB, kept in ~/.cache/gb10-lab)
	$(bin)/pytest tests/gateway --junit-xml=build/junit/gateway.xml $(PYTEST_ARGS)

clients: setup $(clients_installed) $(if $(CLIENT_TESTS),,$(node_installed)) ## Test real clients at the API's guard and the gateway (PYTEST_ARGS="--url=URL --key-file=FILE --model=NAME": at a server of yours)
	$(bin)/pytest tests/clients $(if $(CLIENT_TESTS),-m "$(CLIENT_TESTS)") --junit-xml=build/junit/clients.xml $(PYTEST_ARGS)

nccl-source: setup ## Test the claims about NCCL's sources on Debian's copy (downloads 1 MB into ~/.cache/gb10-lab)
	$(bin)/pytest tests/nccl --junit-xml=build/junit/nccl-source.xml $(PYTEST_ARGS)

collection: setup ## Build the package, install it into an empty folder, and test its documentation and playbooks there
	$(bin)/pytest tests/sanity/test_package.py --junit-xml=build/junit/collection.xml $(PYTEST_ARGS)

release: collection ## Write CHANGELOG.md, build the package into build/release, verify it, and print the steps that publish it
	$(bin)/python tests/release.py

variables: setup ## Write the defaults of all roles, and inventories/variables.yml, from the argument specifications
	$(bin)/python tests/variables.py

changelog-plugins: setup ## Update the lists of modules, plugins and roles in the changelog
	$(bin)/python tests/release.py plugins

docs: $(docs_installed) ## Build the documentation site in build/docs/html, and test its links and contents
	$(docs_bin)/pytest tests/docs --junit-xml=build/junit/docs.xml $(PYTEST_ARGS)

downloads: root setup ## Download the labs' root file system, wheels and models (1.3 GB, kept in ~/.cache/gb10-lab)
	$(bin)/ansible-playbook tests/lab/playbooks/lab_up.yml -i inventories/lab -e lab_state=cached

# Molecule needs Ansible's commands in PATH; an activated .venv works too.
molecule: root setup $(needs_$(SCENARIO)) ## Run a SCENARIO in a lab: create, check mode, converge, idempotence, integration tests, destroy
	PATH="$(CURDIR)/$(bin):$$PATH" molecule test --scenario-name $(SCENARIO)

integration: setup ## Run all integration tests on a running cluster (INVENTORY, by default the demo's lab)
	$(bin)/pytest tests/integration/fabric tests/integration/model tests/integration/lifecycle --inventory=$(INVENTORY) --junit-xml=build/junit/integration.xml $(PYTEST_ARGS)

test: root setup ## Run the tests that each change has to pass (aim: 12 minutes on 2 cores): linters, unit, the package, two vLLM releases, a pair
	@$(bin)/python tests/run.py test $(PARTS)

test-all: root setup ## Run every test (about four hours on 2 cores; PARTS=ring: only this part)
	@$(bin)/python tests/run.py test-all $(PARTS)

night: root setup ## Run every test, mutants of all packages, units in five orders, faults, Debian 13 and newer ansible-cores; repeat it to continue (aim: 8 hours)
	@$(bin)/python tests/run.py night $(PARTS)

release-table: setup ## Generate the table of vLLM's arguments from all releases (31 wheels, 2 GB, kept in ~/.cache/gb10-lab)
	$(bin)/python tests/patch/release_table.py

demo: root setup ## Start two simulated Sparks that serve a model and stay up (CLUSTER=three-spark-ring: another sample)
	$(bin)/ansible-playbook tests/lab/playbooks/lab_up.yml $(demo)
	$(bin)/ansible-playbook site.yml $(demo)

demo-down: root setup ## Remove the demo, except the downloads in ~/.cache/gb10-lab (1.4 GB)
	$(bin)/ansible-playbook tests/lab/playbooks/lab_down.yml $(demo)
	@echo "The demo is removed. Its downloads stay in ~/.cache/gb10-lab: $$(du -sh ~/.cache/gb10-lab 2>/dev/null | cut -f1). To remove them: rm -r ~/.cache/gb10-lab"

faults: root setup ## Cause each fault on two simulated Sparks, kill playbooks, and write docs/reliability.md's table (takes two hours)
	@command -v cc >/dev/null && [ -e "$$(echo /usr/lib/*/faketime/libfaketimeMT.so.1)" ] || \
	  { apt-get update -q && apt-get install -qy --no-install-recommends gcc libc6-dev libfaketime; }
	$(bin)/ansible-playbook tests/lab/playbooks/lab_down.yml $(faulty)
	$(bin)/ansible-playbook tests/lab/playbooks/lab_up.yml $(faulty)
	$(bin)/ansible-playbook site.yml $(faulty)
	rm -f build/faults.json
	result=0; $(bin)/pytest tests/faults --inventory=inventories/lab --extra-vars-file=tests/faults/lab.yml \
	  --junit-xml=build/faults.xml $(PYTEST_ARGS) || result=$$?; $(bin)/python tests/faults/table.py; exit $$result
	$(bin)/ansible-playbook tests/lab/playbooks/lab_down.yml $(faulty)

bench: setup ## Measure a running cluster (INVENTORY, by default the demo's lab)
	$(bin)/python tests/benchmark/bench.py cluster --inventory $(INVENTORY)

bench-fabric: root setup ## Measure the fabric of two and of eight hosts, in separate labs
	$(bin)/python tests/benchmark/bench.py fabric

bench-store: root setup ## Measure the copy of a model to four hosts, in network namespaces with capped links
	$(bin)/python tests/benchmark/bench.py store

bench-patch: setup ## Measure the CPU time of vllm_patch
	$(bin)/python tests/benchmark/bench.py patch

clean: ## Remove the other targets' files in this folder (demo-down removes the demo)
	rm -rf .venv .venv-docs .venv-mutants .venv-clients .ansible .mypy_cache .pytest_cache .ruff_cache build tests/output
	find . -name __pycache__ -prune -exec rm -rf {} +

root:
	@[ "$$(id -u)" = 0 ] || { echo "The lab makes network namespaces and boots hosts in them: run this as root."; exit 1; }

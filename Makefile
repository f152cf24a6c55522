# The entry point of developers and CI. `make help` lists the targets.

SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
.ONESHELL:
.SUFFIXES:

CACHE ?= $(or $(BAREMETAL_CACHE),$(or $(XDG_CACHE_HOME),$(HOME)/.cache)/cluster-api-provider-baremetal)
export BAREMETAL_CACHE := $(CACHE)
export CARGO_TARGET_DIR ?= $(CACHE)/target
DENY_VERSION := 0.20.2
DENY := $(CACHE)/tools/cargo-deny-$(DENY_VERSION)/bin/cargo-deny
CYCLONEDX_VERSION := 0.5.9
CYCLONEDX := $(CACHE)/tools/cargo-cyclonedx-$(CYCLONEDX_VERSION)/bin/cargo-cyclonedx
ABOUT_VERSION := 0.9.3
ABOUT := $(CACHE)/tools/cargo-about-$(ABOUT_VERSION)/bin/cargo-about
MUTANTS_VERSION := 27.1.0
MUTANTS := $(CACHE)/tools/cargo-mutants-$(MUTANTS_VERSION)/bin/cargo-mutants
# It is in every ISO and in every OS image.
AGENT_BYTES := 7340032
# Static programs are for the architecture of the machine that builds them.
TARGET := $(shell rustc --version --verbose 2>/dev/null | sed -n 's/^host: //p')
AGENT := $(CARGO_TARGET_DIR)/$(TARGET)/agent/baremetal-agent
# Static programs contain no path of the machine that builds them.
CARGO_HOME ?= $(HOME)/.cargo
# The last prefix that fits counts, and the target directory may be below another one.
REMAP = --remap-path-prefix=$(CARGO_HOME)=/cargo --remap-path-prefix=$(CURDIR)=/checkout --remap-path-prefix=$(CARGO_TARGET_DIR)=/target
STATIC = -C target-feature=+crt-static $(REMAP)
COORDINATOR := $(CARGO_TARGET_DIR)/$(TARGET)/release/baremetal-coordinator
# Licences of the libraries that are linked into the static programs.
NOTICES := $(CARGO_TARGET_DIR)/notices.txt
# The licence of glibc, from Debian's package base-files.
LGPL := /usr/share/common-licenses/LGPL-2.1
# The revision in the image. A copy of the checkout has no history.
REVISION ?= $$(git describe --always --dirty --abbrev=40)
# The private key that signs the agent for updates, and the public keys that hosts trust from then on.
AGENT_UPDATE_KEY ?=
AGENT_UPDATE_TRUST ?=
# The directory that operators install from.
RELEASE ?= $(CURDIR)/dist
BUNDLE := cargo run --quiet --package bundle --
PARTS := cargo run --quiet --package control-plane --bin parts
BUILDING_PARTS := [ -e $(CARGO_TARGET_DIR)/debug/parts ] || echo 'building the program that builds Kubernetes (once, about 4 min)…' >&2
# TIMED: test programs get a deadline each, and `slowest` prints the ten slowest tests.
RUNNER = CARGO_TARGET_$(shell echo $(TARGET) | tr a-z- A-Z_)_RUNNER
TIMES := $(CARGO_TARGET_DIR)/test-times
define TIMED
	mkdir -p $(CARGO_TARGET_DIR)
	: >$(TIMES)
	export $(RUNNER)=$(CURDIR)/tests/runner TEST_TIMES=$(TIMES)
	slowest() {
		echo 'the slowest tests, in seconds:' >&2
		sort --numeric-sort --reverse $(TIMES) | sed --quiet 1,10p
	}
endef
# Options of `make e2e` for its program.
EARLIER := $(if $(filter 0,$(UPGRADE)),,kubernetes-earlier)
E2E_OPTIONS := --host $(or $(HOST),uml) --control-planes $(or $(CONTROL_PLANES),1) $(if $(EARLIER),--upgrade) $(if $(KEEP),--keep) $(if $(filter internal,$(ENDPOINT)),--internal-endpoint) $(if $(LOSSES),--losses $(LOSSES)) $(if $(PHASES),--phases $(PHASES))
# Programs in the images, for build.sh and for the tests that build images.
define INPUTS
	AGENT=$(AGENT)
	KUBERNETES_BIN=$$($(PARTS) -- directory kubernetes)
	CONTAINERD_BIN=$$($(PARTS) -- directory containerd)
	export AGENT KUBERNETES_BIN CONTAINERD_BIN
endef
# IMAGES(host,image): the live ISO and an image of iso/build.sh for hosts in QEMU or in User Mode Linux.
define IMAGES
	$(if $(filter uml,$(1)),KERNEL=uml) iso/build.sh iso >/dev/null
	$(if $(filter uml,$(1)),KERNEL=uml) iso/build.sh $(2) >/dev/null
endef

.PHONY: help
help: ## List the targets
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{ printf "  %-15s %s\n", $$1, $$2 }'

.PHONY: demo
demo: packages agent ## Show the lifecycle live: a host from seed ISO to Node and back (HOST=uml runs it in User Mode Linux in place of QEMU, KEEP=1 leaves it running, TPM=0 takes its TPM away, METAL3=1 uses the kinds of Metal3)
	@$(BUILDING_PARTS)
	# The others are for tests.
	$(PARTS) -- path kube-apiserver kube-controller-manager etcd kubectl kubeadm cluster-api-core >/dev/null
	$(INPUTS)
	$(call IMAGES,$(or $(HOST),qemu),os)
	echo 'building the coordinator and the demo (about 6 min at first)…' >&2
	cargo build --quiet --package coordinator --package e2e --bins
	exec $(CARGO_TARGET_DIR)/debug/demo --host $(or $(HOST),qemu) $(if $(KEEP),--keep) $(if $(filter 0,$(TPM)),--software-key) $(if $(METAL3),--metal3)

.PHONY: test
test: test-packages parts agent iso ## Run the tests: pure, scenarios, real API servers, one QEMU host
	@$(INPUTS)
	# A test that lacks root or a tool fails, where it would else be left out.
	export NO_SKIPS=1
	$(TIMED)
	cargo build --quiet --package coordinator --package kubectl-baremetal
	cargo test --workspace --no-run
	echo 'the QEMU host is tested beside all others; its output comes last' >&2
	# A process group of its own: cargo and the test end together, and QEMU with its parent.
	setsid cargo test --workspace --test qemu_host >$(CARGO_TARGET_DIR)/qemu-host.log 2>&1 & host=$$!
	trap 'kill -- -$$host 2>/dev/null || true; slowest' EXIT
	trap 'exit 130' INT
	trap 'exit 143' TERM
	cargo test --workspace -- --skip qemu_host_becomes_node
	wait $$host && code=0 || code=$$?
	cat $(CARGO_TARGET_DIR)/qemu-host.log
	exit $$code

.PHONY: test-lab
test-lab: test-packages parts release iso ## Run the slow tests: a release, with the image of the coordinator; faults, disks, networks, devices, updates of the agent and IPVS of QEMU hosts (about 90 min; power cuts at flushes: make test-flushes)
	@$(INPUTS)
	IMAGE=$$(ls -t $(RELEASE)/baremetal-coordinator-*.oci.tar | head -1) cargo test --package e2e --features slow --test image
	cargo build --quiet --package coordinator
	cargo test --package e2e --features slow --test qemu_faults --test qemu_disks --test qemu_bond --test qemu_keyfiles --test qemu_update
	cargo test --package qemu --features slow --test life_of_a_host --test server_hardware
	cargo test --package uml --features slow --test life_of_a_host
	cargo test --package e2e --features slow --test uml_disks
	cargo test --package vip --features slow --test spread

.PHONY: test-flushes
test-flushes: test-packages parts iso ## Cut the power at 30 to 50 flushes of an OS switch and of the wipe after it, of a QEMU host (a boot for each)
	@$(INPUTS)
	cargo build --quiet --package coordinator
	cargo test --package e2e --features slow --test qemu_flushes -- --nocapture

.PHONY: test-upgrade
test-upgrade: parts ## Run hosts of this and of the former release with coordinators of both (builds the former release once)
	@former=$$(tests/contract/former-release/build.sh $(CACHE))
	cargo build --quiet --package coordinator
	FORMER=$$former COORDINATOR=$$former/baremetal-coordinator cargo test --package e2e --features slow --test releases

.PHONY: test-v1beta2
test-v1beta2: test-packages parts ## Run the tests with Cluster API's real managers where its v1beta1 is not served (about 20 min; TESTS=metal3:: runs a part)
	@$(INPUTS)
	cargo build --quiet --package coordinator --package kubectl-baremetal
	WITHOUT_V1BETA1=1 cargo test --package e2e --test clusters -- $(TESTS)

.PHONY: test-fast
test-fast: ## Run the tests that need nothing but Rust and root
	@$(TIMED)
	trap 'slowest' EXIT
	cargo test --package proto --package coordinator-api --package coordinator-core --package agent --package coordinator --package scenarios --package contract --package bundle --package kubectl-baremetal --package fuzz --lib --bins --tests
	# Its other test compares it with a real API server.
	cargo test --package fake-apiserver --lib --test fake

# The seed of a search: a number.
SEED ?= $$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')

.PHONY: explore
explore: ## Play random inputs, then CASES=1000 random stories by a new seed (SEED=n repeats or resumes a search, STORY=n plays one story of it)
	@seed=$(SEED)
	echo "make explore SEED=$$seed CASES=$(or $(CASES),1000) repeats this run, and resumes it where it was interrupted"
	PROPTEST_RNG_SEED=$$seed PROPTEST_CASES=1000 SCENARIO_CASES=100 cargo test --package coordinator-core --package coordinator --package agent --lib --tests
	PROPTEST_RNG_SEED=$$seed SCENARIO_CASES=100 cargo test --package scenarios -- --skip properties::
	$(MAKE) --no-print-directory stories SEED=$$seed CASES=$(or $(CASES),1000)

.PHONY: stories
stories: ## Play CASES=1000 random stories (MINUTES=m ends the search earlier, but not before 300 stories; SEED=n, STORY=n as for explore)
	@seed=$(SEED)
	mkdir -p $(CARGO_TARGET_DIR)/stories
	export STORIES=$(or $(CASES),1000) STORY_SEED=$$seed
	export $(if $(MINUTES),STORY_MINUTES=$(MINUTES) STORY_LEAST=300,STORY_PROGRESS=$(CARGO_TARGET_DIR)/stories/$$seed)
	$(if $(STORY),export STORY=$(STORY))
	echo "make stories SEED=$$seed CASES=$$STORIES plays these stories"
	cargo test --workspace --test scenarios properties::random_events -- --nocapture 2>$(CARGO_TARGET_DIR)/stories/log && code=0 || code=$$?
	[ $$code = 0 ] && grep '^stories ' $(CARGO_TARGET_DIR)/stories/log || tail -300 $(CARGO_TARGET_DIR)/stories/log
	exit $$code

.PHONY: mutants
mutants: $(MUTANTS) ## Change coordinator-core and the agent's plan engine in one place at a time, and list the changes that no test notices (days; SHARD=3/200 changes a part)
	@$(MUTANTS) mutants --package coordinator-core --package agent --file 'coordinator/core/src/**/*.rs' --file 'agent/src/plan/**/*.rs' $(if $(SHARD),--shard $(SHARD)) --output $(CARGO_TARGET_DIR) -- --lib --tests

$(MUTANTS):
	@echo 'building cargo-mutants $(MUTANTS_VERSION) (once, about 3 min)…' >&2
	cargo install --quiet --locked cargo-mutants --version $(MUTANTS_VERSION) --root $(CACHE)/tools/cargo-mutants-$(MUTANTS_VERSION)

# Coverage for libFuzzer by a stable toolchain: instrumentation without a sanitizer, because unsafe code is denied.
FUZZ_FLAGS := -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares -Cdebug-assertions -Coverflow-checks
FUZZ := $(CARGO_TARGET_DIR)/fuzz
FUZZ_TARGETS := plan registration attestation certificate oci iso seed cloud-config network journal workload image

.PHONY: fuzz
fuzz: ## Look for bytes that break a parser, by coverage and for EACH=600 seconds a target (TARGETS='iso oci' runs a part; needs g++)
	@RUSTFLAGS='$(FUZZ_FLAGS)' cargo build --quiet --package fuzz --features libfuzzer --release --target $(TARGET) --target-dir $(FUZZ)
	for target in $(or $(TARGETS),$(FUZZ_TARGETS)); do
		mkdir -p $(FUZZ)/inputs/$$target
		echo "$$target: new inputs are kept in $(FUZZ)/inputs/$$target, one that fails beside them"
		FUZZ_TARGET=$$target $(FUZZ)/$(TARGET)/release/fuzz $(FUZZ)/inputs/$$target tests/fuzz/corpus/$$target -max_total_time=$(or $(EACH),600) -timeout=10 -rss_limit_mb=2048 -artifact_prefix=$(FUZZ)/inputs/$$target- >$(FUZZ)/$$target.log 2>&1 || { tail -40 $(FUZZ)/$$target.log; exit 1; }
		grep -E '^#[0-9]+.*DONE' $(FUZZ)/$$target.log
	done

.PHONY: e2e
e2e: packages parts agent ## Run a cluster of hosts in User Mode Linux: kubeadm init and join, etcd restored, upgrade, deletion (HOST=qemu runs them in QEMU, 30 min on two idle cores; UPGRADE=0 leaves out the upgrade; KEEP=1 leaves it running, ENDPOINT=internal has no load balancer)
	@$(INPUTS)
	EARLIER_BIN=$(if $(EARLIER),$$($(PARTS) -- directory $(EARLIER)))
	ETCD_BIN=$$($(PARTS) -- directory etcd)
	export EARLIER_BIN ETCD_BIN
	$(call IMAGES,$(or $(HOST),uml),cluster)
	cargo build --quiet --package coordinator --package kubectl-baremetal --package e2e --bins
	# A host in User Mode Linux waits for the cores at each of its system calls, and Kubernetes has deadlines.
	exec nice --adjustment=-19 $(CARGO_TARGET_DIR)/debug/cluster-of-hosts $(E2E_OPTIONS)

.PHONY: e2e-ha
e2e-ha: ## Run a highly available cluster of hosts in User Mode Linux: three control planes that hold their endpoint, through losses, a partition, a roll and a replacement (15 GiB of free memory; LOSSES=20 of the holder; PHASES=losses,leader,partition,power,upgrade,replacement,scale runs a part)
	@free=$$(awk '/^MemAvailable:/ { print int($$2 / 1048576) }' /proc/meminfo)
	[ $$free -ge 15 ] || { echo "three control planes need 15 GiB of free memory, there are $$free" >&2; exit 1; }
	$(MAKE) --no-print-directory e2e CONTROL_PLANES=3

.PHONY: e2e-capi
e2e-capi: parts ## Run Cluster API's own specs on simulated hosts (about 30 min, and 10 min to build them once; SPECS='Quick start' runs a part)
	@cargo build --quiet --package coordinator --package e2e --bins
	exec $(CARGO_TARGET_DIR)/debug/cluster-api-suite --artifacts $(CARGO_TARGET_DIR)/cluster-api-suite-artifacts $(if $(SPECS),--specs '$(SPECS)')

.PHONY: bench
bench: ## Measure against the goals (about 20 min; BENCH='index fleet' runs a part, PAGE=docs writes docs/performance.md)
	@# One after the other: the coordinator is built without the features of the benchmarks.
	cargo build --quiet --release --package coordinator
	cargo build --quiet --release --package bench
	cargo build --quiet --release --package vip
	exec $(CARGO_TARGET_DIR)/release/bench $(if $(PAGE),--page $(PAGE)) $(BENCH)

.PHONY: trim
trim: ## Remove our own programs of former builds from the target directory when it has grown beyond 30 GiB
	@mkdir -p $(CARGO_TARGET_DIR)
	size=$$({ du --summarize --block-size=1G $(CARGO_TARGET_DIR) 2>/dev/null || true; } | cut -f 1)
	[ "$${size:-0}" -le 30 ] || cargo clean --quiet --workspace --profile dev

.PHONY: lint
lint: $(DENY) ## Check formatting, clippy, the language of comments, licences, bans, sources
	@cargo fmt --all --check
	cargo clippy --quiet --workspace --all-targets -- -D warnings
	cargo clippy --quiet --package e2e --package qemu --package uml --package vip --all-targets --features slow -- -D warnings
	cargo clippy --quiet --package coordinator-core -- -D warnings
	cargo clippy --quiet --package agent -- -D warnings
	cargo run --quiet --package contract --bin language
	$(DENY) --log-level error check bans licenses sources

$(DENY):
	@echo 'building cargo-deny $(DENY_VERSION) (once, about 5 min)…' >&2
	cargo install --quiet --locked cargo-deny --version $(DENY_VERSION) --root $(CACHE)/tools/cargo-deny-$(DENY_VERSION)

.PHONY: advisories
advisories: $(DENY) ## Compare the crates with known vulnerabilities, by RustSec's database from github.com, else by the copy that ADVISORY_DB names
	@.ci/advisories $(DENY) $(CACHE)/advisories

.PHONY: agent
agent: ## Build the static agent and print its path
	@echo 'building the static agent…' >&2
	RUSTFLAGS='$(STATIC)' cargo build --quiet --package agent --profile agent --target $(TARGET)
	size=$$(stat --format %s $(AGENT))
	[ "$$size" -le $(AGENT_BYTES) ] || { echo "the agent has $$size bytes, $(AGENT_BYTES) are allowed" >&2; exit 1; }
	echo $(AGENT)

.PHONY: reproducible
reproducible: ## Build the agent and the image of the coordinator twice, in different directories, and compare the bytes (slow)
	@copies=$$(mktemp --directory) revision=$(REVISION)
	trap 'rm -rf "$$copies"' EXIT
	for copy in one two/deeper; do
		mkdir -p "$$copies/$$copy"
		git ls-files -z --cached --others --exclude-standard | xargs --null cp --parents --target-directory "$$copies/$$copy"
		$(MAKE) --no-print-directory --directory "$$copies/$$copy" CARGO_TARGET_DIR="$$copies/$$copy/target" RELEASE="$$copies/$$copy/dist" REVISION="$$revision" image >/dev/null
		mv "$$copies/$$copy/target/$(TARGET)/agent/baremetal-agent" "$$copies/$${copy%%/*}.agent"
		mv "$$copies/$$copy"/dist/*.oci.tar "$$copies/$${copy%%/*}.oci.tar"
		rm -rf "$$copies/$$copy/target"
	done
	sha256sum "$$copies"/*.agent "$$copies"/*.oci.tar
	cmp "$$copies"/*.agent
	cmp "$$copies"/*.oci.tar

.PHONY: notices
notices: $(ABOUT) ## Collect the licences of what is linked into the programs, and print the path
	@mkdir -p $(CARGO_TARGET_DIR)
	cargo fetch --quiet --locked
	{
		for program in agent coordinator coordinator/kubectl-baremetal; do
			echo "# $$(basename $$program)"
			$(ABOUT) generate --frozen --fail --target $(TARGET) --manifest-path $$program/Cargo.toml --config .about.toml .about.hbs
		done
		cat .about.libraries.txt
		ldd --version | sed -n 1p
		echo
		cat $(LGPL)
	} >$(NOTICES).unfinished
	mv $(NOTICES).unfinished $(NOTICES)
	echo $(NOTICES)

.PHONY: sbom
sbom: $(CYCLONEDX) ## Write what the programs are made of to dist/sbom (CycloneDX)
	@# The tool writes beside each manifest, so it gets a copy.
	copy=$$(mktemp --directory)
	trap 'rm -rf "$$copy"' EXIT
	git ls-files -z --cached --others --exclude-standard | xargs --null cp --parents --target-directory "$$copy"
	(cd "$$copy" && SOURCE_DATE_EPOCH=0 $(CYCLONEDX) cyclonedx --quiet --all --no-build-deps --format json --spec-version 1.5 --target $(TARGET))
	mkdir -p $(RELEASE)/sbom
	write() {
		sed --in-place "s|$$copy|.|g" "$$copy/$$2/$$1.cdx.json"
		$(BUNDLE) bill --program $$1 --target $(TARGET) --glibc "$$(ldd --version | sed -n '1s/.* //p')" --libgcc "$$(gcc -dumpfullversion)" --input "$$copy/$$2/$$1.cdx.json" --output $(RELEASE)/sbom/$$3.cdx.json
	}
	write agent agent baremetal-agent
	write coordinator coordinator baremetal-coordinator
	write kubectl-baremetal coordinator/kubectl-baremetal kubectl-baremetal

$(CYCLONEDX):
	@echo 'building cargo-cyclonedx $(CYCLONEDX_VERSION) (once, about 2 min)…' >&2
	cargo install --quiet --locked cargo-cyclonedx --version $(CYCLONEDX_VERSION) --root $(CACHE)/tools/cargo-cyclonedx-$(CYCLONEDX_VERSION)

$(ABOUT):
	@echo 'building cargo-about $(ABOUT_VERSION) (once, about 5 min)…' >&2
	cargo install --quiet --locked cargo-about --version $(ABOUT_VERSION) --features cli --root $(CACHE)/tools/cargo-about-$(ABOUT_VERSION)

.PHONY: image
image: agent notices ## Build the image of the coordinator without a container daemon, and print its path (an OCI archive; AGENT_UPDATE_KEY=FILE signs its agent)
	@echo 'building the static coordinator…' >&2
	RUSTFLAGS='$(STATIC) -C strip=symbols' cargo build --quiet --package coordinator --release --target $(TARGET)
	$(BUNDLE) image --coordinator $(COORDINATOR) --agent $(AGENT) $(if $(AGENT_UPDATE_KEY),--agent-update-key $(AGENT_UPDATE_KEY)) $(if $(AGENT_UPDATE_TRUST),--agent-update-trust $(AGENT_UPDATE_TRUST)) --notices $(NOTICES) --revision "$(REVISION)" --output $(RELEASE)

.PHONY: release
release: image sbom kubectl-plugin ## Write what operators install to dist/ (RELEASE=DIRECTORY): the image, a repository for clusterctl, the Helm chart, the plugin of kubectl, alerts, SBOMs, licences
	@$(BUNDLE) manifests --output $(RELEASE)
	$(BUNDLE) chart --output $(RELEASE)
	install -D --mode 644 $(NOTICES) $(RELEASE)/THIRD-PARTY-LICENSES.txt
	$(BUNDLE) contents --program $(AGENT) --program $(COORDINATOR) --program $(PLUGIN) --target $(TARGET) --notices $(RELEASE)/THIRD-PARTY-LICENSES.txt --output $(RELEASE)

# The address at which the archive of a release is served.
RELEASE_URL ?= file://$(RELEASE)
PLUGIN := $(CARGO_TARGET_DIR)/$(TARGET)/release/kubectl-baremetal

.PHONY: kubectl-plugin
kubectl-plugin: notices ## Build kubectl-baremetal: a static file, its archive and its krew manifest (RELEASE_URL), and print their paths
	@echo 'building kubectl-baremetal…' >&2
	RUSTFLAGS='$(STATIC) -C strip=symbols' cargo build --quiet --release --package kubectl-baremetal --target $(TARGET)
	echo $(PLUGIN)
	$(BUNDLE) plugin --program $(PLUGIN) --notices $(NOTICES) --url '$(RELEASE_URL)' --output $(RELEASE)

.PHONY: iso
iso: packages parts agent ## Build the base ISO and the OS images of the lab (KERNEL=generic for real servers, FIRMWARE='firmware-bnx2x' with firmware, NETWORK=networkmanager with NetworkManager)
	@$(INPUTS)
	iso/build.sh iso >/dev/null
	iso/build.sh os >/dev/null

.PHONY: parts
parts: ## Build the real Kubernetes parts and a registry (once, about 20 min) and print their directories
	@$(BUILDING_PARTS)
	$(PARTS)

.PHONY: packages
packages: ## Install the Debian packages that the lab needs
	@iso/packages.sh

.PHONY: test-packages
test-packages: ## Install the Debian packages that the lab and the tests need
	@iso/packages.sh tests

.PHONY: generate
generate: ## Regenerate the agent contract, CRDs and docs/reference
	@UPDATE=1 cargo test --quiet --package contract generated::

.PHONY: doc
doc: generate ## Build the documentation of the code, warnings are errors, and docs/reference
	@RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' cargo doc --quiet --no-deps --workspace --document-private-items

.PHONY: clean
clean: ## Remove the build output; the cache of parts and images stays
	@cargo clean --quiet

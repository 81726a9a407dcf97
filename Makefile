# Every command of the project. `make help` prints the list; the same commands run in .ci/run.
# A line that starts with `##` above a target is its help text.

SHELL := /bin/bash
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

CARGO_TARGET_DIR ?= $(CURDIR)/target
export CARGO_TARGET_DIR
export MARIADB_PREFIX ?= $(CURDIR)/build/mariadb/usr
MARIADB_HEADERS ?= $(CURDIR)/build/mariadb-headers
VENV := $(CURDIR)/build/venv/bin
JOBS := $(shell nproc)

# What comes after JOBS up to SOURCES is replaced by scripts/sanitize.py, which also sets INSTRUMENTED: flags of compiler and linker.
PLUGIN := build/ha_pbxt.so
PLACE := build/plugin
CORE := $(CARGO_TARGET_DIR)/release/libpbxt_capi.a
SOURCES := $(wildcard plugin/mariadb/*.cc)
OBJECTS := $(SOURCES:plugin/mariadb/%.cc=$(PLACE)/%.o)

CXX := g++
# The first three definitions give the layouts of Debian's own build of the server. Symbols are hidden by the version script, not
# by -fvisibility, because the server's macro that declares a plugin does not mark its symbols for export.
CXXFLAGS := -std=c++17 -O2 -g1 -fPIC -fvisibility-inlines-hidden -Wall -Wextra \
            -DDBUG_OFF -DMYSQL_SERVER -DHAVE_CONFIG_H -DMYSQL_DYNAMIC_PLUGIN -Icrates/capi/include $(INSTRUMENTED)
# nodelete: threads and thread-local data of the core do not survive being unmapped by UNINSTALL.
# Bsymbolic: the server exports names such as crc32 that the core may define too; ours bind to ours.
LDFLAGS := -shared -Wl,--version-script=$(PLACE)/exports.map -Wl,-z,nodelete -Wl,-z,relro,-z,now -Wl,-Bsymbolic \
           -Wl,--gc-sections $(INSTRUMENTED)
LDLIBS := -lpthread -ldl -lm

.PHONY: help setup plugin package run start stop env test test-long sim fuzz bench bench-quick bench-compare lint clean core always

## help: this list
help:
	@echo "PBXT - make targets:"; echo
	@sed -n 's/^## \([a-z-]*\): \(.*\)/  \1|\2/p' Makefile | column -t -s '|'
	@echo
	@echo "First time: make setup && make start && scripts/server exec"
	@echo "Variables:  MARIADB_HEADERS=dir   build against other headers (checked against the server's version)"
	@echo "            MARIADB_PREFIX=dir    use another server: dir/sbin/mariadbd"
	@echo "            ARGS='...'            passed on by run, start, package, test, test-long, sim and the benches"

## setup: make a bare Debian 12 ready: compiler, Python tools, a private MariaDB with its headers (repeatable)
setup:
	@scripts/setup.sh

## plugin: build build/ha_pbxt.so from the Rust core and plugin/mariadb
plugin: core
	@$(MAKE) --no-print-directory -j$(JOBS) $(PLUGIN)

core: setup
	@cargo build --release --quiet --package pbxt-capi

# The headers' version is checked against the server's every time; objects are compiled again only when the answer changes.
$(PLACE)/headers.mk: always
	@mkdir -p $(PLACE)
	@scripts/headers.py $(MARIADB_HEADERS) >$@.new
	@cmp -s $@.new $@ && rm $@.new || mv $@.new $@

$(PLACE)/exports.map: Makefile
	@mkdir -p $(PLACE)
	@printf '{ global: _maria_plugin_*; _maria_sizeof_*; local: *; };\n' >$@

ifneq ($(filter $(PLUGIN),$(MAKECMDGOALS)),)
include $(PLACE)/headers.mk
endif

$(PLACE)/%.o: plugin/mariadb/%.cc $(PLACE)/headers.mk
	@echo "  c++   $<"
	@$(CXX) $(CXXFLAGS) $(HEADER_FLAGS) -MMD -MP -c $< -o $@

$(PLUGIN): $(OBJECTS) $(CORE) $(PLACE)/exports.map
	@echo "  link  $@"
	@$(CXX) $(LDFLAGS) -o $@.new $(OBJECTS) $(CORE) $(LDLIBS) && mv $@.new $@

-include $(OBJECTS:.o=.d)

## package: make a Debian package of plugin, settings and inspector for exactly the server in build/mariadb
package: plugin
	@$(VENV)/python scripts/package.py $(ARGS)

## run: show the engine at work on a private server, prove each claim, and leave the server running
run: plugin
	@scripts/run_demo.py $(ARGS)

## start: (re)start the private server with the plugin, say how to connect
start: plugin
	@scripts/server restart $(ARGS)

## stop: stop the private server
stop:
	@scripts/server stop

## env: print shell lines that put the private server's programs on your PATH: eval "$(make -s env)"
env:
	@echo 'export MARIADB_PREFIX="$(MARIADB_PREFIX)"'
	@echo 'export PLUGIN_DIR="$(MARIADB_PREFIX)/lib/mysql/plugin"'
	@echo 'export PATH="$(VENV):$(MARIADB_PREFIX)/bin:$(MARIADB_PREFIX)/sbin:$$PATH"'
	@scripts/server env

## test: everything that must pass before a change goes in; ARGS='--only core' for one suite
test: plugin
	@$(VENV)/python scripts/run_tests.py $(ARGS)

## test-long: the same with the server's whole suites and long random runs
test-long: plugin
	@$(VENV)/python scripts/run_tests.py --long $(ARGS)

## sim: play whole lives of databases from one seed after the other until interrupted or one fails; ARGS='--seed 5 --jobs 1'
sim: setup
	@cargo run --release --quiet --package pbxt-sim -- --forever $(ARGS)

## fuzz: bytes made by a fuzzer for every decoder, a minute each; ARGS='--seconds 3600 row-block'
fuzz: setup
	@$(VENV)/python scripts/fuzz.py $(ARGS)

## bench: the whole comparison with the engines of the same server: report, charts, speed targets (most of a day)
bench: plugin
	@bench/run $(ARGS)

## bench-quick: the same with small tables, in five minutes: does everything work?
bench-quick: plugin
	@bench/run --quick $(ARGS)

## bench-compare: the Rust library beside other embedded stores: RocksDB, LMDB, SQLite, redb, fjall (half an hour)
bench-compare: setup
	@bench/compare $(ARGS)

## lint: formatting, clippy, licences and the house rules
lint: setup
	@cargo fmt --all --check
	@cargo fmt --manifest-path bench/embedded/Cargo.toml --check
	@cargo clippy --quiet --workspace --all-targets --all-features -- -D warnings
	@$(VENV)/clang-format --dry-run -Werror $(wildcard plugin/mariadb/*.cc plugin/mariadb/*.h crates/capi/include/*.h crates/capi/tests/*.c)
	@scripts/licences.py
	@$(VENV)/python scripts/tidy.py

## clean: remove what was built; the private server and its data stay (remove build/ for those)
clean:
	@scripts/server stop --quiet || true
	@rm -rf $(PLACE) $(PLUGIN)
	@cargo clean --quiet

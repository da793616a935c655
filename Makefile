# SPDX-License-Identifier: Apache-2.0
#
# kvgauge. The two commands: `make run` (measure this machine) and `make test`. `make help` lists the rest.

SHELL := /bin/bash
.DEFAULT_GOAL := all
VERSION := 0.1.0
PREFIX ?= /usr/local
B ?= build

# ---------------------------------------------------------------- packages
# What Debian 12 calls the things we use. Each target installs what is missing, if it may.
PACKAGES_BUILD := gcc g++ pkg-config libhdf5-dev libjansson-dev libyaml-dev libcyaml-dev librandom123-dev \
                  libbenchmark-dev libgsl-dev
PACKAGES_RUN   := $(PACKAGES_BUILD)
PACKAGES_TEST  := $(PACKAGES_BUILD) libcmocka-dev python3 python3-numpy python3-h5py python3-xarray \
                  python3-h5netcdf python3-netcdf4 python3-pandas
# gnuplot-nox conflicts with gnuplot-qt and gnuplot-x11, so it is wanted only where there is no gnuplot at all.
PACKAGES_GNUPLOT := $(if $(shell command -v gnuplot),,gnuplot-nox)

# install_missing PACKAGES: silent when nothing is missing.
define install_missing
	@missing=""; \
	if command -v dpkg-query >/dev/null; then \
	  for p in $(1); do \
	    dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; \
	  done; \
	fi; \
	if [ -n "$$missing" ]; then \
	  if [ "$$(id -u)" = 0 ]; then as=""; \
	  elif sudo -n true 2>/dev/null; then as="sudo"; \
	  else echo "kvgauge needs these Debian packages:$$missing" >&2; \
	       echo "install them as root: apt-get install$$missing" >&2; exit 1; fi; \
	  echo "installing:$$missing"; \
	  $$as apt-get update -qq && DEBIAN_FRONTEND=noninteractive $$as apt-get install -y -qq \
	    --no-install-recommends $$missing >/dev/null || \
	  { echo "apt-get could not install:$$missing" >&2; exit 1; }; \
	fi
endef

# ---------------------------------------------------------------- compilers and flags
# One short line a file; V=1 shows the commands.
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')
CC       := gcc
CXX      := g++
OPT      ?= -O3
SANITIZE ?=
WARN     := -Wall -Wextra -Werror
# Contraction off: an FMA where the source has none would change bits between machines.
COMMON   := $(OPT) -g -fopenmp -ffp-contract=off -fno-math-errno -D_GNU_SOURCE $(WARN) $(SANITIZE)
GIT_SHA  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
GIT_DIRTY := $(shell git diff --quiet HEAD -- 2>/dev/null && echo 0 || echo 1)

# pkg-config is asked when a recipe runs, not before: the packages may just have been installed.
PKGS     := hdf5 jansson libcyaml yaml-0.1 gsl benchmark
PC_CFLAGS = $(shell pkg-config --cflags $(PKGS))
PC_LIBS   = $(shell pkg-config --libs $(PKGS)) -lhdf5_hl
CFLAGS_ALL = -std=c11 $(COMMON) $(PC_CFLAGS) $(NVTX_CFLAGS) $(CFLAGS)
CXXFLAGS_ALL = -std=c++17 $(COMMON) $(PC_CFLAGS) $(NVTX_CFLAGS) $(CXXFLAGS)
LDLIBS_ALL = $(PC_LIBS) -ldl -lm -lstdc++ -lpthread $(LDLIBS)

# CUDA toolkit: used when found.
CUDA_HOME ?= $(shell d=$$(dirname $$(dirname $$(readlink -f $$(command -v nvcc 2>/dev/null || echo /usr/local/cuda/bin/nvcc)))); [ -d $$d/include ] && echo $$d)
NVTX_DIR  := $(if $(CUDA_HOME),$(shell d=$$(dirname $$(find -L $(CUDA_HOME)/include $(CUDA_HOME)/targets -name nvToolsExt.h -path '*nvtx3*' 2>/dev/null | head -1) 2>/dev/null); [ -n "$$d" ] && dirname $$d))
NVTX_CFLAGS := $(if $(filter-out . /,$(NVTX_DIR)),-DKVG_HAVE_NVTX=1 -isystem $(NVTX_DIR))

# One set of flags per instruction set; the file's suffix says which. Chosen at run time by CPU features.
ISA_avx2       := -mavx2 -mfma -mf16c -mbmi2
ISA_avx512     := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq
ISA_avx512vbmi := $(ISA_avx512) -mavx512vbmi -mavx512bf16
isa_flags = $(ISA_$(lastword $(subst _, ,$(basename $(notdir $(1))))))

# ---------------------------------------------------------------- sources
SRC_C   := $(wildcard kernels/*.c kernels/cpu/*.c kernels/cuda/*.c reference/*.c harness/*.c harness/inputs/*.c results/*.c plots/*.c)
SRC_CXX := harness/bench_shim.cc
MAIN    := harness/main.c
OBJ     := $(SRC_C:%.c=$(B)/obj/%.o) $(SRC_CXX:%.cc=$(B)/obj/%.o)
LIB_OBJ := $(filter-out $(B)/obj/$(MAIN:%.c=%.o),$(OBJ))
TESTS   := $(patsubst tests/unit/%.c,$(B)/tests/%,$(wildcard tests/unit/test_*.c))
# Where an uninstalled binary finds suites, captured input and plot scripts; see harness/paths.h.
PATHS_DEF := -DKVG_SOURCE_DIR='"$(CURDIR)"' -DKVG_DATA_DIR='"$(PREFIX)/share/kvgauge"' \
             -DKVG_VERSION='"$(VERSION)"' -DKVG_GIT_SHA='"$(GIT_SHA)"' -DKVG_GIT_DIRTY=$(GIT_DIRTY)

.PHONY: all cpu run test deps-run deps-test asan mutants clean install uninstall help lint bundle gpu-bench gpu-check FORCE

all: $(B)/kvgauge ## build build/kvgauge (with CUDA where nvcc and a GPU are found)
cpu: $(B)/kvgauge ## build without CUDA

deps-run:
	$(call install_missing,$(PACKAGES_RUN) $(PACKAGES_GNUPLOT))
deps-test:
	$(call install_missing,$(PACKAGES_TEST) $(PACKAGES_GNUPLOT))

# A second make, so that what apt has just brought is seen. `-j`: as many jobs as there are CPUs.
run: deps-run ## measure this machine: suite quick, HDF5 file and plots
	@$(MAKE) --no-print-directory -j$$(nproc) $(B)/kvgauge
	@$(B)/kvgauge run --suite quick $(ARGS)

test: deps-test ## unit, command-line and file-format tests
	@$(MAKE) --no-print-directory -j$$(nproc) $(B)/kvgauge $(TESTS)
	@tests/run.sh $(B)

$(B)/kvgauge: $(OBJ)
	@mkdir -p $(@D)
	@echo '  $(if $(NVTX_CFLAGS),NVTX  ranges built in ($(NVTX_DIR)),NVTX  no CUDA toolkit found: built without ranges for profilers)'
	$(call say,LINK,$@)
	$(Q)$(CC) $(COMMON) $(LDFLAGS) -rdynamic -o $@ $^ $(LDLIBS_ALL)

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(call isa_flags,$*) $(PATHS_$(subst /,_,$*)) -MMD -MP -c -o $@ $<

$(B)/obj/%.o: %.cc
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(CXXFLAGS_ALL) -MMD -MP -c -o $@ $<

# The only object that knows version and paths; rebuilt when the commit changes.
PATHS_harness_paths := $(PATHS_DEF)
$(B)/obj/harness/paths.o: $(B)/.version
$(B)/.version: FORCE
	@mkdir -p $(@D); echo '$(VERSION) $(GIT_SHA) $(GIT_DIRTY) $(PREFIX) $(CURDIR)' | cmp -s - $@ || \
	  echo '$(VERSION) $(GIT_SHA) $(GIT_DIRTY) $(PREFIX) $(CURDIR)' > $@
FORCE:

$(B)/tests/%: $(B)/obj/tests/unit/%.o $(LIB_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(COMMON) $(LDFLAGS) -rdynamic -o $@ $^ -lcmocka $(LDLIBS_ALL)
.SECONDARY: $(TESTS:$(B)/tests/%=$(B)/obj/tests/unit/%.o)

-include $(OBJ:.o=.d) $(patsubst %,$(B)/obj/tests/mutants/%.d,mutants rules) $(patsubst $(B)/tests/%,$(B)/obj/tests/unit/%.d,$(TESTS))

# ---------------------------------------------------------------- CUDA
# The kernels for Hopper and the program that checks and times them on a GPU. Compiling needs nvcc and no GPU; a
# decode kernel that spills registers or uses local memory fails the build.
NVCC      := $(if $(CUDA_HOME),$(CUDA_HOME)/bin/nvcc,nvcc)
NVCCFLAGS := -gencode arch=compute_90a,code=sm_90a -O3 -std=c++17 --diag-suppress 128 -Xptxas -v
CUDA_OBJ  := $(patsubst %.cu,$(B)/gpu/%.o,$(wildcard kernels/cuda/*.cu) tests/gpu/decode_bench.cu)

gpu-bench: $(B)/gpu/decode_bench ## compile the CUDA kernels and their check-and-time program (nvcc, no GPU needed)
$(B)/gpu/decode_bench: $(CUDA_OBJ) $(B)/obj/kernels/cuda/plan.o
	@if grep -hE '[1-9][0-9]* bytes (stack frame|spill)' $(B)/gpu/kernels/cuda/decode_*.ptxas; then \
	  echo 'a decode kernel uses local memory (see above)' >&2; exit 1; fi
	$(call say,LINK,$@)
	$(Q)$(NVCC) -o $@ $^ -lgomp
gpu-check: $(B)/gpu/tensor_core_check ## compile the check of a GPU's FP8 instructions against their models (nvcc)
$(B)/gpu/tensor_core_check: $(B)/gpu/tests/gpu/tensor_core_check.o $(B)/obj/reference/tensor_core.o \
                            $(B)/obj/reference/tensor_core_tile.o $(B)/obj/reference/formats.o
	$(call say,LINK,$@)
	$(Q)$(NVCC) -o $@ $^
$(B)/gpu/%.o: %.cu $(wildcard kernels/cuda/*.cuh kernels/cuda/*.h kernels/*.h tests/gpu/*.cuh)
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(NVCCFLAGS) -c -o $@ $< 2>$(@:.o=.ptxas) || { cat $(@:.o=.ptxas) >&2; exit 1; }

asan: deps-test ## the same tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory -j$$(nproc) B=$(B)/asan OPT='-O1' \
	  SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' \
	  $(B)/asan/kvgauge $(patsubst $(B)/tests/%,$(B)/asan/tests/%,$(TESTS))
	@KVG_TEST_SANITIZED=1 tests/run.sh $(B)/asan

mutants: $(B)/mutants $(B)/mutants.so ## the right kernel with one fault, again and again: who is caught, and by what
	@OMP_NUM_THREADS=1 $(B)/mutants $(MUTANTS_ARGS) $(B)/mutants.so tests/mutants/mutants.yaml
$(B)/mutants: $(B)/obj/tests/mutants/mutants.o $(B)/obj/tests/mutants/rules.o $(LIB_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(COMMON) $(LDFLAGS) -rdynamic -o $@ $^ $(LDLIBS_ALL)
$(B)/mutants.so: $(addprefix tests/mutants/,attention.c store.c plugin.c faults.def mutant.h)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) -std=c11 -O3 -g -D_GNU_SOURCE -ffp-contract=off $(WARN) -fPIC -shared -o $@ $(filter %.c,$^) -lm
$(B)/obj/tests/mutants/mutants.o: tests/mutants/faults.def

C_FILES = $(shell git ls-files '*.c' '*.h' '*.cc' '*.cu' '*.cuh' '*.def' 2>/dev/null)
lint: ## clang-format and cppcheck
	@clang-format --dry-run -Werror $(filter-out %.def,$(C_FILES))
	@cppcheck --quiet --std=c11 --enable=warning,performance,portability --error-exitcode=1 \
	  --inline-suppr --suppress=missingIncludeSystem -I. -D_GNU_SOURCE -D__cppcheck__ $(filter %.c,$(C_FILES))

install: $(B)/kvgauge ## PREFIX= DESTDIR=: binary, kernel ABI header, suites, data, man page, pkg-config file
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/include/kvgauge $(DESTDIR)$(PREFIX)/lib/pkgconfig \
	  $(DESTDIR)$(PREFIX)/share/kvgauge/suites $(DESTDIR)$(PREFIX)/share/kvgauge/inputs \
	  $(DESTDIR)$(PREFIX)/share/kvgauge/plots $(DESTDIR)$(PREFIX)/share/man/man1
	install -m 755 $(B)/kvgauge $(DESTDIR)$(PREFIX)/bin/kvgauge
	install -m 644 kernels/kernel.h kernels/fp8.h $(DESTDIR)$(PREFIX)/include/kvgauge/
	install -m 644 harness/suites/*.yaml $(DESTDIR)$(PREFIX)/share/kvgauge/suites/
	install -m 644 harness/inputs/*.h5 $(DESTDIR)$(PREFIX)/share/kvgauge/inputs/
	install -m 644 plots/*.gp $(DESTDIR)$(PREFIX)/share/kvgauge/plots/
	install -m 644 harness/kvgauge.1 $(DESTDIR)$(PREFIX)/share/man/man1/kvgauge.1
	printf 'prefix=%s\nincludedir=$${prefix}/include/kvgauge\n\nName: kvgauge\nDescription: kernel ABI of kvgauge\nVersion: %s\nCflags: -I$${includedir}\n' \
	  '$(PREFIX)' '$(VERSION)' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/kvgauge.pc

# A folder that runs where nothing is installed: the binary looks for its libraries in ../lib, and every library
# but glibc's own (and the NVIDIA driver's) lies there.
GLIBC := linux-vdso|ld-linux|libc\.so|libm\.so|libdl\.so|libpthread\.so|librt\.so|libcuda\.so|libnvidia
bundle: $(B)/bundle/bin/kvgauge ## build/bundle: binary, libraries, suites, inputs; runs without installed packages
$(B)/bundle/bin/kvgauge: $(OBJ) $(wildcard harness/suites/*.yaml harness/inputs/*.h5 plots/*.gp)
	@rm -rf $(B)/bundle && mkdir -p $(B)/bundle/bin $(B)/bundle/lib $(B)/bundle/share/kvgauge/{suites,inputs,plots}
	$(call say,LINK,$@)
	$(Q)$(CC) $(COMMON) $(LDFLAGS) -rdynamic -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/../lib' \
	  -o $@ $(OBJ) $(LDLIBS_ALL)
	@ldd $@ | awk '/=> \//{print $$3}' | grep -vE '$(GLIBC)' | xargs -I{} cp -L {} $(B)/bundle/lib/
	@cp harness/suites/*.yaml $(B)/bundle/share/kvgauge/suites/
	@cp harness/inputs/*.h5 $(B)/bundle/share/kvgauge/inputs/
	@cp plots/*.gp $(B)/bundle/share/kvgauge/plots/
	@cp LICENSE $(B)/bundle/

uninstall: ## remove what install put there
	rm -rf $(DESTDIR)$(PREFIX)/bin/kvgauge $(DESTDIR)$(PREFIX)/include/kvgauge $(DESTDIR)$(PREFIX)/share/kvgauge \
	  $(DESTDIR)$(PREFIX)/share/man/man1/kvgauge.1 $(DESTDIR)$(PREFIX)/lib/pkgconfig/kvgauge.pc

clean: ## remove build/ (results/runs and plots/out stay)
	rm -rf $(B)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

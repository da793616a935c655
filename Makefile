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
	  case "$$missing" in *:arm64*) $$as dpkg --add-architecture arm64 ;; esac; \
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
# No symbol is exported: a plug-in's function of the same name would be replaced by ours. A plug-in needs none of ours.
COMMON   := -iquote . $(OPT) -g -fopenmp -fvisibility=hidden -ffp-contract=off -fno-math-errno -D_GNU_SOURCE $(WARN) $(SANITIZE)
GIT_SHA  := $(shell git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
GIT_DIRTY := $(shell git diff --quiet HEAD -- 2>/dev/null && echo 0 || echo 1)

# pkg-config is asked when a recipe runs, not before: the packages may just have been installed.
PKGS     := hdf5 jansson libcyaml yaml-0.1 gsl benchmark
PC_CFLAGS = $(shell pkg-config --cflags $(PKGS))
PC_LIBS   = $(shell pkg-config --libs $(PKGS)) -lhdf5_hl
CFLAGS_ALL = -std=c11 $(COMMON) $(PC_CFLAGS) $(NVTX_CFLAGS) $(CFLAGS)
CXXFLAGS_ALL = -std=c++17 $(COMMON) $(PC_CFLAGS) $(NVTX_CFLAGS) $(CXXFLAGS)
LDLIBS_ALL = $(PC_LIBS) -ldl -lm -lstdc++ -lpthread $(LDLIBS)

# ---------------------------------------------------------------- CUDA toolkit
CUDA_HOME ?= $(shell d=$$(dirname $$(dirname $$(readlink -f $$(command -v nvcc 2>/dev/null || echo /usr/local/cuda/bin/nvcc)))); [ -d $$d/include ] && echo $$d)
NVTX_DIR  := $(if $(CUDA_HOME),$(shell d=$$(dirname $$(find -L $(CUDA_HOME)/include $(CUDA_HOME)/targets -name nvToolsExt.h -path '*nvtx3*' 2>/dev/null | head -1) 2>/dev/null); [ -n "$$d" ] && dirname $$d))
NVTX_CFLAGS := $(if $(filter-out . /,$(NVTX_DIR)),-DKVG_HAVE_NVTX=1 -isystem $(NVTX_DIR))
NVCC      := $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/bin/nvcc))
# CUDA_FOR says which GPUs build/kvgauge holds code for: none, all, or one architecture (sm_90a). Left alone it is
# the GPU of this machine, where nvcc and an NVIDIA GPU are found, and none elsewhere. What is compiled lies in a
# folder of its own for each; what is linked is linked again when CUDA_FOR changes.
CUDA_FOR ?= $(if $(filter cpu,$(MAKECMDGOALS)),none,$(if $(filter cuda,$(MAKECMDGOALS)),all,$(gpu_here)))
gpu_here = $(if $(NVCC),$(shell NVCC='$(NVCC)'; \
  cap=$$(timeout 20 nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d ' .'); \
  if [ "$$cap" = 90 ]; then echo sm_90a; \
  elif [ -n "$$cap" ] && $$NVCC --list-gpu-code | grep -qx "sm_$$cap"; then echo sm_$$cap; \
  elif [ -e /dev/nvidia0 ]; then echo all; else echo none; fi),none)
CUDA_FOR := $(CUDA_FOR)
CUDA_ALL_SAYS := sm_80 sm_89 sm_90a sm_100 and later
# sm_100 stands for Blackwell; later GPUs translate the PTX that comes with it when they first load it.
GENCODE_all := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_89,code=sm_89 \
               -gencode arch=compute_90a,code=sm_90a -gencode 'arch=compute_100,code=[sm_100,compute_100]'
, := ,
gencode = $(or $(GENCODE_$(1)),-gencode arch=compute_$(1:sm_%=%)$(,)code=$(1))
NVCCFLAGS ?=
NVCCFLAGS_ALL := -I. -O3 -lineinfo -std=c++17 --diag-suppress 128 -Werror all-warnings \
                 -Xcompiler -Wall,-Wextra,-Werror,-fopenmp -Xptxas -v $(NVCCFLAGS)
# The runtime is linked in, the driver is opened when a kernel is first asked for: without them nothing fails.
CUDA_LIBS  = -L$(CUDA_HOME)/lib64 -lcudart_static -lstdc++ -lm -ldl -lpthread -lrt

# One set of flags per instruction set; the file's suffix says which. Chosen at run time by CPU features. A file is
# compiled only for the architecture that has its instruction set; CPU_ARCH is what the compiler compiles for.
CPU_ARCH ?= $(firstword $(subst -, ,$(shell $(CC) -dumpmachine 2>/dev/null)))
ISA_SUFFIXES_x86_64  := avx2 avx512 avx512vbmi avx512fp16 amx
ISA_SUFFIXES_aarch64 := neon
ISA_SUFFIXES := $(ISA_SUFFIXES_x86_64) $(ISA_SUFFIXES_aarch64)
# sources_for ARCHITECTURE,FILES
sources_for = $(filter-out $(foreach isa,$(filter-out $(ISA_SUFFIXES_$(1)),$(ISA_SUFFIXES)),%_$(isa).c),$(2))
ISA_avx2       := -mavx2 -mfma -mf16c -mbmi2
ISA_avx512     := $(ISA_avx2) -mavx512f -mavx512bw -mavx512vl -mavx512dq
ISA_avx512vbmi := $(ISA_avx512) -mavx512vbmi -mavx512bf16
ISA_avx512fp16 := $(ISA_avx512) -mavx512fp16
ISA_amx        := $(ISA_avx512vbmi) -mavx512vbmi2 -mamx-tile -mamx-bf16
isa_flags = $(ISA_$(lastword $(subst _, ,$(basename $(notdir $(1))))))

# ---------------------------------------------------------------- sources
SRC_C   := $(call sources_for,$(CPU_ARCH),$(wildcard kernels/*.c kernels/cpu/*.c kernels/cuda/*.c reference/*.c \
             harness/*/*.c results/*.c plots/*.c))
SRC_CXX := harness/measure/bench_shim.cc
MAIN    := harness/cli/main.c
OBJ     := $(SRC_C:%.c=$(B)/obj/%.o) $(SRC_CXX:%.cc=$(B)/obj/%.o)
LIB_OBJ := $(filter-out $(B)/obj/$(MAIN:%.c=%.o),$(OBJ))
# CUDA: the host's side in C; on the device's side the decode kernels use instructions of Hopper, which exist for
# sm_90a alone (elsewhere their `supports` says so), and all else is plain CUDA C.
CUDA_C_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(wildcard harness/device/cuda/*.c))
CUDA_HOPPER := $(wildcard kernels/cuda/decode_*.cu)
CUDA_PLAIN  := $(filter-out $(CUDA_HOPPER),$(wildcard kernels/cuda/*.cu harness/device/cuda/*.cu))
# cuda_objects CUDA_FOR: what a program with code for those GPUs is linked from, beside LIB_OBJ.
cuda_objects = $(CUDA_HOPPER:%.cu=$(B)/cuda/sm_90a/%.o) $(CUDA_PLAIN:%.cu=$(B)/cuda/$(1)/%.o) $(CUDA_C_OBJ)
CUDA_OBJ := $(if $(filter-out none,$(CUDA_FOR)),$(call cuda_objects,$(CUDA_FOR)))
# tests/unit/ has the folders of the sources; TESTS is every program, build/tests/unit/FOLDER/test_NAME.
TESTS   := $(patsubst %.c,$(B)/%,$(wildcard $(addprefix tests/unit/,*/test_*.c harness/*/test_*.c)))
ifneq ($(CPU_ARCH),x86_64) # the model of AMX computes with AVX-512
TESTS   := $(filter-out %/test_amx_model,$(TESTS))
endif
# Where an uninstalled binary finds suites, captured input and plot scripts; see harness/machine/paths.h.
PATHS_DEF := -DKVG_SOURCE_DIR='"$(CURDIR)"' -DKVG_DATA_DIR='"$(PREFIX)/share/kvgauge"' \
             -DKVG_VERSION='"$(VERSION)"' -DKVG_GIT_SHA='"$(GIT_SHA)"' -DKVG_GIT_DIRTY=$(GIT_DIRTY)

.PHONY: all cpu cuda run test test-arm test-gpu test-bundle deps-run deps-test asan mutants clean install uninstall help lint \
        bundle gpu-bench gpu-check nightly FORCE

all: $(B)/kvgauge ## build build/kvgauge (with CUDA for this machine's GPU, where nvcc and a GPU are found)
cpu: $(B)/kvgauge ## build without CUDA
cuda: $(if $(NVCC),$(B)/kvgauge) ## build with CUDA for sm_80, sm_89, sm_90a, sm_100 and PTX for later ones (nvcc, no GPU needed)
	$(need_nvcc)
need_nvcc = $(if $(NVCC),,@echo 'no nvcc in PATH or /usr/local/cuda/bin: install the CUDA toolkit, or set CUDA_HOME' >&2; exit 1)

include reference/reference.mk

deps-run:
	$(call install_missing,$(PACKAGES_RUN) $(PACKAGES_GNUPLOT))
deps-test:
	$(call install_missing,$(PACKAGES_TEST) $(PACKAGES_GNUPLOT))

# A second make, so that what apt has just brought is seen. `-j`: as many jobs as there are CPUs.
run: deps-run ## measure this machine: suite quick, HDF5 file and plots
	@$(MAKE) --no-print-directory -j$$(nproc) CUDA_FOR=$(CUDA_FOR) $(B)/kvgauge
	@$(B)/kvgauge run --suite quick $(ARGS)

test: deps-test ## unit, command-line and file-format tests
	@$(MAKE) --no-print-directory -j$$(nproc) CUDA_FOR=$(CUDA_FOR) $(B)/kvgauge $(TESTS)
	@tests/run.sh $(B)

$(B)/kvgauge: $(OBJ) $(CUDA_OBJ) $(B)/.cuda_for
	@mkdir -p $(@D)
	@echo '  CUDA  $(CUDA_SAYS)'
	@echo '  $(if $(NVTX_CFLAGS),NVTX  ranges built in ($(NVTX_DIR)),NVTX  no CUDA toolkit found: built without ranges for profilers)'
	$(call say,LINK,$@)
	$(Q)$(CC) $(COMMON) $(LDFLAGS) -o $@ $(OBJ) $(CUDA_OBJ) $(LDLIBS_ALL) $(if $(CUDA_OBJ),$(CUDA_LIBS))
CUDA_SAYS := $(if $(CUDA_OBJ),kernels for $(CUDA_FOR:all=$(CUDA_ALL_SAYS)),$(if \
  $(NVCC),no kernels: no NVIDIA GPU found or not wanted (make cuda builds them all the same),no kernels: no nvcc found))
# Touched when CUDA_FOR changes, so that what is linked follows.
$(B)/.cuda_for: FORCE
	@mkdir -p $(@D); echo '$(CUDA_FOR)' | cmp -s - $@ || echo '$(CUDA_FOR)' > $@

$(B)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(call isa_flags,$*) $(PATHS_$(subst /,_,$*)) -MMD -MP -c -o $@ $<

$(B)/obj/%.o: %.cc
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(CXXFLAGS_ALL) -MMD -MP -c -o $@ $<

# The only object that knows version and paths; rebuilt when the commit changes.
PATHS_harness_machine_paths := $(PATHS_DEF)
$(B)/obj/harness/machine/paths.o: $(B)/.version
PATHS_harness_cli_cmd_doctor = -DKVG_BENCHMARK_VERSION='"$(shell pkg-config --modversion benchmark)"'
$(B)/.version: FORCE
	@mkdir -p $(@D); echo '$(VERSION) $(GIT_SHA) $(GIT_DIRTY) $(PREFIX) $(CURDIR)' | cmp -s - $@ || \
	  echo '$(VERSION) $(GIT_SHA) $(GIT_DIRTY) $(PREFIX) $(CURDIR)' > $@
FORCE:

$(B)/tests/unit/%: $(B)/obj/tests/unit/%.o $(LIB_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(COMMON) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS_ALL)
.SECONDARY: $(TESTS:$(B)/%=$(B)/obj/%.o)

MUTANTS_OBJ := $(patsubst %,$(B)/obj/tests/mutants/%.o,mutants faults one_mutant matrix rules speed)
-include $(OBJ:.o=.d) $(MUTANTS_OBJ:.o=.d) $(TESTS:$(B)/%=$(B)/obj/%.d)

# ---------------------------------------------------------------- CUDA
# $(B)/cuda/WHICH/ holds objects with code for WHICH (see CUDA_FOR). A decode kernel that spills registers or uses
# local memory fails the build: it would be slow, and nothing else would say so.
define cuda_rule
$(B)/cuda/$(1)/%.o: %.cu
	@mkdir -p $$(@D)
	$$(call say,NVCC,$$< ($(1)))
	$$(Q)$$(NVCC) $$(call gencode,$(1)) $$(NVCCFLAGS_ALL) -MMD -MP -c -o $$@ $$< 2>$$(@:.o=.ptxas) || \
	  { cat $$(@:.o=.ptxas) >&2; exit 1; }
	$$(call no_local_memory,$$@)
endef
no_local_memory = $(if $(filter decode_sm%,$(notdir $(1))),@! grep -hE '[1-9][0-9]* bytes (stack frame|spill)' \
  $(1:.o=.ptxas) >&2 || { echo '$(1): a decode kernel uses local memory (see above)' >&2; rm -f $(1); exit 1; })
$(foreach which,$(sort all sm_90a $(filter-out none,$(CUDA_FOR))),$(eval $(call cuda_rule,$(which))))
$(B)/obj/harness/device/cuda/%.o $(B)/obj/tests/gpu/%.o: CFLAGS += -isystem $(CUDA_HOME)/include
-include $(CUDA_C_OBJ:.o=.d) $(wildcard $(B)/cuda/*/*/*/*.d $(B)/obj/tests/gpu/*.d)

# Programs that run on a GPU; tests/gpu/run.sh runs them. build/gpu/NAME is linked from tests/gpu/NAME.cu or .c, the
# kernels, and what GPU_NEEDS_NAME says. They find their libraries as the bundle's kvgauge does.
GPU_PROGRAMS := decode_bench tensor_core_check device_check
GPU_FOR_decode_bench := sm_90a
GPU_FOR_tensor_core_check := sm_90a
GPU_NEEDS_decode_bench := $(call cuda_objects,sm_90a) \
  $(patsubst %,$(B)/obj/%.o,kernels/cuda/plan harness/device/gather_runs harness/inputs/normal_table)
GPU_NEEDS_tensor_core_check := $(patsubst %,$(B)/obj/reference/%.o,tensor_core tensor_core_tile formats formats_row)
GPU_NEEDS_device_check := $(patsubst %.c,$(B)/obj/%.o,$(wildcard tests/gpu/device_check_*.c)) $(call cuda_objects,all) $(LIB_OBJ)
BUNDLE_LINK := -Wl,--disable-new-dtags -Wl,-rpath,'$$ORIGIN/../lib'
define gpu_program
$(B)/gpu/$(1): $(if $(wildcard tests/gpu/$(1).cu),$(B)/cuda/$(or $(GPU_FOR_$(1)),all),$(B)/obj)/tests/gpu/$(1).o $(GPU_NEEDS_$(1))
	@mkdir -p $$(@D)
	$$(call say,LINK,$$@)
	$$(Q)$$(CC) $$(COMMON) $$(LDFLAGS) $$(BUNDLE_LINK) -o $$@ $$^ $$(LDLIBS_ALL) $$(CUDA_LIBS)
endef
$(foreach program,$(GPU_PROGRAMS),$(eval $(call gpu_program,$(program))))

gpu-bench: $(B)/gpu/decode_bench ## compile the Hopper kernels and their check-and-time program (nvcc, no GPU needed)
gpu-check: $(B)/gpu/tensor_core_check ## compile the check of a GPU's FP8 instructions against their models (nvcc)

# Every night other cases: the seed is the day (days since 1970, times 100000), or SEED=; a case that fails prints its own.
nightly: deps-test ## right kernels on random cases under the seed of the day: false alarms, tails (SEED=, CASES=10000)
	@$(MAKE) --no-print-directory -j$$(nproc) CUDA_FOR=$(CUDA_FOR) $(B)/tests/unit/harness/execute/test_false_alarms
	@seed=$(or $(SEED),$$(( $$(date +%s) / 86400 * 100000 ))); echo "KVG_TEST_SEED=$$seed"; \
	  KVG_TEST_SEED=$$seed KVG_TEST_CASES=$(or $(CASES),10000) $(B)/tests/unit/harness/execute/test_false_alarms

asan: deps-test ## the same tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(MAKE) --no-print-directory -j$$(nproc) B=$(B)/asan CUDA_FOR=none OPT='-O1' \
	  SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' \
	  $(B)/asan/kvgauge $(TESTS:$(B)/%=$(B)/asan/%)
	@KVG_TEST_SANITIZED=1 tests/run.sh $(B)/asan

include tests/arm.mk

mutants: $(B)/mutants $(B)/mutants.so ## the right kernel with one fault, again and again: who is caught, and by what
	@OMP_NUM_THREADS=1 $(B)/mutants $(MUTANTS_ARGS) $(B)/mutants.so tests/mutants/mutants.yaml
$(B)/mutants: $(MUTANTS_OBJ) $(LIB_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(COMMON) $(LDFLAGS) -o $@ $^ $(LDLIBS_ALL)
$(B)/mutants.so: $(addprefix tests/mutants/,attention.c attention_reads.c attention_call.c store.c slow.c plugin.c \
                  faults.def slow.def mutant.h attention_row.h)
	@mkdir -p $(@D)
	$(call say,CC,$@)
	$(Q)$(CC) -std=c11 -iquote . -O3 -g -D_GNU_SOURCE -ffp-contract=off $(WARN) -fPIC -shared -o $@ $(filter %.c,$^) -lm
$(B)/obj/tests/mutants/faults.o: tests/mutants/faults.def

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
	install -m 644 harness/cli/kvgauge.1 $(DESTDIR)$(PREFIX)/share/man/man1/kvgauge.1
	printf 'prefix=%s\nincludedir=$${prefix}/include/kvgauge\n\nName: kvgauge\nDescription: kernel ABI of kvgauge\nVersion: %s\nCflags: -I$${includedir}\n' \
	  '$(PREFIX)' '$(VERSION)' > $(DESTDIR)$(PREFIX)/lib/pkgconfig/kvgauge.pc

# A folder that runs where nothing is installed: the programs look for their libraries in ../lib, and every library
# but glibc's own (and the NVIDIA driver's) lies there. With CUDA where there is nvcc; then the programs, suites and
# plug-ins of tests/gpu travel along, and build/bundle/test-gpu runs them. cuBLASLt is opened where it is installed,
# never carried: it is larger than all else together.
GLIBC := linux-vdso|ld-linux|lib(c|m|mvec|dl|pthread|rt|resolv|util|anl|nsl|nss_[a-z]*)\.so|libcuda\.so|libnvidia
BUNDLE := $(B)/bundle
BUNDLE_CUDA := $(if $(NVCC),$(call cuda_objects,all))
BUNDLE_PROGRAMS := $(B)/bundled/kvgauge $(if $(NVCC),$(GPU_PROGRAMS:%=$(B)/gpu/%))
BUNDLE_TESTS := tests/gpu/run.sh $(wildcard tests/gpu/*.yaml tests/mutants/cuda/*.yaml tests/mutants/cuda/*.sh \
                tests/mutants/cuda/*.def)
BUNDLE_PLUGINS := $(if $(NVCC),$(B)/gpu/cuda_mutants.so)

bundle: $(BUNDLE)/.complete ## build/bundle: runs without installed packages; with CUDA (all GPUs) where nvcc is found
$(BUNDLE)/.complete: $(BUNDLE_PROGRAMS) $(BUNDLE_PLUGINS) $(BUNDLE_TESTS) LICENSE \
                     $(wildcard harness/suites/*.yaml harness/inputs/*.h5 plots/*.gp)
	@rm -rf $(BUNDLE) && mkdir -p $(BUNDLE)/{bin,lib} $(BUNDLE)/share/kvgauge/{suites,inputs,plots}
	@cp $(BUNDLE_PROGRAMS) $(BUNDLE)/bin/ && strip -g $(BUNDLE)/bin/*
	@ldd $(BUNDLE_PROGRAMS) | awk '/=> \//{print $$3}' | sort -u | grep -vE '/($(GLIBC))' | \
	  xargs -I{} cp -L {} $(BUNDLE)/lib/
	@cp harness/suites/*.yaml $(BUNDLE)/share/kvgauge/suites/
	@cp harness/inputs/*.h5 $(BUNDLE)/share/kvgauge/inputs/
	@cp plots/*.gp $(BUNDLE)/share/kvgauge/plots/
	@$(if $(NVCC),cp --parents $(BUNDLE_TESTS) $(BUNDLE)/ && cp $(BUNDLE_PLUGINS) $(BUNDLE)/tests/gpu/ && \
	  ln -s tests/gpu/run.sh $(BUNDLE)/test-gpu)
	@cp LICENSE $(BUNDLE)/ && touch $@
	@tar -C $(B) -czf $(BUNDLE).tar.gz bundle
	@echo '  $(if $(NVCC),CUDA  for $(CUDA_ALL_SAYS),CUDA  none: no nvcc found)'
	@du -shL $(BUNDLE) $(BUNDLE).tar.gz | sed 's/^/  /'
$(B)/bundled/kvgauge: $(OBJ) $(BUNDLE_CUDA)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(CC) $(COMMON) $(LDFLAGS) $(BUNDLE_LINK) -o $@ $^ $(LDLIBS_ALL) $(if $(NVCC),$(CUDA_LIBS))
$(B)/gpu/cuda_mutants.so: tests/mutants/cuda/attention.cu $(wildcard tests/mutants/cuda/*.def) kernels/kernel.h
	$(need_nvcc)
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(GENCODE_all) -I. -O3 -lineinfo -std=c++17 -Xcompiler -fPIC -shared -o $@ $<

test-bundle: bundle ## the bundle alone, moved elsewhere, without the machine's libraries
	@tests/bundle.sh $(BUNDLE)
test-gpu: bundle ## every kernel on this machine's GPU (Hopper); build/bundle/test-gpu does it without make
	@$(BUNDLE)/test-gpu $(ARGS)

uninstall: ## remove what install put there
	rm -rf $(DESTDIR)$(PREFIX)/bin/kvgauge $(DESTDIR)$(PREFIX)/include/kvgauge $(DESTDIR)$(PREFIX)/share/kvgauge \
	  $(DESTDIR)$(PREFIX)/share/man/man1/kvgauge.1 $(DESTDIR)$(PREFIX)/lib/pkgconfig/kvgauge.pc

clean: ## remove build/ (results/runs and plots/out stay)
	rm -rf $(B)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{printf "  make %-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# SPDX-License-Identifier: Apache-2.0
#
# kvgauge. The two commands: `make run` (measure this machine) and `make test`. `make help` lists the rest.

SHELL := bash
.DEFAULT_GOAL := all
.DELETE_ON_ERROR:
VERSION := 0.1.0
B ?= build

# Where `make install` puts what; DESTDIR stands before all of them.
PREFIX       ?= /usr/local
prefix       ?= $(PREFIX)
exec_prefix  ?= $(prefix)
bindir       ?= $(exec_prefix)/bin
libdir       ?= $(exec_prefix)/lib
includedir   ?= $(prefix)/include
datarootdir  ?= $(prefix)/share
datadir      ?= $(datarootdir)
mandir       ?= $(datarootdir)/man
pkgconfigdir ?= $(libdir)/pkgconfig

# ---------------------------------------------------------------- compilers and flags
# One short line a file; V=1 shows the commands.
Q := $(if $(V),,@)
say = $(if $(V),,@printf '  %-5s %s\n' '$(1)' '$(2)')
# Each of these may come from the environment or the command line, as may CPPFLAGS, CFLAGS, CXXFLAGS, LDFLAGS and LDLIBS.
CC  := $(if $(filter default,$(origin CC)),gcc,$(CC))
CXX := $(if $(filter default,$(origin CXX)),g++,$(CXX))
PKG_CONFIG ?= pkg-config
INSTALL    ?= install
STRIP      ?= strip
OPT        ?= -O3
SANITIZE   ?=
WERROR     ?=# 1 makes warnings errors: CI and developers
WARN       := -Wall -Wextra $(if $(filter-out 0,$(WERROR)),-Werror)
# In force whatever the user's flags are: an FMA where the source has none, or sums in another order, would change bits
# between machines.
EXACT := -fno-fast-math -fno-math-errno -ffp-contract=off
# The folder of the build enters neither debug information nor __FILE__ (but the line tables of device code: nvcc has no
# such option). PWD: compilers trust it.
NO_PATH := '-ffile-prefix-map=$(CURDIR)=.'
export PWD := $(CURDIR)
# COMMON needs no package. No symbol of a program is exported: a plug-in's function of the same name would be replaced by
# ours, and it needs none of ours.
COMMON = -iquote . -D_GNU_SOURCE $(CPPFLAGS) $(OPT) -g -fopenmp -fvisibility=hidden $(EXACT) $(WARN) $(NO_PATH) $(SANITIZE)
CFLAGS_ALL = -std=c11 $(COMMON) $(PC_CFLAGS) $(NVTX_CFLAGS) $(CFLAGS) $(EXACT)
CXXFLAGS_ALL = -std=c++17 $(COMMON) $(PC_CFLAGS) $(NVTX_CFLAGS) $(CXXFLAGS) $(EXACT)
CFLAGS_PLUGIN = $(CFLAGS_ALL) -fPIC -fvisibility=default
LDLIBS_ALL = $(PC_LIBS) -ldl -lm -lstdc++ -lpthread $(LDLIBS)
LINK = $(CC) -fopenmp $(SANITIZE) $(LDFLAGS)

# pkg-config is asked once, and only when something is compiled. Fedora's HDF5 has no file for it: there the compiler
# finds it without.
PKGS = $(call once,PKGS,$(PKG_CONFIG) --exists hdf5 && echo hdf5; echo jansson yaml-0.1 gsl benchmark)
PC_CFLAGS = $(call once,PC_CFLAGS,$(PKG_CONFIG) --cflags $(PKGS))
PC_LIBS = $(call once,PC_LIBS,$(PKG_CONFIG) --libs $(PKGS)) -lhdf5_hl -lhdf5
# once NAME,COMMAND: what COMMAND prints. It is run once.
once = $(if $(filter undefined,$(origin $(1)_)),$(eval $(1)_ := $(shell $(2)))$(if \
  $(filter-out 0,$(.SHELLSTATUS)),$(error packages are missing (see above): make deps-run installs them or names them)))$($(1)_)

# ---------------------------------------------------------------- which build this is
# Of the checkout whose top is this folder, or else of the archive that git made; a repository around us says nothing.
GIT := $(shell [ "$$(git rev-parse --show-toplevel 2>/dev/null)" = "$$(pwd -P)" ] && git log -1 --abbrev=12 --format='%h %ct')
COMMIT := $(or $(GIT),$(shell sed -nE 's/^([0-9a-f]{12})[0-9a-f]* ([0-9]+)$$/\1 \2/p' harness/machine/commit.txt))
GIT_SHA := $(or $(word 1,$(COMMIT)),unknown)
GIT_DIRTY := $(if $(GIT),$(shell git diff --quiet HEAD -- && echo 0 || echo 1),0)
# The time that an archive of ours carries.
export SOURCE_DATE_EPOCH ?= $(or $(word 2,$(COMMIT)),0)

# ---------------------------------------------------------------- CUDA toolkit
CUDA_HOME ?= $(shell d=$$(dirname $$(dirname $$(readlink -f $$(command -v nvcc 2>/dev/null || echo /usr/local/cuda/bin/nvcc)))); [ -d $$d/include ] && echo $$d)
NVTX_DIR  := $(if $(CUDA_HOME),$(shell d=$$(dirname $$(find -L $(CUDA_HOME)/include $(CUDA_HOME)/targets -name nvToolsExt.h -path '*nvtx3*' 2>/dev/null | head -1) 2>/dev/null); [ -n "$$d" ] && dirname $$d))
NVTX_CFLAGS := $(if $(filter-out . /,$(NVTX_DIR)),-DKVG_HAVE_NVTX=1 -isystem $(NVTX_DIR))
NVCC      ?= $(if $(CUDA_HOME),$(wildcard $(CUDA_HOME)/bin/nvcc))
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
NVCCFLAGS_ALL := -I. -O3 -lineinfo -std=c++17 --diag-suppress 128 $(if $(filter-out 0,$(WERROR)),-Werror all-warnings) \
                 $(addprefix -Xcompiler ,$(WARN) $(NO_PATH) -fopenmp) -Xptxas -v $(NVCCFLAGS)
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
SRC_C   := $(call sources_for,$(CPU_ARCH),$(sort $(wildcard kernels/*.c kernels/cpu/*.c kernels/cuda/*.c reference/*.c \
             harness/*/*.c results/*.c plots/*.c)))
SRC_CXX := harness/measure/bench_shim.cc
MAIN    := harness/cli/main.c
OBJ     := $(SRC_C:%.c=$(B)/obj/%.o) $(SRC_CXX:%.cc=$(B)/obj/%.o)
LIB_OBJ := $(filter-out $(B)/obj/$(MAIN:%.c=%.o),$(OBJ))
# CUDA: the host's side in C; on the device's side the decode kernels use instructions of Hopper, which exist for
# sm_90a alone (elsewhere their `supports` says so), and all else is plain CUDA C.
CUDA_C_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(sort $(wildcard harness/device/cuda/*.c)))
CUDA_HOPPER := $(sort $(wildcard kernels/cuda/decode_*.cu))
CUDA_PLAIN  := $(filter-out $(CUDA_HOPPER),$(sort $(wildcard kernels/cuda/*.cu harness/device/cuda/*.cu)))
# cuda_objects CUDA_FOR: what a program with code for those GPUs is linked from, beside LIB_OBJ.
cuda_objects = $(CUDA_HOPPER:%.cu=$(B)/cuda/sm_90a/%.o) $(CUDA_PLAIN:%.cu=$(B)/cuda/$(1)/%.o) $(CUDA_C_OBJ)
CUDA_OBJ := $(if $(filter-out none,$(CUDA_FOR)),$(call cuda_objects,$(CUDA_FOR)))
# tests/unit/ has the folders of the sources; TESTS is every program, build/tests/unit/FOLDER/test_NAME.
TESTS   := $(patsubst %.c,$(B)/%,$(sort $(wildcard $(addprefix tests/unit/,*/test_*.c harness/*/test_*.c))))
ifneq ($(CPU_ARCH),x86_64) # the model of AMX computes with AVX-512
TESTS   := $(filter-out %/test_amx_model,$(TESTS))
endif
# TEST= chooses tests by name, by one or more bash patterns; only what they need is built.
TEST    ?=
TESTS_ASKED = $(if $(TEST),$(filter $(addprefix %/,$(shell tests/run.sh --list $(B) $(TEST:%='%'))),$(TESTS)),$(TESTS))
# A build folder outside the source tree has a link to it, for the programs to find data (harness/machine/paths.h).
SOURCE_LINK := $(if $(filter $(CURDIR)/%,$(abspath $(B))),,$(B)/source)
PATHS_DEF := -DKVG_DATA_DIR='"$(datadir)/kvgauge"' -DKVG_VERSION='"$(VERSION)"' -DKVG_GIT_SHA='"$(GIT_SHA)"' \
             -DKVG_GIT_DIRTY=$(GIT_DIRTY)

.PHONY: all cpu cuda run test test-arm test-gpu test-bundle deps-run deps-test asan mutants clean install uninstall help lint \
        bundle gpu-bench gpu-check nightly nightly-cases nightly-mutants nightly-long nightly-clang nightly-reproducible FORCE

all: $(B)/kvgauge ## build build/kvgauge (with CUDA for this machine's GPU, where nvcc and a GPU are found)
cpu: $(B)/kvgauge ## build without CUDA
cuda: $(if $(NVCC),$(B)/kvgauge) ## build with CUDA for sm_80, sm_89, sm_90a, sm_100 and PTX for later ones (nvcc, no GPU needed)
	$(need_nvcc)
need_nvcc = $(if $(NVCC),,@echo 'no nvcc in PATH or /usr/local/cuda/bin: install the CUDA toolkit, or set CUDA_HOME' >&2; exit 1)

include reference/reference.mk

# Packages: .ci/packages.sh has the names on each distribution. APT=no: nothing is installed, what is missing is named.
deps-run:
	@CC='$(CC)' CXX='$(CXX)' PKG_CONFIG='$(PKG_CONFIG)' APT='$(APT)' .ci/packages.sh build run
deps-test:
	@CC='$(CC)' CXX='$(CXX)' PKG_CONFIG='$(PKG_CONFIG)' APT='$(APT)' .ci/packages.sh build run test

# A second make, so that what apt has just brought is seen. `-j`: as many jobs as there are CPUs.
SUBMAKE = $(MAKE) --no-print-directory -j$$(nproc)
run: deps-run ## measure this machine: suite quick, HDF5 file and plots (ARGS=)
	@$(SUBMAKE) CUDA_FOR=$(CUDA_FOR) $(B)/kvgauge
	@$(B)/kvgauge run --suite quick $(ARGS)

test: deps-test ## unit, command-line and file-format tests (TEST='test_table* run_*' some; JUNIT=FILE; APT=no)
	@$(SUBMAKE) CUDA_FOR=$(CUDA_FOR) $(B)/kvgauge $(B)/libkvgref.a $(TESTS_ASKED)
	@JUNIT='$(JUNIT)' tests/run.sh $(B) $(TEST:%='%')

$(B)/kvgauge: $(OBJ) $(CUDA_OBJ) $(B)/.link | $(SOURCE_LINK)
	@mkdir -p $(@D)
	@echo '  CUDA  $(CUDA_SAYS)'
	@echo '  $(if $(NVTX_CFLAGS),NVTX  ranges built in ($(NVTX_DIR)),NVTX  no CUDA toolkit found: built without ranges for profilers)'
	$(call say,LINK,$@)
	$(Q)$(LINK) -o $@ $(OBJ) $(CUDA_OBJ) $(LDLIBS_ALL) $(if $(CUDA_OBJ),$(CUDA_LIBS))
CUDA_SAYS := $(if $(CUDA_OBJ),kernels for $(CUDA_FOR:all=$(CUDA_ALL_SAYS)),$(if \
  $(NVCC),no kernels: no NVIDIA GPU found or not wanted (make cuda builds them all the same),no kernels: no nvcc found))
$(B)/source:
	@mkdir -p $(@D) && ln -sfn '$(CURDIR)' $@

# Stamps: each file holds TEXT and is written again when that changes, so that what was made with it is made again.
$(B)/.flags: export TEXT = $(filter-out ccache -Werror $(NO_PATH),$(shell $(CC) --version | head -1) \
  $(CC) $(COMMON) $(CFLAGS) $(CXX) $(CXXFLAGS))
$(B)/.nvcc: export TEXT = $(filter-out -Werror all-warnings $(NO_PATH),$(NVCC) $(NVCCFLAGS_ALL))
$(B)/.link: export TEXT = $(LINK) $(LDLIBS_ALL) $(CUDA_FOR)
$(B)/.version: export TEXT = $(PATHS_DEF)
$(addprefix $(B)/,.flags .nvcc .link .version): FORCE
	@mkdir -p $(@D); printf '%s\n' "$$TEXT" | cmp -s - $@ || printf '%s\n' "$$TEXT" > $@
FORCE:

$(B)/obj/%.o: %.c $(B)/.flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_ALL) $(call isa_flags,$*) $(DEF_$(subst /,_,$*)) $(CUDA_INCLUDE) -MMD -MP -c -o $@ $<

$(B)/obj/%.o: %.cc $(B)/.flags
	@mkdir -p $(@D)
	$(call say,CXX,$<)
	$(Q)$(CXX) $(CXXFLAGS_ALL) -MMD -MP -c -o $@ $<

# Definitions for one object each: only this one knows version and places, only that one a library's version.
DEF_harness_machine_paths := $(PATHS_DEF)
$(B)/obj/harness/machine/paths.o: $(B)/.version
DEF_harness_cli_cmd_doctor = -DKVG_BENCHMARK_VERSION='"$(shell $(PKG_CONFIG) --modversion benchmark)"'

# Everything but main, for test programs: the linker takes what a program needs, in a third of the time.
$(B)/libkvgauge.a: $(LIB_OBJ)
	$(Q)rm -f $@ && $(AR) rcsTD $@ $^

# Test programs are compiled for a short build; what they test is not. One of them computes much itself.
$(B)/obj/tests/unit/%.o: private OPT = $(if $(findstring exhaustive,$@),-O3,-O1)
$(B)/tests/unit/%: $(B)/obj/tests/unit/%.o $(B)/libkvgauge.a $(B)/.link | $(SOURCE_LINK)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) -lcmocka $(LDLIBS_ALL)
.SECONDARY: $(TESTS:$(B)/%=$(B)/obj/%.o)

MUTANTS_OBJ := $(patsubst %,$(B)/obj/tests/mutants/%.o,mutants faults one_mutant matrix rules speed)
MUTANTS_SO_OBJ := $(patsubst %,$(B)/plugin/tests/mutants/%.o,attention attention_reads attention_call store slow plugin)
-include $(OBJ:.o=.d) $(MUTANTS_OBJ:.o=.d) $(MUTANTS_SO_OBJ:.o=.d) $(TESTS:$(B)/%=$(B)/obj/%.d)

# ---------------------------------------------------------------- CUDA
# $(B)/cuda/WHICH/ holds objects with code for WHICH (see CUDA_FOR). A decode kernel that spills registers or uses
# local memory fails the build: it would be slow, and nothing else would say so.
define cuda_rule
$(B)/cuda/$(1)/%.o: %.cu $(B)/.nvcc
	@mkdir -p $$(@D)
	$$(call say,NVCC,$$< ($(1)))
	$$(Q)$$(NVCC) $$(call gencode,$(1)) $$(NVCCFLAGS_ALL) -MMD -MP -c -o $$@ $$< 2>$$(@:.o=.ptxas) || \
	  { cat $$(@:.o=.ptxas) >&2; exit 1; }
	$$(call no_local_memory,$$@)
endef
no_local_memory = $(if $(filter decode_sm%,$(notdir $(1))),@! grep -hE '[1-9][0-9]* bytes (stack frame|spill)' \
  $(1:.o=.ptxas) >&2 || { echo '$(1): a decode kernel uses local memory (see above)' >&2; rm -f $(1); exit 1; })
$(foreach which,$(sort all sm_90a $(filter-out none,$(CUDA_FOR))),$(eval $(call cuda_rule,$(which))))
$(B)/obj/harness/device/cuda/%.o $(B)/obj/tests/gpu/%.o: CUDA_INCLUDE = -isystem $(CUDA_HOME)/include
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
	$$(Q)$$(LINK) $$(BUNDLE_LINK) -o $$@ $$(filter %.o,$$^) $$(LDLIBS_ALL) $$(CUDA_LIBS)
endef
$(foreach program,$(GPU_PROGRAMS),$(eval $(call gpu_program,$(program))))

gpu-bench: $(B)/gpu/decode_bench ## compile the Hopper kernels and their check-and-time program (nvcc, no GPU needed)
gpu-check: $(B)/gpu/tensor_core_check ## compile the check of a GPU's FP8 instructions against their models (nvcc)

# What takes too long for every change. Each part runs, even after one that failed. Other parts add themselves to NIGHTLY.
NIGHTLY := nightly-cases nightly-mutants nightly-long nightly-clang nightly-reproducible
nightly: deps-test ## all nightly parts: random cases of the day (SEED= CASES=), long tests, clang, two equal builds
	@failed=; for part in $(NIGHTLY); do echo "== $$part"; $(MAKE) --no-print-directory $$part || failed="$$failed $$part"; done; \
	  [ -z "$$failed" ] || { echo "failed:$$failed" >&2; exit 1; }
# Every night other cases: the seed is the day (days since 1970, times 100000), or SEED=; a case that fails prints its own.
FALSE_ALARMS := $(B)/tests/unit/harness/execute/test_false_alarms
RANDOM_CASES := $(B)/tests/unit/harness/execute/test_random_cases
nightly-cases: ## right kernels on random cases under the seed of the day: false alarms, tails (SEED=, CASES=10000)
	@$(SUBMAKE) CUDA_FOR=$(CUDA_FOR) $(FALSE_ALARMS) $(RANDOM_CASES)
	@seed=$(or $(SEED),$$(( $$(date +%s) / 86400 * 100000 ))); echo "KVG_TEST_SEED=$$seed"; \
	  export KVG_TEST_SEED=$$seed KVG_TEST_CASES=$(or $(CASES),10000); $(FALSE_ALARMS) && $(RANDOM_CASES)
nightly-mutants: mutants ## every mutant on every case
nightly-long: ## the tests that look at more with KVG_TEST_LONG=1
	@$(SUBMAKE) CUDA_FOR=$(CUDA_FOR) $(TESTS)
	@KVG_TEST_LONG=1 tests/run.sh $(B) $$(grep -rl KVG_TEST_LONG tests/unit | xargs -n1 basename -s .c)
nightly-clang: ## build with clang, warnings are errors, and run the tests
	@$(MAKE) --no-print-directory B=$(B)/clang CC=clang CXX=clang++ WERROR=1 CUDA_FOR=none test
nightly-reproducible: ## two builds in two folders give the same program (without CUDA), byte for byte
	@tests/reproducible.sh $(B)/reproducible

asan: deps-test ## the same tests under AddressSanitizer and UndefinedBehaviorSanitizer
	@$(SUBMAKE) B=$(B)/asan CUDA_FOR=none OPT='-O1' \
	  SANITIZE='-fsanitize=address,undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' \
	  $(B)/asan/kvgauge $(B)/asan/libkvgref.a $(TESTS_ASKED:$(B)/%=$(B)/asan/%)
	@KVG_TEST_SANITIZED=1 JUNIT='$(JUNIT)' tests/run.sh $(B)/asan $(TEST:%='%')

include tests/arm.mk

mutants: $(B)/mutants $(B)/mutants.so ## the right kernel with one fault, again and again: who is caught, and by what
	@OMP_NUM_THREADS=1 $(B)/mutants $(MUTANTS_ARGS) $(B)/mutants.so tests/mutants/mutants.yaml
$(B)/mutants: $(MUTANTS_OBJ) $(B)/libkvgauge.a $(B)/.link | $(SOURCE_LINK)
	$(call say,LINK,$@)
	$(Q)$(LINK) -o $@ $(filter %.o %.a,$^) $(LDLIBS_ALL)
$(B)/mutants.so: $(MUTANTS_SO_OBJ)
	$(call say,LINK,$@)
	$(Q)$(CC) $(LDFLAGS) -shared -o $@ $^ -lm
$(B)/plugin/%.o: %.c $(B)/.flags
	@mkdir -p $(@D)
	$(call say,CC,$<)
	$(Q)$(CC) $(CFLAGS_PLUGIN) -MMD -MP -c -o $@ $<

C_FILES = $(sort $(shell find kernels harness reference results plots tests -regex '.*\.\(c\|h\|cc\|cu\|cuh\|def\)'))
lint: ## clang-format and cppcheck
	@clang-format --dry-run -Werror $(filter-out %.def,$(C_FILES))
	@cppcheck --quiet --std=c11 --enable=warning,performance,portability --error-exitcode=1 \
	  --inline-suppr --suppress=missingIncludeSystem -I. -D_GNU_SOURCE -D__cppcheck__ $(filter %.c,$(C_FILES))

# ---------------------------------------------------------------- install
DATA = $(datadir)/kvgauge
# DESTDIR and the folders stand in quotes: a blank in one must not name another path, which uninstall would remove.
define to_install
'$(DESTDIR)$(1)'
endef
install: $(B)/kvgauge ## program, kernel ABI header, suites, data, man page, pkg-config file (prefix= libdir= ... DESTDIR=)
	$(INSTALL) -d $(call to_install,$(bindir)) $(call to_install,$(includedir)/kvgauge) $(call to_install,$(pkgconfigdir)) \
	  $(call to_install,$(mandir)/man1) $(call to_install,$(DATA)/suites) $(call to_install,$(DATA)/inputs) \
	  $(call to_install,$(DATA)/plots)
	$(INSTALL) -m 755 $(B)/kvgauge $(call to_install,$(bindir)/kvgauge)
	$(INSTALL) -m 644 kernels/kernel.h kernels/fp8.h $(call to_install,$(includedir)/kvgauge/)
	$(INSTALL) -m 644 harness/suites/*.yaml $(call to_install,$(DATA)/suites/)
	$(INSTALL) -m 644 harness/inputs/*.h5 $(call to_install,$(DATA)/inputs/)
	$(INSTALL) -m 644 plots/*.gp $(call to_install,$(DATA)/plots/)
	$(INSTALL) -m 644 harness/cli/kvgauge.1 $(call to_install,$(mandir)/man1/kvgauge.1)
	printf '%s\n' 'prefix=$(prefix)' 'includedir=$(includedir:$(prefix)/%=$${prefix}/%)/kvgauge' '' 'Name: kvgauge' \
	  'Description: kernel ABI of kvgauge' 'Version: $(VERSION)' 'Cflags: -I$${includedir}' \
	  > $(call to_install,$(pkgconfigdir)/kvgauge.pc)
uninstall: ## remove what install put there
	rm -rf $(call to_install,$(bindir)/kvgauge) $(call to_install,$(includedir)/kvgauge) $(call to_install,$(DATA)) \
	  $(call to_install,$(mandir)/man1/kvgauge.1) $(call to_install,$(pkgconfigdir)/kvgauge.pc)

# ---------------------------------------------------------------- bundle
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

# For authors of kernels, who have the bundle and no source tree: what a plug-in is compiled with, and what to read.
BUNDLE_TEXTS := README.md results/SCHEMA.md kernels/README.md kernels/kernel.h kernels/fp8.h harness/cli/kvgauge.1 \
                $(wildcard kernels/example_plugin/*)

bundle: $(BUNDLE)/.complete ## build/bundle: runs without installed packages; with CUDA (all GPUs) where nvcc is found
$(BUNDLE)/.complete: $(BUNDLE_PROGRAMS) $(BUNDLE_PLUGINS) $(BUNDLE_TESTS) LICENSE $(BUNDLE_TEXTS) \
                     $(wildcard harness/suites/*.yaml harness/inputs/*.h5 plots/*.gp)
	@rm -rf $(BUNDLE) && mkdir -p $(BUNDLE)/{bin,lib} $(BUNDLE)/share/kvgauge/{suites,inputs,plots}
	@cp $(BUNDLE_PROGRAMS) $(BUNDLE)/bin/ && $(STRIP) -g $(BUNDLE)/bin/*
	@ldd $(BUNDLE_PROGRAMS) | awk '/=> \//{print $$3}' | sort -u | grep -vE '/($(GLIBC))' | \
	  xargs -I{} cp -L {} $(BUNDLE)/lib/
	@cp harness/suites/*.yaml $(BUNDLE)/share/kvgauge/suites/
	@cp harness/inputs/*.h5 $(BUNDLE)/share/kvgauge/inputs/
	@cp plots/*.gp $(BUNDLE)/share/kvgauge/plots/
	@$(if $(NVCC),cp --parents $(BUNDLE_TESTS) $(BUNDLE)/ && cp $(BUNDLE_PLUGINS) $(BUNDLE)/tests/gpu/ && \
	  ln -s tests/gpu/run.sh $(BUNDLE)/test-gpu)
	@cp --parents $(BUNDLE_TEXTS) $(BUNDLE)/
	@cp LICENSE $(BUNDLE)/ && touch $@
	@tar -C $(B) --sort=name --mtime=@$$SOURCE_DATE_EPOCH --owner=0 --group=0 --numeric-owner --mode=u+rw,go+rX,go-w \
	  -I 'gzip -9n' -cf $(BUNDLE).tar.gz bundle
	@echo '  $(if $(NVCC),CUDA  for $(CUDA_ALL_SAYS),CUDA  none: no nvcc found)'
	@du -shL $(BUNDLE) $(BUNDLE).tar.gz | sed 's/^/  /'
$(B)/bundled/kvgauge: $(OBJ) $(BUNDLE_CUDA) $(B)/.link
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(LINK) $(BUNDLE_LINK) -o $@ $(filter %.o,$^) $(LDLIBS_ALL) $(if $(NVCC),$(CUDA_LIBS))
$(B)/gpu/cuda_mutants.so: tests/mutants/cuda/attention.cu $(wildcard tests/mutants/cuda/*.def) kernels/kernel.h
	$(need_nvcc)
	@mkdir -p $(@D)
	$(call say,NVCC,$<)
	$(Q)$(NVCC) $(GENCODE_all) -I. -O3 -lineinfo -std=c++17 -Xcompiler -fPIC -shared -o $@ $<

test-bundle: bundle ## the bundle alone, moved elsewhere, without the machine's libraries
	@tests/bundle.sh $(BUNDLE)
test-gpu: bundle ## every kernel on this machine's GPU (Hopper); build/bundle/test-gpu does it without make
	@$(BUNDLE)/test-gpu $(ARGS)

clean: ## remove build/ (results/runs and plots/out stay)
	rm -rf $(B)

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## /{name[++n] = $$1; text[n] = $$2; if (length($$1) > w) w = length($$1)} \
	  END {for (i = 1; i <= n; i++) printf "  make %-*s  %s\n", w, name[i], text[i]}' $(filter-out %.d,$(MAKEFILE_LIST))

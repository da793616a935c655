# SPDX-License-Identifier: Apache-2.0
#
# arm.mk: compiles reference/ and kernels/ for AArch64 and runs their unit tests under QEMU, on a machine of another
# architecture. The rest of kvgauge is left out: it needs libraries. On an Arm machine `make test` tests all of it.

ARM_CC   ?= aarch64-linux-gnu-gcc
ARM_QEMU ?= qemu-aarch64-static
ARM_SRC  := $(call sources_for,aarch64,$(wildcard kernels/*.c kernels/cpu/*.c reference/*.c)) \
            harness/verify/bounds.c harness/prepare/dtypes.c
ARM_OBJ  := $(ARM_SRC:%.c=$(B)/arm/obj/%.o)
ARM_TESTS := $(patsubst %.c,$(B)/arm/%,$(wildcard tests/unit/reference/test_*.c) \
  $(addprefix tests/unit/kernels/,test_kernel_fp8.c test_kernels_attention.c test_kernels_store.c))
ARM_RUNS := $(ARM_TESTS:%=%.run)

test-arm: ## reference and CPU kernels compiled for Arm, their unit tests under QEMU (Debian packages for arm64)
	@APT='$(APT)' .ci/packages.sh build arm
	@$(MAKE) --no-print-directory -k -j$$(nproc) $(ARM_RUNS)
NIGHTLY += test-arm
# For CI: everything is compiled and linked for Arm; three short tests run, the NEON store kernel's among them.
test-arm-smoke: ## the same, compiled as a whole, but with three short tests run
	@APT='$(APT)' .ci/packages.sh build arm
	@$(MAKE) --no-print-directory -j$$(nproc) $(ARM_TESTS)
	@$(MAKE) --no-print-directory $(filter %/test_formats.run %/test_kernel_fp8.run %/test_kernels_store.run,$(ARM_RUNS))
.PHONY: test-arm-smoke
# QEMU is about as slow as a sanitizer, so the exhaustive tests are reduced in the same way.
.PHONY: $(ARM_RUNS)
$(ARM_RUNS): %.run: %
	@start=$$SECONDS; KVG_TEST_SANITIZED=1 $(ARM_QEMU) $< > $<.log 2>&1 || { cat $<.log; echo 'FAIL  $(<F)'; exit 1; }; \
	  printf 'ok    %-44s %5d s\n' $(<F) $$((SECONDS - start))

$(B)/arm/obj/%.o: %.c $(B)/.flags
	@mkdir -p $(@D)
	$(call say,ARM,$<)
	$(Q)$(ARM_CC) -std=c11 $(COMMON) -ffunction-sections $(CFLAGS) $(EXACT) -MMD -MP -c -o $@ $<
# Functions that no test calls are dropped, and with them the calls from bounds.c to GSL.
$(B)/arm/tests/%: $(B)/arm/obj/tests/%.o $(ARM_OBJ)
	@mkdir -p $(@D)
	$(call say,LINK,$@)
	$(Q)$(ARM_CC) $(COMMON) -Wl,--gc-sections -o $@ $^ -lcmocka -lm -ldl
.SECONDARY: $(ARM_OBJ) $(ARM_TESTS:$(B)/arm/%=$(B)/arm/obj/%.o)
-include $(ARM_OBJ:.o=.d) $(ARM_TESTS:$(B)/arm/%=$(B)/arm/obj/%.d)

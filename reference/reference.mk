# SPDX-License-Identifier: Apache-2.0
#
# The reference as a library: $(B)/libkvgref.a, its public headers and kvgref.pc. Included by the Makefile.
#
# The archive holds the same objects as kvgauge. They are compiled without the flags of the packages that the rest
# of the project needs, and position-independent, so that a shared library can be linked from the archive as well.
# -fno-semantic-interposition keeps calls inside a file direct, as they are without -fPIC.
# A public header includes public headers only, by their quoted names, so they work from any one folder.
REFERENCE_HEADERS := $(addprefix reference/,attention.h attention_predict.h attention_shares.h formats.h paged.h \
                       scales.h tensor_core.h)
REFERENCE_OBJ := $(patsubst %.c,$(B)/obj/%.o,$(sort $(wildcard reference/*.c)))
$(REFERENCE_OBJ): private CFLAGS_ALL = -std=c11 $(COMMON) -fPIC -fno-semantic-interposition $(CFLAGS) $(EXACT)

.PHONY: lib install-reference uninstall-reference
lib: $(B)/libkvgref.a ## build build/libkvgref.a, the reference as a library (needs no packages)
all: $(B)/libkvgref.a

$(B)/libkvgref.a: $(REFERENCE_OBJ)
	$(call say,AR,$@)
	$(Q)rm -f $@ && $(AR) rcsD $@ $^

# No shared library is installed, so the Libs of kvgref.pc name what the archive itself needs.
install: install-reference
install-reference: $(B)/libkvgref.a
	$(INSTALL) -d '$(DESTDIR)$(libdir)' '$(DESTDIR)$(pkgconfigdir)' '$(DESTDIR)$(includedir)/kvgref'
	$(INSTALL) -m 644 $(B)/libkvgref.a '$(DESTDIR)$(libdir)/'
	$(INSTALL) -m 644 $(REFERENCE_HEADERS) '$(DESTDIR)$(includedir)/kvgref/'
	sed -e 's|@prefix@|$(prefix)|; s|@version@|$(VERSION)|; s|@libdir@|$(libdir:$(prefix)/%=$${prefix}/%)|' \
	  -e 's|@includedir@|$(includedir:$(prefix)/%=$${prefix}/%)|' reference/kvgref.pc.in \
	  > '$(DESTDIR)$(pkgconfigdir)/kvgref.pc'

uninstall: uninstall-reference
uninstall-reference:
	rm -rf '$(DESTDIR)$(includedir)/kvgref' '$(DESTDIR)$(libdir)/libkvgref.a' '$(DESTDIR)$(pkgconfigdir)/kvgref.pc'

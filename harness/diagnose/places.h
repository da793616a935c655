/* SPDX-License-Identifier: Apache-2.0
 *
 * places.h: where the elements of a call lie in the buffers that its kernel is given, and where a kernel looks
 * that computes a stride from something else. Private to the room.
 */
#ifndef KVG_HARNESS_DIAGNOSE_PLACES_H
#define KVG_HARNESS_DIAGNOSE_PLACES_H

#include "harness/prepare/prepared.h"
#include "suppositions.h"

/* A row of head_dim elements. */
struct kvg_place {
    const void *buffer;
    int64_t at; /* index of dim 0 in `buffer`; -1 if the row does not lie in it */
};

/* Q of a token, as codes on path fp8. */
struct kvg_place kvg_place_of_query(const struct kvg_prepared *p, enum kvg_supposition what, int64_t token,
                                    int64_t head);
/* K (is_v 0) or V of a slot of a page. */
struct kvg_place kvg_place_of_key(const struct kvg_prepared *p, enum kvg_supposition what, int is_v,
                                  int64_t page, int64_t slot, int64_t head);

/* An element of the output. */
struct kvg_element {
    int64_t token, head, dim; /* token -1: none */
};
/* The element that a kernel with wrong strides writes to the place of an element of `out`. Of several that it
 * writes there this is the last, if tokens are computed in their order. */
struct kvg_element kvg_element_in_out(const struct kvg_prepared *p, enum kvg_supposition what,
                                      const struct kvg_element *place);
/* The same for the lse; dim is 0. */
struct kvg_element kvg_element_in_lse(const struct kvg_prepared *p, enum kvg_supposition what,
                                      const struct kvg_element *place);

#endif

/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checks.c: the ratio of an error to what is allowed, where numbers are missing or infinite.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include "harness/verify/bounds.h"

static void test_ratio(void **state)
{
    (void)state;
    static const struct {
        double got, reference, allowed, ratio;
    } expected[] = {
        {1.5, 1.0, 0.25, 2.0},
        {1.0, 1.5, 0.25, 2.0},
        {1.25, 1.0, 0.25, 1.0},
        {0.0, 0.0, 0.0, 0.0}, /* 0/0 */
        {3.0, 3.0, 0.0, 0.0},
        {3.0, 2.0, 0.0, INFINITY}, /* x/0 */
        {3.0, 2.0, INFINITY, 0.0}, /* x/infinity */
        {3.0, INFINITY, INFINITY, 0.0},
        {3.0, -INFINITY, 1.0, INFINITY},
        {NAN, 1.0, 1.0, INFINITY},
        {NAN, 1.0, INFINITY, INFINITY},
        {NAN, NAN, 0.0, INFINITY},
        {1.0, NAN, 1.0, INFINITY},
        {1.0, NAN, INFINITY, INFINITY},
        {1.0, 1.0, NAN, INFINITY},
        {1.0, 2.0, NAN, INFINITY},
        {INFINITY, 1.0, 1.0, INFINITY},
        {INFINITY, 1.0, INFINITY, INFINITY},
        {INFINITY, INFINITY, 1.0, INFINITY},
        {-INFINITY, -INFINITY, 0.0, INFINITY},
    };
    for (size_t i = 0; i < sizeof expected / sizeof expected[0]; i++) {
        const double ratio = kvg_bound_ratio(expected[i].got, expected[i].reference, expected[i].allowed);
        if (!(ratio == expected[i].ratio))
            fail_msg("%g against %g, allowed %g: %g, expected %g", expected[i].got, expected[i].reference,
                     expected[i].allowed, ratio, expected[i].ratio);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_ratio)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

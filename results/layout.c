/* SPDX-License-Identifier: Apache-2.0
 *
 * layout.c: see layout.h.
 */
#include "layout.h"

#include <math.h>

void kvg_hdf5_quiet_begin(struct kvg_hdf5_quiet *quiet)
{
    H5Eget_auto2(H5E_DEFAULT, &quiet->function, &quiet->data);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
}

void kvg_hdf5_quiet_end(const struct kvg_hdf5_quiet *quiet)
{
    H5Eset_auto2(H5E_DEFAULT, quiet->function, quiet->data);
}

hid_t kvg_hdf5_string_type(void)
{
    hid_t type = H5Tcopy(H5T_C_S1);
    if (type >= 0 && (H5Tset_size(type, H5T_VARIABLE) < 0 || H5Tset_cset(type, H5T_CSET_UTF8) < 0)) {
        H5Tclose(type);
        return H5I_INVALID_HID;
    }
    return type;
}

int kvg_hdf5_put_attribute(hid_t object, const char *name, hid_t type, hid_t space, const void *data)
{
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    int failed = attribute < 0 || H5Awrite(attribute, type, data) < 0;
    if (attribute >= 0)
        H5Aclose(attribute);
    return failed ? -1 : 0;
}

int kvg_hdf5_put_scalar(hid_t object, const char *name, hid_t type, const void *data)
{
    hid_t space = H5Screate(H5S_SCALAR);
    int failed = space < 0 || kvg_hdf5_put_attribute(object, name, type, space, data);
    if (space >= 0)
        H5Sclose(space);
    return failed ? -1 : 0;
}

int kvg_hdf5_put_number(hid_t object, const char *name, double number)
{
    const int64_t whole = fabs(number) < 0x1p53 ? (int64_t)number : 0;
    const int is_whole = (double)whole == number && !(whole == 0 && signbit(number));
    return is_whole ? kvg_hdf5_put_scalar(object, name, H5T_NATIVE_INT64, &whole)
                    : kvg_hdf5_put_scalar(object, name, H5T_NATIVE_DOUBLE, &number);
}

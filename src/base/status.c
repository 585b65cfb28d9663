/* SPDX-License-Identifier: Apache-2.0 */
#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const char *brim_status_name(brim_status status)
{
    switch (status) {
    case BRIM_OK:
        return "BRIM_OK";
    case BRIM_E_ARGUMENT:
        return "BRIM_E_ARGUMENT";
    case BRIM_E_NO_MEMORY:
        return "BRIM_E_NO_MEMORY";
    case BRIM_E_IO:
        return "BRIM_E_IO";
    case BRIM_E_FORMAT:
        return "BRIM_E_FORMAT";
    case BRIM_E_UNSUPPORTED:
        return "BRIM_E_UNSUPPORTED";
    case BRIM_E_MISSING:
        return "BRIM_E_MISSING";
    case BRIM_E_CONTEXT:
        return "BRIM_E_CONTEXT";
    case BRIM_E_SHAPE:
        return "BRIM_E_SHAPE";
    case BRIM_E_DTYPE:
        return "BRIM_E_DTYPE";
    case BRIM_E_STRIDE:
        return "BRIM_E_STRIDE";
    case BRIM_E_ALIGNMENT:
        return "BRIM_E_ALIGNMENT";
    case BRIM_E_WORKSPACE:
        return "BRIM_E_WORKSPACE";
    case BRIM_E_OFFSETS:
        return "BRIM_E_OFFSETS";
    case BRIM_E_RANGE:
        return "BRIM_E_RANGE";
    case BRIM_E_NOT_FINITE:
        return "BRIM_E_NOT_FINITE";
    case BRIM_E_DEVICE:
        return "BRIM_E_DEVICE";
    case BRIM_E_DRIVER:
        return "BRIM_E_DRIVER";
    case BRIM_E_ARCH:
        return "BRIM_E_ARCH";
    case BRIM_E_CANCELLED:
        return "BRIM_E_CANCELLED";
    }
    return "BRIM_E_UNKNOWN";
}

brim_status brim_fail(brim_error *err, brim_status status, const char *fmt, ...)
{
    if (!err) return status;
    err->status = status;
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(err->text, sizeof err->text, fmt, ap);
    va_end(ap);
    if (n < 0) err->text[0] = '\0';
    size_t len = strlen(err->text);
    if ((size_t)n > len) { /* cut: drop a partial UTF-8 sequence at the end */
        size_t start = len;
        while (start > 0 && ((unsigned char)err->text[start - 1] & 0xC0) == 0x80) start--;
        if (start > 0 && ((unsigned char)err->text[start - 1] & 0x80)) err->text[start - 1] = '\0';
    }
    /* File names and tensor names may hold anything; one sentence stays one line. */
    for (char *c = err->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
    return status;
}

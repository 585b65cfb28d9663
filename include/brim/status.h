/* SPDX-License-Identifier: Apache-2.0
 * Status codes and caller-owned error text, shared by every public call.
 *
 * A call that can fail returns a brim_status: BRIM_OK (0) or a negative code. Where it takes a
 * `brim_error *`, the caller owns that struct (it may be NULL); on failure it receives the code and
 * one sentence naming the file, tensor or argument at fault, on success it is left untouched.
 * The library never exits, prints or reads the environment. */
#ifndef BRIM_STATUS_H
#define BRIM_STATUS_H

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define BRIM_API __attribute__((visibility("default")))
#define BRIM_MUST_USE __attribute__((warn_unused_result))
#else
#define BRIM_API
#define BRIM_MUST_USE
#endif

typedef enum brim_status {
    BRIM_OK = 0,
    BRIM_E_ARGUMENT = -1,    /* an argument is null, out of range or contradicts another */
    BRIM_E_NO_MEMORY = -2,   /* an allocation failed */
    BRIM_E_IO = -3,          /* a file could not be opened, read, mapped or written */
    BRIM_E_FORMAT = -4,      /* a file or text is malformed */
    BRIM_E_UNSUPPORTED = -5, /* well formed, but brim does not implement it */
    BRIM_E_MISSING = -6,     /* a file, tensor or key that must exist does not */
    BRIM_E_CONTEXT = -7,     /* the tokens do not fit the session's context */
    BRIM_E_SHAPE = -8,       /* a dimension is not one this operator takes */
    BRIM_E_DTYPE = -9,       /* an element type is not one this operator takes */
    BRIM_E_STRIDE = -10,     /* a stride is negative, too small or not a multiple required */
    BRIM_E_ALIGNMENT = -11,  /* a pointer is not aligned as required */
    BRIM_E_WORKSPACE = -12,  /* the workspace is null or smaller than the size asked for */
    BRIM_E_OFFSETS = -13,    /* sequence offsets decrease or leave their range */
    BRIM_E_RANGE = -14,      /* a numeric parameter lies outside its documented range */
    BRIM_E_NOT_FINITE = -15, /* NaN or infinity where a finite value is required */
    BRIM_E_DEVICE = -16,     /* no device, or a device call failed */
    BRIM_E_DRIVER = -17,     /* the device's driver is too old for this build */
    BRIM_E_ARCH = -18,       /* the device's architecture is not in this build */
    BRIM_E_CANCELLED = -19   /* the caller's callback asked to stop */
} brim_status;

typedef struct brim_error {
    brim_status status;
    char text[508]; /* NUL-terminated UTF-8, one sentence, no newline */
} brim_error;

/* The code's short name, for example "BRIM_E_FORMAT"; never NULL. Static storage. */
BRIM_API const char *brim_status_name(brim_status status);

#ifdef __cplusplus
}
#endif
#endif

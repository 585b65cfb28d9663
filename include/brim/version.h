/* SPDX-License-Identifier: Apache-2.0
 * API version. The ABI version is the SONAME of the shared library (its major number). */
#ifndef BRIM_VERSION_H
#define BRIM_VERSION_H

#define BRIM_VERSION_MAJOR 0
#define BRIM_VERSION_MINOR 1
#define BRIM_VERSION_PATCH 0
#define BRIM_VERSION_STRING "0.1.0"

#endif

/* SPDX-License-Identifier: Apache-2.0
 * Uses the installed headers and library: one pure call, and one that reaches the file readers,
 * whose failure must arrive as a status and a sentence. */
#include <stdio.h>
#include <string.h>

#include <brim/brim.h>
#include <brim/plan.h>

int main(void)
{
    brim_error err = {0};
    brim_split_policy policy = brim_split_policy_course();
    brim_split_plan plan;
    if (brim_split_plan_make(&policy, 32, 2560, 4096, &plan, &err) != BRIM_OK) return 1;

    brim_engine_options options;
    brim_engine_options_default(&options);
    brim_engine *engine = NULL;
    if (brim_engine_open(&engine, "no-such-model.gguf", &options, &err) != BRIM_E_MISSING) return 2;
    if (engine || !strstr(err.text, "no-such-model.gguf")) return 3;
    printf("brim %s: split %d, \"%s\"\n", BRIM_VERSION_STRING, (int)plan.split, err.text);
    return 0;
}
